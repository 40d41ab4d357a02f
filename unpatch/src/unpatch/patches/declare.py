"""What a patch is, as its author declares it: the writes that belong together, and why, whence and until when.

Nothing here touches a target; `unpatch.patches.manager` applies what is declared here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar, overload

from unpatch.patches import targets
from unpatch.patches.errors import AlreadyAppliedError, NotRevertibleError

F = TypeVar("F")
_OMITTED: Any = object()

#: A requirement (`torch>=2.14`), a function without arguments that returns whether the patch can go, or prose.
RemoveWhen = str | Callable[[], bool]
#: One fingerprint, or those of several releases.
Fingerprint = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a patch came from: what brought it in, what took it out, and anything else worth knowing."""

    introduced: str = "unknown"
    removed: str = "unknown"
    note: str = ""


class Line(NamedTuple):
    """A line of a source file."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Write:
    """One target that a patch writes. `replacement` is written as it is; a deletion has none."""

    target: str
    kind: Literal["replace", "add", "delete"]
    replacement: Any = None


class Details(TypedDict):
    """What the author says of a patch, as keyword arguments. `id`, `group` and `reason` are required."""

    id: str
    group: str
    reason: str
    title: NotRequired[str]  #: a few words for a heading; the id if omitted
    origin: NotRequired[Origin]
    versions: NotRequired[str]  #: what it is for, as a requirement such as `torch>=2.1`; for others it is not applied
    remove_when: NotRequired[RemoveWhen]  #: when it goes: a requirement, a probe that says so, or words for people
    risk: NotRequired[str]  #: what deleting it might break
    rollback: NotRequired[str]  #: how to get it back
    fingerprints: NotRequired[Mapping[str, Fingerprint]]  #: of the original that each target had; see `unpatch check`
    permanent: NotRequired[bool]  #: accept that a write which lasts cannot be undone in this process


def named(name: str, what: str) -> str:
    """Check a name that people type, also in a comma separated list. Raises ValueError that says `what` it is."""
    if not isinstance(name, str) or not name.strip() or name != name.strip() or "," in name:
        raise ValueError(f"{what} must be text that is not blank, without a comma or surrounding space, not {name!r}")
    return name


@dataclass(eq=False, slots=True, kw_only=True)
class Patch:
    """One or more writes that are applied and reverted together, or one opaque function that can only be applied.

    Made by `PatchManager.declare`, `PatchManager.patch` and `PatchManager.register_patch`; see `Details` for the fields
    that the author gives.
    """

    id: str
    group: str
    reason: str
    declared_at: Line
    title: str = ""
    origin: Origin = Origin()
    versions: str = ""
    remove_when: RemoveWhen = ""
    risk: str = ""
    rollback: str = ""
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
    permanent: bool = False
    writes: tuple[Write, ...] = ()
    function: Callable[[], object] | None = None  #: what an opaque patch calls; such a patch has no writes
    applied: bool = False  #: kept by the manager

    def __post_init__(self) -> None:
        named(self.id, "patch id")
        named(self.group, "patch group")
        self.title = self.title or self.id

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets written, each once, in order; none for an opaque patch."""
        return tuple(dict.fromkeys(write.target for write in self.writes))

    def writes_to(self, target: str) -> bool:
        """Whether the patch writes a target, in either spelling."""
        return targets.dotted(target) in map(targets.dotted, self.targets)

    @overload
    def replace(self, target: str) -> Callable[[F], F]: ...

    @overload
    def replace(self, target: str, replacement: F) -> F: ...

    def replace(self, target: str, replacement: Any = _OMITTED) -> Any:
        """Replace what exists (an inherited attribute is overridden); without `replacement`, a decorator.

        Returns the replacement unchanged. Raises ValueError when `target` is no target, AlreadyAppliedError.
        """
        if replacement is _OMITTED:
            targets.parse(target)

            def decorate(function: F) -> F:
                return self.replace(target, function)

            return decorate
        self._write(Write(target, "replace", replacement))
        return replacement

    def add(self, target: str, value: F) -> F:
        """Add what does not exist; returns `value`. Raises like `replace`."""
        self._write(Write(target, "add", value))
        return value

    def delete(self, target: str) -> None:
        """Delete what the module, class or mapping itself has. Raises like `replace`."""
        self._write(Write(target, "delete"))

    def _write(self, write: Write) -> None:
        targets.parse(write.target)
        if self.function is not None:
            raise NotRevertibleError(f"patch {self.id!r} is an opaque function and takes no writes; declare another")
        if self.applied:
            raise AlreadyAppliedError(f"patch {self.id!r} is applied: revert it before adding {write.target!r}")
        self.writes += (write,)
