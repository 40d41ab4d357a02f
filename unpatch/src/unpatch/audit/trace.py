"""What rewritten code calls: does the write, and records it where it changes another package. Or leaves it undone.

A write is foreign when the module that makes it and what it changes are of different top-level packages. Patching libraries
(wrapt, mock, gorilla, mpat, unpatch itself) write for others: blame goes to the first frame outside of them.
"""

from __future__ import annotations

import builtins
import operator
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from unpatch.audit import raw
from unpatch.audit.raw import ABSENT
from unpatch.audit.records import Kind, Site
from unpatch.audit.snapshot import Owner

#: Packages that write in the name of others.
LIBRARIES = frozenset({"wrapt", "mpat", "gorilla", "mock", "unittest", "unpatch"})
#: Frames that stand between a patching library and who called it, and blame nobody.
_BETWEEN = LIBRARIES | {"functools", "contextlib"}
_STACK = 15
_OPERATORS = frozenset({"torch._ops.OpOverload", "torch._ops.OpOverloadPacket"})


@dataclass(eq=False)
class Entry:
    """A foreign write. `key` joins it with a change of the snapshot."""

    order: int
    kind: Kind
    owner: Any
    name: Any
    target: str
    old: Any
    new: Any
    site: Site
    package: str
    via: str
    traced_by: Literal["source", "interpreter"]
    early: bool
    inherited: bool = False

    @property
    def key(self) -> tuple[int, Any]:
        is_item = self.kind == "entry" and not raw.is_a(self.owner, dict)  # of a list or set: by its id
        return id(self.owner), self.name if is_item else raw.identity(self.name)


@dataclass(eq=False)
class Note:
    """Something that was handed to a function that registers."""

    value: Any
    site: Site
    package: str
    home: str  #: module of that function


