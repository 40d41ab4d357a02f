"""From the text of a target to the place that is written.

`torch.nn.Module.share_memory` is a dotted path, `torch.nn:Module.share_memory` says where the module ends. The last
name is always an attribute of what the rest names: `torch.nn.parallel.data_parallel` is the function, although there is
a submodule of that name. `copyreg.dispatch_table[re.Pattern]` is an entry of a mapping, whose key is a literal or a
dotted path or a tuple of these. `aten::add.Tensor/PrivateUse1` is a kernel of torch's dispatcher.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Hashable, MutableMapping
from types import ModuleType
from typing import NamedTuple

from unpatch.errors import said
from unpatch.patches.errors import TargetNotFoundError, WriteRefusedError
from unpatch.patches.places import Attribute, Entry, Place

_KERNEL = re.compile(r"(\w+::\w+(?:\.\w+)?)/(\w+)")
_SIGNS: dict[type, int] = {ast.UAdd: 1, ast.USub: -1}


class Parts(NamedTuple):
    """A target taken apart: `module` is empty for a dotted path, `keys` are the expressions in brackets."""

    module: str
    names: tuple[str, ...]
    keys: tuple[ast.expr, ...] = ()


def parse(target: str) -> Parts | re.Match[str]:
    """Take a target apart; a kernel's is a match of its operator and its key.

    Raises ValueError when the text is no target.
    """
    if kernel := _KERNEL.fullmatch(target):
        return kernel
    path, bracket, rest = target.partition("[")
    module, colon, path = path.rpartition(":")
    names = tuple(path.split("."))
    keys = _keys(bracket + rest) if bracket else ()
    complete = all(module.split(".")) if colon else len(names) > 1
    if keys is None or not complete or not all(name.isidentifier() for name in names):
        raise ValueError(
            f"{target!r} is no target: write 'package.module.Class.attribute', or 'package.module:Class.attribute', "
            "'package.module.TABLE['key']' for an entry of a mapping, 'aten::add.Tensor/CPU' for a kernel"
        )
    return Parts(module, names, keys)


def dotted(target: str) -> str:
    """A target without the mark of where its module ends, for comparing two."""
    path, bracket, keys = target.partition("[")
    return re.sub(r"(?<!:):(?!:)", ".", path) + bracket + keys


def locate(target: str) -> Place:
    """Find the place that a target names, importing modules as necessary.

    Raises TargetNotFoundError when what should hold it does not exist, WriteRefusedError when that is neither module nor
    class nor, for an entry, a mapping that can be written.
    """
    parts = parse(target)
    if isinstance(parts, re.Match):
        return _kernel(target, *parts.groups())
    module, names, keys = parts
    if keys:
        return _entry(target, module, names, keys)
    parent = _named(target, module, names[:-1])
    if not isinstance(parent, ModuleType | type):
        raise WriteRefusedError(
            f"target {target!r} is an attribute of an instance of {type(parent).__qualname__}; "
            "patch an attribute of a module or of a class"
        )
    return Attribute(parent, names[-1])


def _kernel(target: str, operator: str, key: str) -> Place:
    if _import(target, "torch") is None:
        raise TargetNotFoundError(f"target {target!r}: there is no module 'torch'")
    from unpatch.patches.registrations import Registration

    return Registration(operator, key)


def _entry(target: str, module: str, names: tuple[str, ...], keys: tuple[ast.expr, ...]) -> Place:
    found = _named(target, module, names)
    text = dotted(target)
    *outer, last = [_key(target, key) for key in keys]
    for key in outer:
        try:
            found = found[key]  # type: ignore[index]  # whatever is no mapping raises
        except Exception as error:
            raise TargetNotFoundError(f"target {target!r}: there is no entry {key!r} on the way") from error
    if not isinstance(found, MutableMapping):
        raise WriteRefusedError(
            f"target {target!r} is an entry of an object of type {type(found).__qualname__}; "
            "patch an entry of a mapping that can be written"
        )
    return Entry(found, last, text)


def _keys(brackets: str) -> tuple[ast.expr, ...] | None:
    """The expressions of `[a][b]`, or None if that is not what it is or if one of them is no key."""
    try:
        node = ast.parse(f"_{brackets}", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    keys: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        keys.insert(0, node.slice)
        node = node.value
    return tuple(keys) if isinstance(node, ast.Name) and node.id == "_" and all(map(_is_key, keys)) else None


def _is_key(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_is_key, node.elts))
    if isinstance(node, ast.UnaryOp):
        return type(node.op) in _SIGNS and isinstance(node.operand, ast.Constant) and _is_number(node.operand.value)
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Name):
            return True
    return isinstance(node, ast.Constant) and node.value is not Ellipsis


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(target: str, node: ast.expr) -> Hashable:
    if isinstance(node, ast.Tuple):
        return tuple(_key(target, element) for element in node.elts)
    if isinstance(node, ast.Constant | ast.UnaryOp):
        value: Hashable = ast.literal_eval(node)
        return value
    *path, name = ast.unparse(node).split(".")
    parent = _named(target, "", tuple(path))
    try:
        found: Hashable = getattr(parent, name)
    except AttributeError as error:
        raise TargetNotFoundError(f"target {target!r}: {'.'.join(path)!r} has no attribute {name!r}") from error
    return found


def _named(target: str, module: str, path: tuple[str, ...]) -> object:
    """What a path names, from `module` on or, where that is empty, from the longest module on that the path begins with."""
    return _explicit_parent(target, module, path) if module else _dotted_parent(target, path)


def _explicit_parent(target: str, module: str, names: tuple[str, ...]) -> object:
    start = _import(target, module)
    if start is None:
        raise TargetNotFoundError(f"target {target!r}: there is no module {module!r}")
    return _walk(target, start, module, names)


def _dotted_parent(target: str, path: tuple[str, ...]) -> object:
    # The longest module first: a submodule may be shadowed, as an attribute of its package, by what it defines.
    failure: TargetNotFoundError | None = None
    for length in range(len(path), 0, -1):
        name = ".".join(path[:length])
        module = _import(target, name)
        if module is None:
            continue
        try:
            return _walk(target, module, name, path[length:])
        except TargetNotFoundError as error:
            failure = failure or error  # the first got furthest, so it says most
    raise failure or TargetNotFoundError(f"target {target!r}: there is no module {path[0]!r}")


def _import(target: str, name: str) -> object | None:
    """The module of that name, or None when there is none; a module that fails to import is an error."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            return None
        raise TargetNotFoundError(f"target {target!r}: importing {name!r} failed with {said(error)}") from error


def _walk(target: str, start: object, where: str, names: tuple[str, ...]) -> object:
    found = start
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise TargetNotFoundError(f"target {target!r}: {where!r} has no attribute {name!r}") from error
        where = f"{where}.{name}"
    return found
