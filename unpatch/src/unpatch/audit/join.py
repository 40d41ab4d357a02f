"""Joins the trace with the snapshot: every foreign write with its effect, every effect with its writer, aliases as one.

A write without an effect was taken back. An effect without a write is the work of code that is not traced: it is attributed to
the package that its value comes from, or to the target itself.
"""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unpatch.audit import raw
from unpatch.audit.classify import blamed, unwritten, what_it_does
from unpatch.audit.declared import declaration
from unpatch.audit.raw import ABSENT
from unpatch.audit.records import Class, Finding, Kind, Site, Tag
from unpatch.audit.snapshot import Change, Snapshot
from unpatch.audit.trace import Entry, Note, Tracer

Kernels = Mapping[tuple[str, str], str]


@dataclass(eq=False)
class Found:
    """A finding that still holds its objects."""

    target: str
    kind: Kind
    classed: Class
    what: Class
    package: str
    old: Any
    new: Any
    owner: Any
    site: Site | None = None
    order: int = 0
    tags: tuple[Tag, ...] = ()
    via: str = ""
    aliases: list[str] = field(default_factory=list)
    in_source: bool = False  #: traced source makes the write, so that it can be left out

    @property
    def id(self) -> str:
        if self.in_source and self.site is not None:
            return f"{self.target}@{self.site.module}"
        return f"{self.target}~{self.package}"