class Tracer:
    """Records foreign writes.

    Args:
        tell: called with each entry as it is made.
        suppress: asked with a target, the module that writes it, what is there and what would be; True leaves it undone.
    """

    def __init__(
        self,
        tell: Callable[[Entry], None] = lambda entry: None,
        suppress: Callable[[str, str, Any, Any], bool] | None = None,
    ) -> None:
        self.entries: list[Entry] = []
        self.notes: dict[Any, list[Note]] = {}
        self.early = True  #: no snapshot is taken yet
        self.find_owner: Callable[[object], Owner | None] = lambda value: None
        self._tell = tell
        self._suppress = suppress
        self._busy = threading.local()
        self._registering: Any = None

    # -------------------------------------------------------------------------------------- called by rewritten code
    def set(self, value: Any, owner: Any, name: str, line: int) -> None:
        """`owner.name = value`"""
        self._attribute(owner, name, value, line, lambda: builtins.setattr(owner, name, value))

    def delete(self, owner: Any, name: str, line: int) -> None:
        """`del owner.name`"""
        self._attribute(owner, name, ABSENT, line, lambda: builtins.delattr(owner, name))

    def set_item(self, value: Any, owner: Any, key: Any, line: int) -> None:
        """`owner[key] = value`"""
        self._item(owner, key, value, line, lambda: operator.setitem(owner, key, value))

    def delete_item(self, owner: Any, key: Any, line: int) -> None:
        """`del owner[key]`"""
        self._item(owner, key, ABSENT, line, lambda: operator.delitem(owner, key))

    def setter(self, function: Any, line: int) -> Any:
        """`setattr`, `delattr`, `object.__setattr__` and their kind, as they were written."""
        if (
            function is builtins.setattr
            or function is builtins.delattr
            or type(function) is types.WrapperDescriptorType
        ):
            bound = ABSENT
        elif type(function) is types.MethodWrapperType:  # X.__setattr__
            bound = function.__self__
        else:
            return function

        def call(*arguments: Any) -> Any:
            owner, rest = (arguments[0], arguments[1:]) if bound is ABSENT else (bound, arguments)
            value = rest[1] if len(rest) > 1 else ABSENT
            return self._attribute(owner, rest[0], value, line, lambda: function(*arguments))

        return call

    def method(self, function: Any, line: int) -> Any:
        """A method that may change a registry, such as `update` or `append`."""
        if type(function) is not types.BuiltinMethodType:
            return function
        owner = self.find_owner(function.__self__)
        if owner is None or owner.kind == "function":
            return function
        return lambda *arguments, **named: self._mutate(owner, function, arguments, named, line)

    def registering(self, function: Any, line: int) -> Any:
        """A function that registers its arguments, which are noted next."""
        self._registering = function
        return function

    def note(self, value: Any, line: int) -> Any:
        """An argument of a function that registers it somewhere."""
        if raw.is_class(value) or type(raw.function_of(value)) is types.FunctionType or type(value) is tuple:
            frame = sys._getframe(1)
            self.notes.setdefault(id(value), []).append(
                Note(value, _site(frame, line), raw.top(_name(frame)), raw.origin(self._registering))
            )
        return value

    # -------------------------------------------------------------------------------------- called by the interpreter
    def watch_interpreter(self) -> None:
        """Record changes inside functions and of bases, which code that is not traced makes too."""
        sys.addaudithook(self._audited)

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "object.__setattr__" or getattr(self._busy, "on", False):
            return
        owner, name, value = arguments
        if name not in raw.INNER and name != "__bases__":
            return
        found = _named(owner, name)
        frame = sys._getframe(1)
        if found is None or self.find_owner(owner) is None or not _foreign(found[1], frame):
            return
        old = raw.own(owner, name)
        self._record(found[0], owner, name, found[1], old, value, frame, frame.f_lineno, "interpreter")

    # -------------------------------------------------------------------------------------- doing and recording
    def _attribute(self, owner: Any, name: str, value: Any, line: int, write: Callable[[], Any]) -> Any:
        if not _may_be_named(type(owner)) and self.find_owner(owner) is None:
            return write()
        frame = sys._getframe(2)
        found = _named(owner, name)
        if found is None:
            known = self.find_owner(owner)
            if known is None or known.kind not in ("instance", "module"):
                return write()
            kind: Kind = "replace"
            target = f"{known.path}.{name}"
        else:
            kind, target = found
        if not _foreign(target, frame) or (self.find_owner(owner) is None and not _reachable(owner)):
            return write()
        if raw.is_class(owner) and raw.top(_name(frame)) in raw.base_packages(owner):
            return write()  # a class method of the writer, called on somebody's subclass
        old = raw.own(owner, name)
        if self._left_undone(target, frame, old, value):
            return None
        inherited = old is ABSENT and raw.is_class(owner) and raw.inherited(owner, name) is not ABSENT
        before = getattr(self._busy, "on", False)
        self._busy.on = True
        try:
            done = write()
        finally:
            self._busy.on = before
        if kind == "replace":
            if inherited:
                old = raw.inherited(owner, name)
            kind = "delete" if value is ABSENT else "add" if old is ABSENT else "replace"
        self._record(kind, owner, name, target, old, value, frame, line, "source", inherited)
        return done

    def _item(self, owner: Any, key: Any, value: Any, line: int, write: Callable[[], Any]) -> Any:
        known = self.find_owner(owner)
        if known is None or known.kind == "function":
            return write()
        frame = sys._getframe(2)
        target = _item_target(known, key)
        if not _foreign(str(key) if owner is sys.modules else known.path, frame):
            return write()
        if self._left_undone(target, frame, ABSENT, value):
            return None
        if known.kind == "sequence":
            was = set(_contents(owner))
            write()
            for item, _ in _contents(owner).values():
                if id(item) not in was:
                    self._record("entry", known.object, id(item), target, ABSENT, item, frame, line, "source")
            return None
        old = dict.get(owner, key, ABSENT) if raw.is_a(owner, dict) else ABSENT
        write()
        self._entry(known, key, old, value, frame, line)
        return None

    def _mutate(self, known: Owner, function: Any, arguments: Any, named: Any, line: int) -> Any:
        frame = sys._getframe(2)
        container = function.__self__
        if not _foreign(known.path, frame):
            return function(*arguments, **named)
        if self._suppress is not None:
            arguments, named, left = self._without(known, function.__name__, arguments, named, frame)
            if left:
                return None
        before = _contents(container)
        result = function(*arguments, **named)
        after = _contents(container)
        for key, (name, value) in after.items():
            old = before.get(key, (name, ABSENT))[1]
            if old is not value:
                self._entry(known, name, old, value, frame, line)
        for key, (name, value) in before.items():
            if key not in after:
                self._entry(known, name, value, ABSENT, frame, line)
        return result

    def _without(self, known: Owner, method: str, arguments: Any, named: Any, frame: Any) -> tuple[Any, Any, bool]:
        """The arguments of a mutating method less what is to be left undone; True: nothing is left to do."""
        if method == "update":
            given = dict(*arguments, **named)
            kept = {k: v for k, v in given.items() if not self._left_undone(_item_target(known, k), frame, ABSENT, v)}
            return (kept,), {}, not kept
        key = arguments[0] if arguments else None
        value = arguments[-1] if arguments else ABSENT
        return arguments, named, self._left_undone(_item_target(known, key), frame, ABSENT, value)

    def _entry(self, known: Owner, key: Any, old: Any, new: Any, frame: Any, line: int) -> None:
        target = _item_target(known, key)
        if known.kind in ("module", "instance"):
            kind: Kind = "delete" if new is ABSENT else "add" if old is ABSENT else "replace"
            self._record(kind, known.object, key, target, old, new, frame, line, "source")
        else:
            name = id(key) if known.kind in ("sequence", "set") else key
            self._record("entry", known.object, name, target, old, new, frame, line, "source")

    def _left_undone(self, target: str, frame: types.FrameType, old: Any, new: Any) -> bool:
        return self._suppress is not None and self._suppress(target, _name(_blamed(frame)[0]), old, new)

    def _record(
        self, kind: Kind, owner: Any, name: Any, target: str, old: Any, new: Any, frame: types.FrameType, line: int,
        by: Literal["source", "interpreter"], inherited: bool = False,
    ) -> None:  # fmt: skip
        blamed, via = _blamed(frame)
        site = _site(blamed, line if blamed is frame else blamed.f_lineno)
        package = raw.top(site.module)
        if package == raw.top(target):
            return
        entry = Entry(
            len(self.entries) + 1, kind, owner, name, target, old, new, site, package, via, by, self.early, inherited
        )
        self.entries.append(entry)
        self._tell(entry)


