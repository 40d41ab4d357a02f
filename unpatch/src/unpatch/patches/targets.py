"""From the text of a target to the place that is written: a module or class, and the name of one of its attributes.

`torch.nn.Module.share_memory` is a dotted path, `torch.nn:Module.share_memory` says where the module ends. The last
name is always an attribute of what the rest names: `torch.nn.parallel.data_parallel` is the function, although there is
a submodule of that name.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple

from unpatch.patches.errors import TargetNotFoundError, WriteRefusedError


class Location(NamedTuple):
    """Where an attribute lives. The attribute itself need not exist (yet)."""

    parent: ModuleType | type
    name: str


def parse(target: str) -> tuple[str, tuple[str, ...]]:
    """Split a target into its module (empty for a dotted path) and the names that follow.

    Raises ValueError when the text is no target.
    """
    module, colon, path = target.rpartition(":")
    names = tuple(path.split("."))
    complete = all(module.split(".")) if colon else len(names) > 1
    if not complete or not all(name.isidentifier() for name in names):
        raise ValueError(
            f"{target!r} is no target: write 'package.module.Class.attribute', or 'package.module:Class.attribute'"
        )
    return module, names


def locate(target: str) -> Location:
    """Find the parent of a target, importing modules as necessary.

    Raises TargetNotFoundError when the parent does not exist, WriteRefusedError when it is neither module nor class.
    """
    module, names = parse(target)
    parent = _explicit_parent(target, module, names[:-1]) if module else _dotted_parent(target, names[:-1])
    if not isinstance(parent, ModuleType | type):
        raise WriteRefusedError(
            f"target {target!r} is an attribute of an instance of {type(parent).__qualname__}; "
            "patch an attribute of a module or of a class"
        )
    return Location(parent, names[-1])


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
        raise TargetNotFoundError(
            f"target {target!r}: importing {name!r} failed with {type(error).__name__}: {error}"
        ) from error


def _walk(target: str, start: object, where: str, names: tuple[str, ...]) -> object:
    found = start
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError as error:
            raise TargetNotFoundError(f"target {target!r}: {where!r} has no attribute {name!r}") from error
        where = f"{where}.{name}"
    return found