class Join:
    """Everything that is known after an activation.

    Args:
        tracer: the foreign writes, and what was handed to registering functions.
        snapshot: what was there before.
        audited: the audited packages.
        traced: whether the writes of a package are traced.
        kernels: the dispatcher's kernels before and after.
    """

    def __init__(
        self,
        tracer: Tracer,
        snapshot: Snapshot,
        audited: Iterable[str],
        traced: Iterable[str],
        kernels: tuple[Kernels, Kernels] = ({}, {}),
    ) -> None:
        self._tracer = tracer
        self._snapshot = snapshot
        self._audited = frozenset(audited)
        self._traced = frozenset(traced)
        self._kernels = kernels

    def found(self) -> list[Found]:
        """All findings, traced ones first and in the order of their writes; aliases merged."""
        changes = {change.key: change for change in self._snapshot.changes()}
        found = list(self._written(changes))
        found += filter(None, map(self._unwritten, changes.values()))
        found += self._kernel_changes()
        return _merged(found)

    # -------------------------------------------------------------------------------------- traced writes
    def _written(self, changes: dict[tuple[int, Any], Change]) -> Iterator[Found]:
        groups: dict[tuple[int, Any], list[Entry]] = {}
        for entry in self._tracer.entries:
            groups.setdefault(entry.key, []).append(entry)
        for key, entries in groups.items():
            change = changes.pop(key, None)
            by_writer: dict[tuple[str, str], Entry] = {}
            for entry in entries:
                by_writer[entry.target, entry.site.module] = entry
            for entry in by_writer.values():
                yield self._one(entry, entries[0], change)

    def _one(self, entry: Entry, first: Entry, change: Change | None) -> Found:
        owner = self._snapshot.owner(entry.owner)
        kind, old, new = entry.kind, first.old, entry.new
        tags: list[Tag] = []
        taken_back = False
        if change is not None:
            old = change.old if not (change.old is ABSENT and first.inherited) else first.old
        elif entry.early:
            tags.append("before the snapshot")
            taken_back = _now(entry) is not entry.new or _now(entry) is old
        elif owner is None:
            tags.append("not in the snapshot")
            taken_back = _now(entry) is not entry.new or _now(entry) is old
        else:
            taken_back = _holds(owner, entry) or _now(entry) is not entry.new or _now(entry) is old
        if kind in ("add", "replace", "delete"):
            kind = "delete" if new is ABSENT else "add" if old is ABSENT else "replace"
        what = what_it_does(kind, owner.kind if owner is not None else "module", old, new, True)
        if entry.owner is sys.modules:
            what = "addition" if old is ABSENT else "patch"
        else:
            tags += _entry_tags(kind, old, new)
        classed = blamed(what, entry.package, self._audited)
        if taken_back:
            classed = "noise"
            tags.append("taken back")
        if entry.traced_by == "interpreter":
            tags.append("seen by the interpreter")
        return Found(
            entry.target, kind, classed, what, entry.package, old, new, entry.owner, entry.site, entry.order,
            tuple(tags), entry.via, in_source=entry.traced_by == "source",
        )  # fmt: skip

    # -------------------------------------------------------------------------------------- effects without a writer
    def _unwritten(self, change: Change) -> Found | None:
        owner, old, new = change.owner, change.old, change.new
        if owner.object is sys.modules:
            return self._module_entry(change)
        kind = _kind(change)
        if owner.kind == "class" and old is ABSENT:
            old = raw.inherited(owner.object, change.name)
        noted = self._noted(change)
        what = what_it_does(kind, owner.kind, old, new, False)
        tags: tuple[Tag, ...] = ("no writer", *_entry_tags(kind, old, new))
        if noted is not None:
            return Found(
                change.target, kind, blamed(what, noted.package, self._audited), what, noted.package, old, new,
                owner.object, noted.site, 0, tags,
            )  # fmt: skip
        package = self._source(change)
        if package is None and owner.kind == "state":
            package = min(self._audited, default="")
        if package is None:
            classed = unwritten(owner.package, new)
            return Found(change.target, kind, classed, what, owner.package, old, new, owner.object, tags=tags)
        classed = blamed(what, package, self._audited)
        return Found(change.target, kind, classed, what, package, old, new, owner.object, tags=tags)

    def _noted(self, change: Change) -> Note | None:
        """Who handed the value, or the whole key, to a registering function."""
        if change.new is ABSENT:
            return None
        kind = change.owner.kind
        if kind not in ("mapping", "sequence", "set", "state"):
            return None  # an attribute may be written by anybody
        value = self._notes_of((change.new,)) or self._notes_of((raw.function_of(change.new),))
        key = self._notes_of(change.name if type(change.name) is tuple else (change.name,)) if kind == "mapping" else []
        notes = [note for note in value or key if note.package != change.owner.package]
        if not notes:
            return None

        def evidence(note: Note) -> tuple[bool, bool, bool]:
            """Key and value were given; to a function of the registry's own module; it decorates the value."""
            called = bool(note.home) and f"{change.owner.path}.".startswith(f"{note.home}.")
            return any(note.site == other.site for other in key), called, _decorates(note, change.new)

        best = max(notes, key=evidence)
        return best if kind != "state" or evidence(best)[1] else None

    def _notes_of(self, parts: tuple[Any, ...]) -> list[Note]:
        """Calls that were given all these, of which one must be more than plain data."""
        notes = [self._tracer.notes.get(id(part), []) for part in parts if not raw.is_primitive(part)]
        named = any(raw.top(raw.origin(part)) not in ("builtins", "") for part in parts)
        return notes[0] if named and notes and all(notes) else []

    def _source(self, change: Change) -> str | None:
        """The traced package that the new value, or its key, comes from."""
        for value in (change.new, change.name):
            # Compilers keep code objects of whatever they see; nobody registers one.
            if value is not ABSENT and type(value) is not types.CodeType:
                package = raw.top(raw.origin(value))
                if package != change.owner.package and package in self._traced | self._audited:
                    return package
        return None

    def _module_entry(self, change: Change) -> Found | None:
        """A new or replaced entry of `sys.modules` that the import system did not make."""
        name, old, new = change.name, change.old, change.new
        package = raw.top(name)
        if new is ABSENT or package in self._audited or not raw.is_module(new):
            return None
        spec = raw.module_dict(new).get("__spec__")
        if getattr(spec, "name", None) == name and getattr(spec, "loader", None) is not None:
            return None
        known = any(raw.top(module) == package for module in self._snapshot.modules)
        source = raw.top(raw.origin(type(new)))
        blame = source if source in self._traced | self._audited else min(self._audited, default="")
        if source == package or not (known or source in self._audited):
            return None
        what: Class = "addition" if old is ABSENT else "patch"
        classed = blamed(what, blame, self._audited)
        return Found(change.target, "entry", classed, what, blame, old, new, sys.modules, tags=("no writer",))

    def _kernel_changes(self) -> Iterator[Found]:
        before, after = self._kernels
        operators = {operator for operator, _ in before}
        for (operator, key), where in after.items():
            was = before.get((operator, key), ABSENT)
            if was == where:
                continue
            site = _registered_in(where)
            package = raw.top(site.module) if site is not None else min(self._audited, default="")
            tags: tuple[Tag, ...] = ("no writer",)
            if was is not ABSENT and operator in operators:
                tags += ("replaces a kernel",)
            yield Found(
                f"{operator}/{key}", "kernel", blamed("registration", package, self._audited), "registration", package,
                _short(was), _short(where), None, site, tags=tags,
            )  # fmt: skip


