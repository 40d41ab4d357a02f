"""Whether whoever may call the original may call the replacement in the same way.

Not by rules about parameters: the calls that the original takes are made up, and tried on the replacement's signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_KINDS = {"function": "a plain function", "staticmethod": "a static method", "classmethod": "a class method"}


def incompatibility(original: Any, replacement: Any, of_class: bool) -> str:
    """A call that the original takes and the replacement does not, in words; empty if there is none.

    Empty too where either has no signature that Python knows, as functions written in C often have not. `of_class`: both
    lie in a class, so that a plain function is handed its object first.
    """
    if isinstance(original, property):
        return "" if hasattr(type(replacement), "__get__") else "the original is a property, the replacement is not"
    if not _callable(original):
        return ""
    if not _callable(replacement):
        return "the original can be called, the replacement cannot"
    kinds = type(original).__name__, type(replacement).__name__
    if of_class and kinds[0] != kinds[1] and _KINDS.keys() >= {*kinds}:
        return f"the original is {_KINDS[kinds[0]]}, the replacement {_KINDS[kinds[1]]}"
    before, after = _signature(original), _signature(replacement)
    if before is None or after is None:
        return ""
    # A class that is called, or a static method, is handed nothing.
    return differs(before, after, of_class and not isinstance(original, staticmethod | type))


def differs(before: Signature, after: Signature, handed: bool = False) -> str:
    """A call that `before` takes and `after` does not, in words; `handed`: the first argument is never given by name."""
    for positional, named in _calls(before, after, handed):
        try:
            bound = after.bind(*positional, **named)
        except TypeError as error:
            return f"the original takes {_shown(positional, named)}, the replacement refuses: {error}"
        for name, value in bound.arguments.items():
            if name == value or after.parameters[name].kind not in _BY_POSITION:
                continue
            had = before.parameters.get(name)
            if had is not None and had.kind in _BY_NAME and not (handed and positional[:1] == (value,)):
                return f"in {_shown(positional, named)}, the replacement takes {value!r} for {name!r}"
    return ""


def _calls(signature: Signature, other: Signature, handed: bool) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """Calls that a signature takes, each argument being the name of its parameter: with as few arguments as possible,
    with each optional one alone, and with all of them, for every number of arguments by position.

    Where it takes any number or any name, as many as `other` might stumble over.
    """
    parameters = list(signature.parameters.values())
    places = [each for each in parameters if each.kind in _BY_POSITION]
    by_name = [each for each in parameters if each.kind in _BY_NAME]
    kinds = {each.kind for each in parameters}
    further = [f"*{n}" for n in range(len(other.parameters) + 1)] if Parameter.VAR_POSITIONAL in kinds else []
    named_elsewhere = [name for name in other.parameters if name not in {each.name for each in by_name}]
    any_names = ["another_argument", *named_elsewhere] if Parameter.VAR_KEYWORD in kinds else []
    for count in range(int(handed), len(places) + len(further) + 1):
        positional = tuple([*(each.name for each in places), *further][:count])
        rest = [each for each in by_name if each not in places[:count]]
        required = [each.name for each in rest if each.default is Parameter.empty]
        optional = [*(each.name for each in rest if each.default is not Parameter.empty), *any_names]
        for some in ([], *([name] for name in optional), optional):
            named = {name: name for name in (*required, *some)}
            try:
                signature.bind(*positional, **named)
            except TypeError:
                continue
            yield positional, named


def _shown(positional: tuple[str, ...], named: Mapping[str, str]) -> str:
    return f"({', '.join([*positional, *(f'{name}=…' for name in named)])})"


def _callable(value: object) -> bool:
    return callable(value) or isinstance(value, staticmethod | classmethod)


def _signature(value: Any) -> Signature | None:
    try:
        return inspect.signature(value.__func__ if isinstance(value, staticmethod | classmethod) else value)
    except (TypeError, ValueError):
        return None
