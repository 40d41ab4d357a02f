"""A snapshot of what modules, classes, functions, registries and singletons contain, by identity, and what has changed since.

Everything is held by a strong reference, so that no address is used twice. What is compared later are the very owners that were
seen first: whatever is loaded in between belongs to nobody's past.
"""

from __future__ import annotations

import ast
import functools
import gc
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from unpatch.audit import raw
from unpatch.audit.raw import ABSENT
from unpatch.audit.rewrite import TRACER

OwnerKind = Literal["module", "class", "function", "mapping", "sequence", "set", "instance", "state"]

#: Names that the import system and the class machinery write by themselves.
_MODULE_NAMES = frozenset(
    (
        "__builtins__",
        "__warningregistry__",
        "__cached__",
        "__spec__",
        "__loader__",
        "__file__",
        "__path__",
        "__annotations__",
        TRACER,
    )
)
_CLASS_MACHINERY = (
    "__dict__",
    "__weakref__",
    "_abc_impl",
    "__abstractmethods__",
    "__annotations__",
    "__subclasshook__",
)
_CLASS_CACHES = (
    "__doc__",
    "__firstlineno__",
    "__static_attributes__",
    "__parameters__",
    "__orig_bases__",
    "__slotnames__",
)
_CLASS_NAMES = frozenset((*_CLASS_MACHINERY, *_CLASS_CACHES, "__signature__"))
_INSTANCE_DEPTH = 3
_LARGE = 20_000  #: entries; a larger container is data, not a registry
#: Containers that Python fills by itself with whatever is loaded or started.
_CACHES = frozenset(
    (
        *("re._cache", "linecache.cache", "sys.path_importer_cache", "threading._active", "threading._limbo"),
        *(
            "logging.Logger.manager.loggerDict",
            "logging._handlerList",
            "inspect._filesbymodname",
            "inspect.modulesbyfile",
        ),
    )
)


@dataclass(eq=False, slots=True)
class Owner:
    """Something that can be written to, and what it contained."""

    kind: OwnerKind
    names: list[str]  #: dotted paths that lead here
    object: Any
    contents: Any = None
    extra: Any = None  #: bases of a class, class of a module

    @property
    def path(self) -> str:
        """The path of the module that defines it; other modules may have imported it."""
        if len(self.names) > 1:
            self.names = [next(filter(_is_definition, self.names), self.names[0])]
        return self.names[0]

    @property
    def package(self) -> str:
        return raw.top(self.path)


@dataclass(eq=False)
class Change:
    """One difference. `name` is an attribute, or the key or item of a container."""

    owner: Owner
    name: Any
    old: Any
    new: Any

    @property
    def key(self) -> tuple[int, Any]:
        """Joins a change with a traced write."""
        name = id(self.name) if self.owner.kind in ("sequence", "set") else raw.identity(self.name)
        return id(self.owner.object), name

    @property
    def target(self) -> str:
        kind = self.owner.kind
        if kind in ("mapping", "sequence", "set"):
            return f"{self.owner.path}[{raw.key_text(self.name)}]" if kind == "mapping" else f"{self.owner.path}[…]"
        if kind == "state":
            return self.owner.path
        return f"{self.owner.path}.{self.name}"