def _decorates(note: Note, value: Any) -> bool:
    """Whether the call stands in the line in which the definition of a function begins: that of its first decorator."""
    inner = raw.function_of(value)
    line = inner.__code__.co_firstlineno if type(inner) is types.FunctionType else 0
    return (note.site.module, note.site.line) == (raw.origin(value), line)


def _short(where: Any) -> Any:
    """The dispatcher's words without the folders of this or of torch's build machine."""
    if where is ABSENT:
        return where
    return re.sub(r"registered at (\S+):(\d+)", lambda found: f"registered at {raw.short(found[1])}:{found[2]}", where)


def _registered_in(where: str) -> Site | None:
    """The Python source that registered a kernel, as the dispatcher says it."""
    found = re.match(r"registered at (.+\.py):(\d+)", where)
    module = raw.module_of_file(found[1]) if found else ""
    return Site(raw.short(found[1]), int(found[2]), module) if found and module else None


def _kind(change: Change) -> Kind:
    match change.owner.kind:
        case "state":
            return "state"
        case "mapping" | "sequence" | "set":
            return "entry"
        case "function":
            return "code"
    if change.name == "__bases__" and change.owner.kind == "class":
        return "bases"
    return "delete" if change.new is ABSENT else "add" if change.old is ABSENT else "replace"


def _entry_tags(kind: Kind, old: Any, new: Any) -> tuple[Tag, ...]:
    """Whether an entry that was there before is replaced or removed."""
    if kind != "entry" or old is ABSENT:
        return ()
    return ("removes an entry",) if new is ABSENT else ("replaces an entry",)


def _holds(owner: Any, entry: Entry) -> bool:
    """Whether the snapshot has what the entry wrote: of functions it has only the inside."""
    return owner.kind != "function" or entry.name in raw.INNER


def _now(entry: Entry) -> Any:
    """What is there now."""
    owner, name = entry.owner, entry.name
    if entry.kind == "entry":
        if raw.is_a(owner, dict):
            return dict.get(owner, name, ABSENT)
        return entry.new if any(id(item) == name for item in owner) else ABSENT
    return raw.own(owner, name)


def _merged(found: list[Found]) -> list[Found]:
    """Aliases as one: the same replacement of the same original, by the same package."""
    kept: dict[Any, Found] = {}
    for one in sorted(found, key=lambda one: (one.order == 0, one.order, one.target)):
        mergeable = raw.is_code(one.old) and raw.is_code(one.new) and one.kind == "replace"
        key = (id(one.old), id(one.new), one.package, one.classed) if mergeable else id(one)
        first = kept.setdefault(key, one)
        if first is not one and one.target not in (first.target, *first.aliases):
            first.aliases.append(one.target)
    return list(kept.values())


def findings(found: list[Found], stale: Mapping[int, Any], copied: Mapping[int, Any]) -> tuple[Finding, ...]:
    """The findings as data. `stale` and `copied`: holders of the old and of the new value, by its identity."""
    used: dict[str, int] = {}
    result = []
    for one in found:
        used[one.id] = used.get(one.id, 0) + 1
        number = used[one.id]
        result.append(
            Finding(
                id=one.id if number == 1 else f"{one.id}#{number}",
                target=one.target,
                aliases=tuple(one.aliases),
                kind=one.kind,
                classed=one.classed,
                what=one.what,
                package=one.package,
                old=None if one.old is ABSENT else raw.describe(one.old),
                new=None if one.new is ABSENT else raw.describe(one.new),
                site=one.site,
                order=one.order,
                tags=one.tags,
                via=one.via,
                declared=declaration(one),
                stale=tuple(stale.get(id(one.old), ())),
                copied=tuple(copied.get(id(one.new), ())),
            )
        )
    return tuple(result)
