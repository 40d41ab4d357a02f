"""What a replacement consists of: its own code objects and those of the helpers it names in the same file.

A patch's condition often sits in a helper next to it, so calls alone do not tell whether the patch did anything.
"""

from __future__ import annotations

import linecache
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from unpatch.observe.branches import Branches, Function, Span, conditional_statements, functions_by_position
from unpatch.observe.text import short_path


@dataclass(frozen=True)
class OwnCode:
    """One function of a replacement."""

    code: CodeType
    branches: Branches


def own_code(function: Callable[..., Any], home: str = "") -> tuple[OwnCode, ...]:
    """The functions that make up `function`: itself, those nested in it, and helpers of its file that it names.

    `home` is the file that declares the patch, which tells a wrapper around the original (`functools.wraps`) from a
    replacement inside a decorator. Where the source cannot be read there are code objects but no branches.
    """
    replacement = _own_function(function, home)
    file = replacement.__code__.co_filename
    found: dict[int, CodeType] = {}
    seen: set[int] = set()
    waiting = [f for f in _wrapped_chain(function) if f.__code__.co_filename == file]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        codes = list(_nested(current.__code__))
        found.update((id(code), code) for code in codes)
        names = {name for code in codes for name in code.co_names}
        for value in _named(current, names):
            waiting += _functions_of(value, names, file)
    return tuple(OwnCode(code, _branches(code, code is replacement.__code__)) for code in found.values())


def own_code_in(replacement: object, home: str = "") -> tuple[OwnCode, ...]:
    """`own_code` of all functions in `replacement`, a function or what holds some; nothing for anything else."""
    kind = type(replacement)
    if kind is FunctionType:
        return own_code(replacement, home)  # type: ignore[arg-type]
    held: tuple[object, ...] = ()
    if kind in (staticmethod, classmethod):
        held = (replacement.__func__,)  # type: ignore[attr-defined]
    elif kind is property:
        held = (replacement.fget, replacement.fset, replacement.fdel)  # type: ignore[attr-defined]
    elif kind is partial:
        held = (replacement.func,)  # type: ignore[attr-defined]
    return tuple(own for one in held for own in own_code_in(one, home))


def branch_places(own: Iterable[OwnCode], root: Path | None) -> dict[tuple[str, Span], str]:
    """A name for each branch of some functions, by file and span: `file:line`, with the column where lines are shared.

    Both the declaration of a patch and what a trial saw of it name branches so, and can be compared.
    """
    spans = {(one.code.co_filename, span) for one in own for span in one.branches.spans}
    lines = Counter((file, span.start[0]) for file, span in spans)
    return {
        (file, span): f"{short_path(file, root)}:{span.start[0]}"
        + (f":{span.start[1] + 1}" if lines[file, span.start[0]] > 1 else "")
        for file, span in sorted(spans)
    }


def _own_function(function: Callable[..., Any], home: str) -> FunctionType:
    """The function that is the patch's own among those that decorators put around each other.

    It is the innermost of the file that declares the patch, or of its folder; and below decorators of other places, the
    innermost of all.
    """
    chain = [*_wrapped_chain(function)]
    at_home = [f for f in chain if f.__code__.co_filename == home]
    nearby = [f for f in chain if home and os.path.dirname(f.__code__.co_filename) == os.path.dirname(home)]
    return (at_home or nearby or chain)[-1]


def _wrapped_chain(function: Any) -> Iterator[FunctionType]:
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        if isinstance(function, FunctionType):
            yield function
        function = getattr(function, "__wrapped__", None)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _named(function: FunctionType, names: set[str]) -> Iterator[Any]:
    """What `function` refers to: globals it names, what its cells hold, and the class that it is a method of."""
    for name in names:
        if name in function.__globals__:
            yield function.__globals__[name]
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
    owner: Any = function.__globals__.get(function.__qualname__.split(".")[0])
    if isinstance(owner, type):
        yield owner


def _functions_of(value: Any, names: set[str], file: str) -> Iterator[FunctionType]:
    """The functions of `file` that are `value`, or methods of `value` (a class or an instance) that `names` mention."""
    kind = type(value)  # not isinstance, which runs code of proxies
    if kind in (staticmethod, classmethod, MethodType):
        value = value.__func__
    elif kind is partial:
        value = value.func
    kind = type(value)
    if kind is FunctionType or hasattr(kind, "cache_info"):
        yield from (f for f in _wrapped_chain(value) if f.__code__.co_filename == file)
    elif not issubclass(kind, ModuleType | BuiltinFunctionType):
        for owner in (value if issubclass(kind, type) else kind).__mro__:
            for name, member in vars(owner).items():
                if name in names or (name.startswith("__") and name.endswith("__")):
                    yield from (f for f in _functions_of_member(member) if f.__code__.co_filename == file)


def _functions_of_member(member: Any) -> Iterator[FunctionType]:
    accessors = (member.fget, member.fset, member.fdel) if type(member) is property else (member,)
    for accessor in accessors:
        if type(accessor) in (FunctionType, staticmethod, classmethod):
            yield from _wrapped_chain(getattr(accessor, "__func__", accessor))


def _branches(code: CodeType, is_replacement: bool) -> Branches:
    function = _functions_in(code.co_filename).get((code.co_name, code.co_firstlineno))
    if function is None:  # a lambda, a comprehension, a class body, or no source
        return Branches((), False)
    found = conditional_statements(function, is_replacement)
    code_at = {(line, column or 0) for line, _, column, _ in code.co_positions() if line is not None}
    # Statements that the compiler left out (under `if False:`, say) can never run.
    return Branches(tuple(span for span in found.spans if any(map(span.holds, code_at))), found.crowded)


@lru_cache(maxsize=64)
def _functions_in(file: str) -> dict[tuple[str, int], Function]:
    try:
        return functions_by_position("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
