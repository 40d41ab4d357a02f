"""Looking at objects without running a line of theirs: `type()` and raw `__dict__`, never `isinstance` or `getattr`.

A lazy module, a proxy or a metaclass may do anything when it is asked for an attribute, and the audit must not change what it
looks at.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from unpatch.audit.records import Value

ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda self: "<absent>"})()

_class_dict: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_module_dict: Any = types.ModuleType.__dict__["__dict__"].__get__  # type: ignore[index]
_bases: Callable[[type], tuple[type, ...]] = type.__dict__["__bases__"].__get__
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_flags: Callable[[type], int] = type.__dict__["__flags__"].__get__
_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__

_PRIMITIVE = (str, int, float, bool, bytes, complex, type(None), type(Ellipsis))
_C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
#: The attributes of a function that decide what it does.
INNER = ("__code__", "__defaults__", "__kwdefaults__")
_UNWRAPPED = frozenset(
    map(id, (types.FunctionType, type, types.ModuleType, dict, list, set, *_PRIMITIVE, *_C_FUNCTIONS))
)
#: Identities of classes whose objects contain nothing to be written.
LEAVES = frozenset(map(id, (*_PRIMITIVE, *_C_FUNCTIONS)))
_TEXT = 90  #: characters of a plain value that are shown


def is_a(value: object, *kinds: type) -> bool:
    """Whether the real class of `value` is one of `kinds`, whatever its `__class__` says."""
    return issubclass(type(value), kinds)


def is_subclass(kind: type, *bases: type) -> bool:
    """Whether a class inherits from one of `bases`, without asking its metaclass."""
    return any(base in _mro(kind) for base in bases)


def is_module(value: object) -> bool:
    return types.ModuleType in _mro(type(value))


def is_class(value: object) -> bool:
    return type in _mro(type(value))


def module_dict(module: types.ModuleType) -> dict[str, Any]:
    return _module_dict(module)


def class_dict(kind: type) -> Any:
    return _class_dict(kind)


def bases(kind: type) -> tuple[type, ...]:
    return _bases(kind)


def inherited(kind: type, name: str) -> object:
    """What `kind` would have of `name` without its own, or ABSENT."""
    for base in _mro(kind)[1:]:
        found = _class_dict(base).get(name, ABSENT)
        if found is not ABSENT:
            return found
    return ABSENT


def base_packages(kind: type) -> set[str]:
    """The top-level packages that a class inherits from."""
    return {top(class_module(base)) for base in _mro(kind)[1:]}


def instance_dict(value: object) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(value, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def names(value: object) -> Any:
    """The names of a module, a class or an instance with what they stand for; empty where there are none."""
    if is_module(value):
        return module_dict(value)  # type: ignore[arg-type]
    if is_class(value):
        return class_dict(value)  # type: ignore[arg-type]
    found = instance_dict(value)
    return {} if found is None else found


def own(owner: Any, name: str) -> Any:
    """What the owner itself has of that name, or ABSENT."""
    if type(owner) is types.FunctionType and name in INNER:
        return getattr(owner, name)
    if name == "__bases__" and is_class(owner):
        return bases(owner)
    if name == "__class__" and is_module(owner):
        return type(owner)
    return names(owner).get(name, ABSENT)


def entries(container: Any) -> list[Any]:
    """The (key, value) pairs of a mapping or the items of a list or set, by the methods of the built-in class."""
    for attempt in range(3):
        try:
            if is_a(container, dict):
                return list(dict.items(container))
            return list(set.__iter__(container) if is_a(container, set) else list.__iter__(container))
        except RuntimeError:  # another thread changed it meanwhile
            if attempt == 2:
                raise
    raise AssertionError


def cell(cell: types.CellType) -> Any:
    """What a closure's cell holds, or ABSENT."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def module_name(module: types.ModuleType) -> str:
    name = _module_dict(module).get("__name__")
    return name if type(name) is str else ""