class Snapshot:
    """What all loaded modules contain now, but for those of the packages `without`.

    Args:
        without: top-level packages that are left out.
        states: names of global states, with functions that read them.
    """

    def __init__(self, without: Iterable[str], states: dict[str, Callable[[], Any]] | None = None) -> None:
        self._without = frozenset(without)
        self._states = {**_python_states(), **(states or {})}
        self.owners: dict[int, Owner] = {}
        self.modules: frozenset[str] = frozenset(sys.modules)
        # Hundreds of thousands of objects that all live on: collecting garbage meanwhile doubles the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._take()
        finally:
            if collecting:
                gc.enable()

    def _take(self) -> None:
        for name, module in sorted(sys.modules.items(), key=lambda item: (item[0].count("."), item[0])):
            if self._foreign(name) and raw.is_module(module):
                self._module(name, module)
        self._container("sys.modules", sys.modules)
        for name, read in self._states.items():
            self._add(Owner("state", [name], read, _read(read)))

    @property
    def places(self) -> int:
        """Names and entries that are held."""
        return sum(len(owner.contents) if owner.kind != "state" else 1 for owner in self.owners.values())

    def owner(self, value: object) -> Owner | None:
        """The owner that `value` is; for the `__dict__` of a module, the module."""
        return self.owners.get(id(value))

    def _foreign(self, name: str) -> bool:
        return raw.top(name) not in self._without

    def _add(self, owner: Owner) -> bool:
        return self.owners.setdefault(id(owner.object), owner) is owner

    # -------------------------------------------------------------------------------------- taking it
    def _module(self, name: str, module: Any) -> None:
        names = raw.module_dict(module)
        owner = Owner("module", [name], module, dict(names), type(module))
        if not self._add(owner):
            return
        self.owners[id(names)] = owner
        for attribute, value in owner.contents.items():
            if attribute not in _MODULE_NAMES:
                self._value(f"{name}.{attribute}", owner.package, value, 0)

    def _value(self, path: str, package: str, value: Any, depth: int) -> None:
        if id(type(value)) in raw.LEAVES:
            return
        if raw.is_class(value):
            if raw.top(raw.class_module(value)) == package:
                self._class(value)
            return
        inner = raw.function_of(value)
        if type(inner) is types.FunctionType:
            if id(inner) not in self.owners:
                self._function(inner, path, package)
        elif raw.is_module(value):
            # Namespaces of operators are modules that `sys.modules` does not know.
            if raw.top(raw.module_name(value)) == package and raw.module_name(value) not in sys.modules:
                self._module(path, value)
        elif _is_container(value):
            self._container(path, value)
        elif raw.top(raw.class_module(type(value))) == package:
            self._class(type(value))
            self._instance(path, package, value, depth)

    def _class(self, kind: type) -> None:
        if id(kind) in self.owners:
            return
        path = raw.class_path(kind)
        owner = Owner("class", [path], kind, dict(raw.class_dict(kind)), raw.bases(kind))
        if not self._add(owner):
            return
        for name, value in owner.contents.items():
            if name not in _CLASS_NAMES:
                self._value(f"{path}.{name}", owner.package, value, _INSTANCE_DEPTH - 1)

    def _function(self, function: types.FunctionType, path: str, package: str) -> None:
        home = raw.origin(function)
        if raw.top(home) == package:
            path = f"{home}.{function.__qualname__}"
        owner = Owner("function", [path], function, _inside(function))
        if self._add(owner):
            # The registry of a singledispatch function lies in a cell of a function in a cell.
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
                value = raw.cell(cell)
                if _is_container(value):
                    self._container(f"{path}.<{name}>", value)
                elif type(value) is types.FunctionType:
                    self._function(value, path, package)

    def _instance(self, path: str, package: str, value: Any, depth: int) -> None:
        names = raw.instance_dict(value)
        if names is None or depth >= _INSTANCE_DEPTH or len(names) > _LARGE:
            return
        owner = Owner("instance", [path], value, dict(names))
        if self._add(owner):
            self.owners[id(names)] = owner
            for name, item in owner.contents.items():
                if not raw.is_class(item) and type(name) is str:
                    self._value(f"{path}.{name}", package, item, depth + 1)

    def _container(self, path: str, value: Any) -> None:
        if len(value) <= _LARGE and path not in _CACHES:
            known = self.owners.get(id(value))
            if known is None:
                self._add(Owner(container_kind(value), [path], value, raw.entries(value)))
            elif known.object is value:  # not the `__dict__` of a module, which has its name already
                known.names.append(path)

    # -------------------------------------------------------------------------------------- comparing it
    def changes(self) -> Iterator[Change]:
        """What has changed since, owner by owner."""
        for owner in list(dict.fromkeys(self.owners.values())):
            yield from _changes(owner)


