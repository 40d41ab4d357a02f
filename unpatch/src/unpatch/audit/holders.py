"""Who else holds a value: a `from x import f` taken before the patch, a default, a cell, an attribute of a live instance.

Found through the garbage collector's references, so nothing that is looked at runs.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

from unpatch.audit import raw
from unpatch.audit.records import Copy

_MOST = 50  #: holders of one value that are listed
_LARGE = 10_000  #: entries of a mapping, above which it is no class and no instance


def holders(values: Iterable[Any], without: Iterable[Any] = ()) -> dict[int, tuple[Copy, ...]]:
    """Identity of each value -> who holds it.

    Args:
        values: functions and classes; anything else has too many holders to mean something.
        without: (identity of the value, `module.name` or `class.name`) pairs that are the patched places themselves.
    """
    wanted = {id(value): value for value in values if raw.is_code(value)}
    if not wanted:
        return {}
    places = set(without)
    found: dict[int, list[Copy]] = {identity: [] for identity in wanted}

    def add(value: Any, where: str, module: str) -> None:
        kept = found[id(value)]
        copy = Copy(where, raw.top(module))
        if (id(value), where) not in places and copy not in kept and len(kept) < _MOST:
            kept.append(copy)

    for name, module in sorted(sys.modules.items()):
        if raw.is_module(module) and not name.startswith("unpatch"):
            for attribute, value in list(raw.module_dict(module).items()):
                if id(value) in wanted and raw.origin(value) != name:
                    add(value, f"{name}.{attribute}", name)
    defaults: dict[int, Any] = {}
    for referrer in gc.get_referrers(*wanted.values()):
        kind = type(referrer)
        if kind in (tuple, types.CellType) or (kind is dict and len(referrer) <= _LARGE):
            defaults[id(referrer)] = referrer
        elif kind is types.MethodType:
            if id(referrer.__func__) in wanted:
                add(referrer.__func__, "a bound method", raw.origin(referrer))
        else:
            _of_attributes(referrer, wanted, add)
    for holder in gc.get_referrers(*defaults.values()) if defaults else ():
        if raw.is_class(holder):
            for attribute, value in raw.class_dict(holder).items():
                if id(value) in wanted and raw.origin(value) != raw.class_module(holder):
                    add(value, f"{raw.class_path(holder)}.{attribute}", raw.class_module(holder))
        elif type(holder) is types.FunctionType:
            name = f"{raw.origin(holder)}.{holder.__qualname__}"
            for value in holder.__defaults__ or ():
                if id(value) in wanted:
                    add(value, f"a default of {name}", raw.origin(holder))
        elif type(holder) is tuple:  # the closure of a function
            for function in gc.get_referrers(holder):
                if type(function) is types.FunctionType and function.__closure__ is holder:
                    for cell in holder:
                        value = raw.cell(cell)
                        if id(value) in wanted:
                            where = f"the closure of {raw.origin(function)}.{function.__qualname__}"
                            add(value, where, raw.origin(function))
        else:
            _of_attributes(holder, wanted, add)
    return {identity: tuple(copies) for identity, copies in found.items()}


def _of_attributes(holder: Any, wanted: dict[int, Any], add: Callable[[Any, str, str], None]) -> None:
    """What an instance has among its attributes."""
    kind = type(holder)
    if raw.is_module(holder) or kind is types.FunctionType or raw.top(raw.class_module(kind)) == "unpatch":
        return
    for attribute, value in list((raw.instance_dict(holder) or {}).items()):
        if id(value) in wanted:
            add(value, f"an instance of {raw.class_path(kind)}: .{attribute}", raw.class_module(kind))
