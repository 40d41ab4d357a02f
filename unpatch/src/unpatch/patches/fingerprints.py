"""A fingerprint of what a patch replaces, by which a later change of it is noticed.

Of Python code it is that of the source text, decorators' wrappers and what they wrap included; of functions written in C
that of signature and documentation; of plain data that of the value; of an operator that of its schema.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import CodeType

from unpatch.patches.places import Place

_DIGITS = 12
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def fingerprint(value: object, place: Place | None = None) -> str:
    """The fingerprint of the `value` that lies at `place`: what it is of (`source:`, `signature:` and so on) and a hash."""
    schema = getattr(place, "schema", None)
    if schema is not None:
        return _hashed("schema", schema)
    sources = list(_sources(value))
    if sources and None not in sources:
        return _hashed("source", "\n".join(filter(None, sources)))
    if callable(value) or hasattr(type(value), "__get__"):
        return _hashed("signature", _signature(value))
    if isinstance(value, _PLAIN) or (isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value)):
        return _hashed("value", repr(value))
    # Of data that a program fills as it runs, only the kind can be compared.
    return _hashed("type", f"{type(value).__module__}.{type(value).__qualname__}")


def _hashed(kind: str, text: str) -> str:
    return f"{kind}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"


def _sources(value: object) -> Iterator[str | None]:
    """The texts that `value` is written in, None for one that cannot be read."""
    for part in parts(value):
        try:
            text = inspect.getsource(part)
        except (OSError, TypeError):
            yield None
        else:
            lines = textwrap.dedent(text).splitlines()
            yield "\n".join(line.rstrip() for line in lines).rstrip()


def parts(value: object) -> Iterator[type | CodeType]:
    """The code, or the class, that `value` consists of: through descriptors, partials and `functools.wraps`."""
    seen: set[int] = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, property):
            for function in (value.fget, value.fset, value.fdel):
                yield from parts(function)
            return
        if isinstance(value, functools.cached_property | functools.partial):
            value = value.func
            continue
        if isinstance(value, type):
            yield value
            return
        code = getattr(value, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        value = getattr(value, "__wrapped__", None) or getattr(value, "__func__", None)


def _signature(value: object) -> str:
    try:
        signature = str(inspect.signature(value))  # type: ignore[arg-type]  # TypeError says so
    except (TypeError, ValueError):
        signature = "unknown"
    described = "\n".join(
        (getattr(value, "__qualname__", type(value).__qualname__), signature, inspect.getdoc(value) or "")
    )
    return re.sub(r" at 0x[0-9a-fA-F]+", "", described)
