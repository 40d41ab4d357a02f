"""Runs a program with chosen found patches left out: their writes are never made.

Only the modules that write them are rewritten, so everything else runs as it is. A patch whose writer is not traced (`~`
in its id) can only be undone when its package has been imported, which leaves copies behind: stderr says so.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unpatch.audit import raw
from unpatch.audit.errors import AuditError
from unpatch.audit.hook import TracingFinder, found_after, traced_code
from unpatch.audit.raw import ABSENT
from unpatch.audit.snapshot import Owner, container_kind
from unpatch.audit.trace import Tracer


@dataclass(frozen=True)
class PatchId:
    """An id taken apart: `target@module`, or `target~package` where the writer is not traced."""

    text: str
    target: str
    writer: str
    traced: bool


def parse_ids(texts: Iterable[str]) -> tuple[PatchId, ...]:
    """Take ids apart, several in one text being separated by commas outside of brackets.

    Raises AuditError where a text is no id.
    """
    ids = []
    for text in (part for whole in texts for part in _split(whole)):
        base = (
            text.partition("#")[0]
            if "[" not in text
            else text.rpartition("]")[0] + "]" + _after(text).partition("#")[0]
        )
        sign = "@" if "@" in _after(base) else "~"
        target, found, writer = base.rpartition(sign)
        if not (found and target and writer):
            raise AuditError(
                f"{text!r} is no id of a found patch; `unpatch audit` prints them, such as torch.select@package.module."
            )
        ids.append(PatchId(text, target, writer, sign == "@"))
    return tuple(ids)


def _after(text: str) -> str:
    """What follows the last bracket, which may contain anything."""
    return text.rpartition("]")[2]


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    quote, escaped = "", False
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote and not escaped else quote
            escaped = character == "\\" and not escaped
        elif character in "'\"":
            quote = character
        elif character in "[(":
            depth += 1
        elif character in "])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


class Suppression:
    """Leaves the writes of some patches out of this process.

    Args:
        ids: which.
        warn: told of each patch that could only be undone.
    """

    def __init__(self, ids: Sequence[PatchId], warn: Callable[[str], None] = lambda text: None) -> None:
        self.ids = tuple(ids)
        self.left_out: set[PatchId] = set()
        self._warn = warn
        self._targets = {(id.target, id.writer): id for id in ids if id.traced}
        self._aliases: dict[tuple[int, int, str], tuple[object, object, PatchId]] = {}
        self._writers = {id.writer for id in ids if id.traced}
        self.tracer = Tracer(suppress=self._left_out)
        self.tracer.find_owner = lambda value: self._owners().get(id(value))
        self._found: dict[int, Owner] = {}
        self._loaded = 0

    def install(self) -> None:
        """From now on, leave the writes out."""
        # Patching libraries write in the name of the module that calls them.
        libraries = ("wrapt.", "gorilla", "mpat.", "mock.")
        TracingFinder(lambda name: name in self._writers or name.startswith(libraries), self.tracer).install()
        untraced = [id for id in self.ids if not id.traced]
        if untraced:
            sys.meta_path.insert(0, _UndoingFinder(untraced, self))

    def code_of(self, path: str) -> types.CodeType | None:
        """Rewritten code of the script, where the script itself writes."""
        return traced_code(path) if "__main__" in self._writers else None

    def undone(self, id: PatchId) -> None:
        self.left_out.add(id)
        self._warn(
            f"{id.text}: written by code that is not traced, so undone after the import of {id.writer} instead of never "
            "written. Copies that were taken meanwhile remain; a verdict that rests on this is weaker."
        )

    def _left_out(self, target: str, module: str, old: Any, new: Any) -> bool:
        chosen = self._targets.get((target, module))
        alias = (id(old), id(new), module)
        if chosen is None and alias in self._aliases:
            chosen = self._aliases[alias][2]
        if chosen is None:
            return False
        if raw.is_code(old) and raw.is_code(new):
            self._aliases[alias] = (old, new, chosen)  # both held, so that no address is used twice
        self.left_out.add(chosen)
        return True

    def _owners(self) -> dict[int, Owner]:
        """Containers and instances that some target names, by identity; looked for again when modules were loaded."""
        if len(sys.modules) == self._loaded:
            return self._found
        self._loaded = len(sys.modules)
        self._found = {}
        for path in [_parent(chosen.target) for chosen in self.ids if chosen.traced]:
            found = _walk(path)
            if raw.is_a(found, dict, set, list):
                self._found[id(found)] = Owner(container_kind(found), [path], found)
            elif found is not ABSENT and not raw.is_class(found) and type(found) is not types.FunctionType:
                owner = Owner("module" if raw.is_module(found) else "instance", [path], found)
                self._found |= {id(found): owner, id(raw.names(found)): owner}
        return self._found


def _parent(target: str) -> str:
    """The container of an entry, the owner of an attribute."""
    path, bracket, _ = target.partition("[")
    return path if bracket else path.rpartition(".")[0]


def _walk(path: str) -> Any:
    """What a dotted path names among what is loaded, looked up raw, or ABSENT."""
    names = path.split(".")
    for length in range(len(names), 0, -1):
        found: Any = sys.modules.get(".".join(names[:length]), ABSENT)
        for name in names[length:]:
            if found is ABSENT:
                break
            found = raw.names(found).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return ABSENT


class _UndoingFinder(importlib.abc.MetaPathFinder):
    """Puts back what untraced code of a package wrote, as soon as the package is imported."""

    def __init__(self, ids: Sequence[PatchId], suppression: Suppression) -> None:
        self._ids = ids
        self._suppression = suppression

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        ids = [id for id in self._ids if id.writer == fullname]
        if not ids:
            return None
        spec = found_after(self, fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            from unpatch.patches.errors import PatchError
            from unpatch.patches.targets import locate

            places = []
            for id in ids:
                try:
                    place = locate(id.target)
                except (PatchError, ValueError) as error:
                    raise AuditError(f"{id.text} cannot be undone: {error}") from error
                places.append((id, place, place.read()))
            execute(module)
            for id, place, before in places:
                if place.read() is not before:
                    place.put(before)
                    self._suppression.undone(id)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