def class_module(kind: type) -> str:
    name = _class_dict(kind).get("__module__")
    if type(name) is str:
        return name
    return "builtins" if not _flags(kind) & (1 << 9) else ""  # Py_TPFLAGS_HEAPTYPE: a static type says nothing


def class_qualname(kind: type) -> str:
    return _qualname(kind)


def class_path(kind: type) -> str:
    return f"{class_module(kind)}.{_qualname(kind)}"


def top(name: str) -> str:
    """The top-level package of a dotted name."""
    return name.partition(".")[0]


def function_of(value: object) -> object:
    """The function inside a descriptor, a bound method, a partial or a proxy of wrapt."""
    for _ in range(8):
        kind = type(value)
        if id(kind) in _UNWRAPPED:
            return value
        known = _wrapping.get(id(kind))
        if known is None or known[0] is not kind:
            known = _wrapping[id(kind)] = (kind, _how_it_wraps(kind))
        how = known[1]
        if not how:
            return value
        try:
            value = object.__getattribute__(value, how)
        except AttributeError:
            return value
    return value


def is_wrapt(value: object) -> bool:
    """A function wrapped by wrapt."""
    return _how_it_wraps(type(value)) == "_self_wrapper"


def _how_it_wraps(kind: type) -> str:
    """The attribute in which objects of a class keep a function, or nothing."""
    for base in _mro(kind):
        if base in (staticmethod, classmethod, types.MethodType):
            return "__func__"
        if base is property:
            return "fget"
        if base in (functools.partial, functools.partialmethod):
            return "func"
        # The native module of wrapt says `_wrappers` of its classes.
        if _name(base) in ("FunctionWrapper", "_FunctionWrapperBase") and top(class_module(base)) in (
            "wrapt",
            "_wrappers",
        ):
            return "_self_wrapper"
    return ""


#: By identity: a metaclass may have its own idea of a hash.
_wrapping: dict[int, tuple[type, str]] = {}


def is_primitive(value: object) -> bool:
    """Plain data, whose identity says nothing."""
    if type(value) in (tuple, frozenset):
        return all(is_primitive(item) for item in value)  # type: ignore[attr-defined]
    return type(value) in _PRIMITIVE


