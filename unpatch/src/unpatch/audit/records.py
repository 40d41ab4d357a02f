"""The records of an audit: orders to its processes, their answers, and the result that is rendered and kept as JSON.

`AuditResult` is the documented schema of `unpatch audit --json` (docs/audit.md).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

#: What a write does. `code`: the inside of a function (`__code__`, `__defaults__`, `__kwdefaults__`, a closure's cell).
Kind = Literal["replace", "add", "delete", "entry", "code", "bases", "state", "kernel"]
#: `patch`: foreign behaviour replaced or deleted · `addition`: something new put beside it · `registration`: an entry or a
#: kernel that the target's own extension point takes · `self-patch`: the target wrote itself · `dependency`: written by
#: another package than the audited one · `noise`: caches and counters of the target, and writes that were taken back.
Class = Literal["patch", "addition", "registration", "self-patch", "dependency", "noise"]
CLASSES: tuple[Class, ...] = ("patch", "addition", "registration", "dependency", "self-patch", "noise")
#: What else is known of a write. `no writer`: only its effect was found · `seen by the interpreter`: not by its source ·
#: `before the snapshot`, `not in the snapshot`: no effect to compare with · `until the end of the process`: which ended early.
Tag = Literal[
    "no writer", "seen by the interpreter", "before the snapshot", "not in the snapshot", "taken back", "replaces an entry",
    "removes an entry", "replaces a kernel", "until the end of the process",
]  # fmt: skip
#: What is listed by default: whatever a package other than the target did and left.
SHOWN: tuple[Class, ...] = ("patch", "addition", "registration", "dependency")


class Activation(Struct, frozen=True):
    """What sets a package's patches off, in this order: environment variables, an import or a script, calls."""

    target: str  #: a module, or the path of a script
    then: tuple[str, ...] = ()  #: further modules to import, in this order
    calls: tuple[str, ...] = ()  #: `pkg.fn()`, evaluated where `pkg` is imported
    environment: dict[str, str] = {}

    @property
    def is_script(self) -> bool:
        return self.target.endswith(".py")


class Orders(Struct, frozen=True):
    """What a child is to do: `learn` which modules the activation loads, or `audit` it."""

    mode: Literal["learn", "audit"]
    activation: Activation
    answers: str  #: path of the file to answer in
    audited: tuple[str, ...] = ()  #: top-level packages whose writes are looked for
    cache: str = ""  #: folder of rewritten code; empty: none is kept
    on: tuple[str, ...] = ()  #: packages whose writes are of interest; empty: all
    learned: tuple[str, ...] = ()  #: modules that the activation loads, in the order in which they are loaded


class Value(Struct, frozen=True):
    """A value as people read it, and where it is defined."""

    text: str
    defined: str = ""  #: `file:line` of its source, or its module
    package: str = ""  #: top-level package that it comes from
    importable: str = ""  #: `module:name` under which its own module has it


class Site(Struct, frozen=True):
    """Where a write stands in the source."""

    file: str  #: as its package names it
    line: int
    module: str
    function: str = ""
    stack: tuple[str, ...] = ()  #: `file:line function`, innermost first


class Write(Struct, frozen=True, tag="write"):
    """One traced write, told when it happens."""

    order: int
    kind: Kind
    target: str
    new: Value
    site: Site
    package: str  #: to blame for it
    via: str = ""  #: the patching library that wrote in its place
    traced_by: Literal["source", "interpreter"] = "source"


class Phase(Struct, frozen=True, tag="phase"):
    """What the child is doing now."""

    name: str


class Learned(Struct, frozen=True, tag="learned"):
    modules: tuple[str, ...]


class Copy(Struct, frozen=True):
    """Somebody outside the target who holds a value: `module.name`, a default, a cell."""

    where: str
    package: str


class Declaration(Struct, frozen=True):
    """What a patching library says about a patch that was declared with it."""

    library: str  #: mpat, gorilla, wrapt, unpatch
    details: dict[str, str] = {}


class Finding(Struct, frozen=True):
    """Everything that is known about one patch."""

    id: str  #: `target@module that writes it`, stable while both keep their names
    target: str
    aliases: tuple[str, ...]  #: further targets that got the same replacement of the same original
    kind: Kind
    classed: Class
    what: Class  #: as `classed`, but for a dependency: what the dependency did
    package: str  #: to blame
    old: Value | None
    new: Value | None
    site: Site | None  #: None: the write is not in traced source, only its effect was found
    order: int  #: among the traced writes; 0 without a site
    tags: tuple[Tag, ...] = ()
    via: str = ""
    declared: Declaration | None = None
    stale: tuple[Copy, ...] = ()  #: who still holds the original
    copied: tuple[Copy, ...] = ()  #: who took a copy of the replacement


class Audited(Struct, frozen=True, tag="audited"):
    """The answer of the audit pass."""

    findings: tuple[Finding, ...]
    versions: dict[str, str]
    places: int  #: names and entries in the snapshot
    unloaded: tuple[str, ...]  #: learned modules that could not be loaded beforehand, with the reason
    seconds: dict[str, float]
    error: str = ""  #: of the activation


class AuditResult(Struct, frozen=True):
    """The result of an audit. `schema` counts up when a field changes its meaning or goes."""

    activation: Activation
    on: tuple[str, ...]
    packages: tuple[str, ...]
    versions: dict[str, str]
    findings: tuple[Finding, ...]
    error: str = ""  #: the activation's own error, with its traceback
    complete: bool = True  #: False: the process ended early, and `findings` are the writes until then
    places: int = 0
    unloaded: tuple[str, ...] = ()
    seconds: dict[str, float] = {}
    schema: int = 1

    def of(self, *classes: Class) -> tuple[Finding, ...]:
        """The findings of these classes."""
        return tuple(finding for finding in self.findings if finding.classed in classes)


Answer = Write | Phase | Learned | Audited
