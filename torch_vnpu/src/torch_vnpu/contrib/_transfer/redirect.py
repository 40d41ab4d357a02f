"""One maker for all functions that read a device by themselves: the original behind a translation of one argument.

The original is the one of the moment when the patch is declared. It is not looked up at each call: who has taken a copy of the
replacement (`from torch import zeros`) can go on using it when the patch is gone.
"""

from collections.abc import Callable
from typing import Any

from torch_vnpu.contrib._transfer import translate

#: What a replacement stands for, by its id; TorchScript knows torch's functions by identity.
ORIGINALS: dict[int, Any] = {}
_MISSING: Any = object()


def redirected(
    function: Callable[..., Any],
    keyword: str = "device",
    position: int | None = None,
    translation: Callable[[Any], Any] = translate.device,
    default: Any = _MISSING,
) -> Callable[..., Any]:
    """`function`, with the argument called `keyword` translated before it gets there.

    Args:
        position: where the argument may stand without its name; None where it may not.
        default: what is passed where the argument is left out; nothing by default.
    """

    def replacement(*arguments: Any, **settings: Any) -> Any:
        if keyword in settings:
            settings[keyword] = translation(settings[keyword])
        elif position is not None and len(arguments) > position:
            before, value, after = arguments[:position], arguments[position], arguments[position + 1 :]
            arguments = (*before, translation(value), *after)
        elif default is not _MISSING:
            settings[keyword] = default
        return function(*arguments, **settings)

    return _named(replacement, function)


def forwarded(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own that is `function` and stands in the place of `original`.

    One function under two names would have to be treated alike by all who treat functions by their names, as Dynamo does.
    """

    def replacement(*arguments: Any, **settings: Any) -> Any:
        return function(*arguments, **settings)

    return _named(replacement, original)


def _named(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    for name in ("__name__", "__qualname__", "__doc__"):
        setattr(replacement, name, getattr(original, name, None) or "")
    # Graphs that are printed as code find a function by its module and name, and so the one that is in force.
    replacement.__module__ = getattr(original, "__module__", None) or "torch"
    ORIGINALS[id(replacement)] = original
    return replacement
