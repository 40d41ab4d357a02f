"""Metadata of a trace in the spelling that torch's writer of traces can take.

The writer puts keys into the file as they are, so JSON's escapes keep them exactly. In values it replaces every backslash,
escapes included, so what JSON must escape is shown by look-alikes: compatible characters (NFKC turns them back) and Unicode's
pictures of control characters.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LOOK_ALIKES = {ord('"'): "\uff02", ord("\\"): "\uff3c"} | {code: chr(0x2400 + code) for code in range(32)}
_ALTERED = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARK = " (metadata)"
#: Keys that the writer itself puts beside the metadata.
RESERVED = frozenset(
    {"schemaVersion", "deviceProperties", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName"}
)


def plain(text: str) -> str:
    """`text` without what must be escaped in JSON or cannot be UTF-8; itself where it has none. Idempotent."""
    if not _ALTERED.search(text):
        return text
    return _SURROGATE.sub("\ufffd", text.translate(_LOOK_ALIKES))


def key(text: str) -> str:
    """The key as it goes between quotes; one of the writer's own gets a mark, as a reader would see only one of the two."""
    if text.replace(_MARK, "") in RESERVED:
        text += _MARK
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False)[1:-1])


def value(text: str) -> tuple[str, int]:
    """A JSON value that the writer shows as it is meant, and how many of its texts had to be altered.

    A value without a backslash passes byte for byte. What is no JSON (nor are NaN and Infinity) becomes a text.
    """
    try:
        tree = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_no_constant
        )
        if "\\" not in text and not _SURROGATE.search(text):
            return text, 0
        count = _Count()
        return _dump(tree, count), count.altered
    except (ValueError, RecursionError):
        return f'"{plain(text)}"', 1


class _Pairs(list[tuple[str, Any]]):
    """An object's members, in order."""


class _Number(str):
    """A number as it was spelled."""


class _Count:
    altered = 0


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _text(text: str, count: _Count) -> str:
    shown = plain(text)
    count.altered += shown != text
    return shown


def _dump(tree: Any, count: _Count) -> str:
    if isinstance(tree, _Number):
        return str(tree)
    if isinstance(tree, str):
        return f'"{_text(tree, count)}"'
    if isinstance(tree, _Pairs):
        members: dict[str, str] = {}
        names: dict[str, str] = {}  # by key as given: a repeated key is one key
        # Those that pass as they are keep their names; the others make way.
        for name in sorted(dict(tree), key=lambda name: plain(name) != name):
            names[name] = _free(_text(name, count), set(names.values()))
        for name, member in tree:
            members[names[name]] = _dump(member, count)
        return "{" + ", ".join(f'"{name}": {member}' for name, member in members.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(_dump(item, count) for item in tree) + "]"
    return json.dumps(tree)


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free
