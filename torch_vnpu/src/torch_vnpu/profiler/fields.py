"""The fields of an event: what they must be for anyone to use them. A file may have anything there that JSON can say."""

from __future__ import annotations

from typing import Any

from torch_vnpu.profiler.reading import text

Lane = tuple[Any, Any]  #: process and thread, as they are in the file
#: Microseconds; the end of a slice, in nanoseconds, must be a number of 64 bits.
_MOST = 2**62 / 1000
# Not int | float: a union is made anew at each of millions of calls.
_NUMBERS, _PARTS = (int, float), (list, dict)


class FieldError(ValueError):
    """A field of an event is missing, or not what it must be."""


def time(event: dict[str, Any], field: str = "ts", default: Any = None) -> int:
    """Nanoseconds; the file has microseconds. Raises FieldError."""
    value = event.get(field, default)
    # In this order: a comparison takes numbers of any size, and says no to NaN.
    if not isinstance(value, _NUMBERS) or isinstance(value, bool) or not -_MOST < value < _MOST:
        raise FieldError(f"{_what(event)} has {_shown(value)} for its {field}, which is no time")
    return round(value * 1000)


def duration(event: dict[str, Any]) -> int:
    """Nanoseconds, 0 where there is none. Raises FieldError, for negative ones too."""
    length = time(event, "dur", 0)
    if length < 0:
        raise FieldError(f"{_what(event)} has {event['dur']} for its dur, which is no duration")
    return length


def word(event: dict[str, Any], field: str) -> Any:
    """A text, a number or None. Raises FieldError for what has parts."""
    value = event.get(field)
    if isinstance(value, _PARTS):
        raise FieldError(f"{_what(event)} has {_shown(value)} for its {field}, which is neither a text nor a number")
    return value


def lane(event: dict[str, Any]) -> Lane:
    """Raises FieldError."""
    return word(event, "pid"), word(event, "tid")


def name(event: dict[str, Any]) -> str:
    """Of a slice. Raises FieldError."""
    value = event.get("name")
    if not isinstance(value, str):
        raise FieldError(f"{_what(event)} has {_shown(value)} for its name, which is no text")
    return text(value)


def correlation(event: dict[str, Any]) -> int:
    """The number that a call and what it launched share; 0 where there is none."""
    arguments = event.get("args")
    number = arguments.get("correlation") if isinstance(arguments, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _what(event: dict[str, Any]) -> str:
    kind = event.get("name")
    return f"the event {_shown(kind)}" if isinstance(kind, str) else "an event without a name"


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(text(value[:60]) if isinstance(value, str) else value)[:60]