def _changes(owner: Owner) -> Iterator[Change]:
    thing = owner.object
    match owner.kind:
        case "module":
            if type(thing) is not owner.extra:
                yield Change(owner, "__class__", owner.extra, type(thing))
            for change in _of_names(owner, raw.module_dict(thing), _MODULE_NAMES):
                if not _is_submodule(owner, change):
                    yield change
        case "class":
            if raw.bases(thing) != owner.extra:
                yield Change(owner, "__bases__", owner.extra, raw.bases(thing))
            yield from _of_names(owner, raw.class_dict(thing), _CLASS_NAMES)
        case "instance":
            yield from _of_names(owner, raw.instance_dict(thing) or {}, frozenset())
        case "function":
            for name, new in _inside(thing).items():
                old = owner.contents.get(name, ABSENT)
                if not raw.same(old, new) and not (name.startswith("closure ") and not raw.is_code(new)):
                    yield Change(owner, name, old, new)
        case "mapping":
            yield from _of_entries(owner, raw.entries(thing))
        case "sequence" | "set":
            before = {id(item) for item in owner.contents}
            now = raw.entries(thing)
            after = {id(item) for item in now}
            if before != after:
                yield from (Change(owner, item, ABSENT, item) for item in now if id(item) not in before)
                yield from (Change(owner, item, item, ABSENT) for item in owner.contents if id(item) not in after)
        case "state":
            new = _read(thing)
            if not raw.same(owner.contents, new):
                yield Change(owner, "", owner.contents, new)


def _of_names(owner: Owner, now: Any, ignored: frozenset[str]) -> Iterator[Change]:
    before = owner.contents
    for name, new in list(now.items()):
        old = before.get(name, ABSENT)
        if old is not new and name not in ignored and not raw.same(old, new):
            yield Change(owner, name, old, new)
    for name, old in before.items():
        if name not in now and name not in ignored:
            yield Change(owner, name, old, ABSENT)


def _of_entries(owner: Owner, now: list[tuple[Any, Any]]) -> Iterator[Change]:
    before: list[tuple[Any, Any]] = owner.contents
    if len(before) == len(now) and all(a is c and b is d for (a, b), (c, d) in zip(before, now, strict=True)):
        return
    old = {raw.identity(key): (key, value) for key, value in before}
    new = {raw.identity(key): (key, value) for key, value in now}
    for identity, (key, value) in new.items():
        was = old.get(identity, (key, ABSENT))[1]
        if not raw.same(was, value):
            yield Change(owner, key, was, value)
    for identity, (key, value) in old.items():
        if identity not in new:
            yield Change(owner, key, value, ABSENT)


def _is_submodule(owner: Owner, change: Change) -> bool:
    """What the import system does when a submodule is imported, or a lazy module when it is asked."""
    return raw.is_module(change.new) and raw.module_name(change.new).startswith(f"{owner.path}.")


def _is_definition(path: str) -> bool:
    """Whether the module of `module.name` does more with the name than import it."""
    module, _, name = path.rpartition(".")
    file = raw.module_dict(sys.modules[module]).get("__file__") if module in sys.modules else None
    if type(file) is not str or not file.endswith(".py"):
        return True  # of a native module, or an attribute of a class
    return name in _stored_names(file)


@functools.lru_cache(maxsize=256)
def _stored_names(file: str) -> frozenset[str]:
    """The names that a source file assigns somewhere."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError):
        return frozenset()
    return frozenset(node.id for node in ast.walk(tree) if type(node) is ast.Name and type(node.ctx) is ast.Store)


def _is_container(value: Any) -> bool:
    return raw.is_a(value, dict, list, set)


def container_kind(value: Any) -> OwnerKind:
    """The kind of a container."""
    return "mapping" if raw.is_a(value, dict) else "set" if raw.is_a(value, set) else "sequence"


def _inside(function: types.FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(function, name) for name in raw.INNER}
    if found["__kwdefaults__"] is not None:
        found["__kwdefaults__"] = tuple(found["__kwdefaults__"].items())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        found[f"closure {name}"] = raw.cell(cell)
    return found


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:
        return ABSENT


def _python_states() -> dict[str, Callable[[], Any]]:
    states: dict[str, Callable[[], Any]] = {"sys.gettrace()": sys.gettrace, "sys.getprofile()": sys.getprofile}
    for number in signal.valid_signals():
        name = number.name if isinstance(number, signal.Signals) else str(number)
        states[f"signal.getsignal({name})"] = lambda number=number: signal.getsignal(number)  # type: ignore[misc]
    return states