def same(old: Any, new: Any) -> bool:
    """The same object, plain data that is equal, or tuples of the same things."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if type(old) is tuple:
        return len(old) == len(new) and all(map(same, old, new))
    return is_primitive(old) and is_primitive(new) and old == new


def is_code(value: object) -> bool:
    """A function, or what holds one, or a class: behaviour, not data."""
    return is_class(value) or type(function_of(value)) in (types.FunctionType, *_C_FUNCTIONS)


def identity(key: object) -> Any:
    """A key by what it is, without asking it: tuples by their parts, plain data by value, all else by identity."""
    if type(key) is tuple:
        return tuple(map(identity, key))
    return (type(key), key) if is_primitive(key) else id(key)


def origin(value: object) -> str:
    """The module that a value comes from, or nothing for plain data."""
    value = function_of(value)
    if type(value) is types.FunctionType:
        name = value.__globals__.get("__name__")
        return name if type(name) is str else ""
    if type(value) is types.CodeType:
        return module_of_file(value.co_filename)
    if is_class(value):
        return class_module(value)  # type: ignore[arg-type]
    if is_module(value):
        return module_name(value)  # type: ignore[arg-type]
    if is_primitive(value):
        return ""
    if type(value) in (tuple, list, set, frozenset):
        names = [origin(item) for item in value]  # type: ignore[attr-defined]
        return next((name for name in names if name and top(name) != "builtins"), "")
    if type(value) in _C_FUNCTIONS:
        name = getattr(value, "__module__", None) or class_module(getattr(value, "__objclass__", type))
        return name if type(name) is str else ""
    name = class_module(type(value))
    return "" if name == "builtins" else name


def module_of_file(file: str) -> str:
    """The name of the loaded module that a file is the source of, or nothing."""
    return _modules_by_file(len(sys.modules)).get(file, "")


@functools.lru_cache(maxsize=1)
def _modules_by_file(loaded: int) -> dict[str, str]:
    """File -> module; `loaded` says when to look again."""
    found: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if is_module(module):
            file = module_dict(module).get("__file__")
            if type(file) is str:
                found.setdefault(file, name)
    return found


def short(file: str) -> str:
    """A file as its package names it: relative to the entry of `sys.path` that it lies under."""
    for folder in sorted({entry for entry in sys.path if entry}, key=len, reverse=True):
        if file.startswith(folder.rstrip("/") + "/"):
            return file[len(folder.rstrip("/")) + 1 :]
    return file.rpartition("/")[2] if file.startswith("/") else file


def describe(value: object) -> Value:
    """A value in words."""
    package = top(origin(value))
    inner = function_of(value)
    kind = _name(type(value))
    if type(inner) is types.FunctionType:
        text = f"{_of(inner.__globals__.get('__name__'))}.{inner.__qualname__}"
        text = text if value is inner else f"{kind} of {text}"
        defined = f"{short(inner.__code__.co_filename)}:{inner.__code__.co_firstlineno}"
        return Value(text, defined, package, importable(value))
    if type(inner) is types.CodeType:
        return Value(f"code of {inner.co_qualname}", f"{short(inner.co_filename)}:{inner.co_firstlineno}", package)
    if is_class(inner):
        return Value(f"class {class_path(inner)}", class_module(inner), package, importable(value))  # type: ignore[arg-type]
    if is_module(inner):
        name = module_name(inner)  # type: ignore[arg-type]
        return Value(f"module {name}", name, package)
    if type(inner) in _C_FUNCTIONS:
        owner = getattr(inner, "__objclass__", None)
        name = f"{class_path(owner)}." if is_class(owner) else ""  # type: ignore[arg-type]
        return Value(f"{name}{getattr(inner, '__name__', kind)} (C)", origin(inner), package)
    if is_primitive(inner):
        text = repr(inner)
        return Value(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…", "", package)
    if type(inner) in (tuple, list, set, frozenset, dict, collections.OrderedDict):
        return Value(f"{kind} of {len(inner)}", origin(inner), package)  # type: ignore[arg-type]
    return Value(f"a {class_path(type(inner))}", class_module(type(inner)), package)


def importable(value: object) -> str:
    """`module:name` under which the module that a value comes from has it, or nothing."""
    home = origin(value)
    module = sys.modules.get(home)
    for name, found in list(module_dict(module).items()) if module is not None and is_module(module) else ():
        if found is value:
            return f"{home}:{name}"
    return ""


def key_text(key: object) -> str:
    """A key of a mapping as it stands in a target: a literal, a dotted path, a tuple of these."""
    if type(key) is tuple:
        return f"({', '.join(map(key_text, key))}{',' if len(key) == 1 else ''})"
    if is_primitive(key):
        return repr(key)
    if is_class(key):
        path = class_path(key)  # type: ignore[arg-type]
        return path.removeprefix("builtins.")
    if type(key) is types.FunctionType:
        return f"{_of(key.__module__)}.{key.__qualname__}"
    if is_module(key):
        return module_name(key)  # type: ignore[arg-type]
    return f"<{class_path(type(key))}>"


def _of(name: object) -> str:
    return name if type(name) is str else "?"


def stack_of(frame: types.FrameType | None, limit: int = 20) -> Iterator[types.FrameType]:
    """Frames from `frame` outwards, without the import system's and our own."""
    while frame is not None and limit:
        name = frame.f_globals.get("__name__")
        if name == "unpatch.audit.activate":
            return  # from here on outwards it is us
        if not (type(name) is str and (name.startswith(("importlib", "unpatch.audit")) or "frozen" in name)):
            yield frame
            limit -= 1
        frame = frame.f_back