def _may_be_named(kind: type) -> bool:
    """Whether `_named` knows instances of a class; asked for every attribute that traced code stores."""
    known = _asked.get(id(kind))
    if known is None or known[0] is not kind:
        named = raw.is_subclass(kind, types.ModuleType, type, types.FunctionType) or raw.class_path(kind) in _OPERATORS
        known = _asked[id(kind)] = (kind, named)
    return known[1]


#: By identity: a metaclass may have its own idea of a hash.
_asked: dict[int, tuple[type, bool]] = {}


def _named(owner: Any, name: str) -> tuple[Kind, str] | None:
    """What an attribute of a module, a class or a function is called; None for other owners."""
    if raw.is_module(owner):
        path = raw.module_name(owner)
    elif raw.is_class(owner):
        path = raw.class_path(owner)
        if name == "__bases__":
            return "bases", f"{path}.{name}"
    elif raw.class_path(type(owner)) in _OPERATORS:
        path = _operator(owner)  # made when it is first asked for, so no snapshot need have it
    elif type(owner) is types.FunctionType:
        path = f"{raw.origin(owner)}.{owner.__qualname__}"
        return ("code" if name in raw.INNER else "replace"), f"{path}.{name}"
    else:
        return None
    return "replace", f"{path}.{name}"


def _operator(operator: Any) -> str:
    """`torch.ops.aten.tanh.default` of an operator object of torch."""
    names = raw.instance_dict(operator) or {}
    packet = names.get("_overloadpacket", operator)
    qualified = str((raw.instance_dict(packet) or {}).get("_qualified_op_name", "?")).replace("::", ".")
    return f"torch.ops.{qualified}" + (f".{names.get('_overloadname', '?')}" if packet is not operator else "")


def _reachable(owner: Any) -> bool:
    """Whether a class or a function stands where its names say; if not, it is just being made, and nobody else's.

    Decorators and `functools.wraps` write to such functions, and `type(…)` makes such classes, which say `abc` or the like.
    """
    if raw.is_module(owner) or not (raw.is_class(owner) or type(owner) is types.FunctionType):
        return True
    if raw.is_class(owner):
        home, names = raw.class_module(owner), raw.class_qualname(owner)
    else:
        home, names = raw.origin(owner), owner.__qualname__
    place: Any = sys.modules.get(home, ABSENT)
    for part in names.split("."):
        place = raw.names(place).get(part, ABSENT)
        place = place if raw.is_class(place) else raw.function_of(place)
    while place is not owner:
        place = raw.function_of((raw.instance_dict(place) or {}).get("__wrapped__", ABSENT))
        if place is ABSENT:
            return False
    return True


def _contents(container: Any) -> dict[Any, tuple[Any, Any]]:
    """Key of identity -> (key or item, value)."""
    if raw.is_a(container, dict):
        return {raw.identity(key): (key, value) for key, value in raw.entries(container)}
    return {id(item): (item, item) for item in raw.entries(container)}


def _item_target(known: Owner, key: Any) -> str:
    if known.kind in ("module", "instance"):
        return f"{known.path}.{key}"
    return f"{known.path}[{raw.key_text(key) if known.kind == 'mapping' else '…'}]"


def _foreign(target: str, frame: types.FrameType) -> bool:
    package = raw.top(target)
    return bool(package) and package != raw.top(_name(frame)) and package not in LIBRARIES - {"unittest"}


def _name(frame: types.FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if type(name) is str else "?"


def _blamed(frame: types.FrameType) -> tuple[types.FrameType, str]:
    """The first frame outside of patching libraries, and the library that stands between."""
    via = raw.top(_name(frame))
    if via not in LIBRARIES:
        return frame, ""
    for outer in raw.stack_of(frame.f_back):
        if raw.top(_name(outer)) not in _BETWEEN:
            return outer, via
    return frame, ""


def _site(frame: types.FrameType, line: int) -> Site:
    stack = tuple(
        f"{raw.short(outer.f_code.co_filename)}:{line if outer is frame else outer.f_lineno} {outer.f_code.co_qualname}"
        for outer in raw.stack_of(frame, _STACK)
    )
    return Site(raw.short(frame.f_code.co_filename), line, _name(frame), frame.f_code.co_qualname, stack)
