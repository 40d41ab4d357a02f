"""Rescues a chrome trace that is no JSON: quotes and control characters that were not escaped, an end that is missing.

Events that can be read are copied byte for byte. A broken one reaches to where the next begins; there a quote ends a string
only where what follows can follow a string. What cannot be rescued is left out, and counted.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torch_vnpu.profiler.reading import opened

_WINDOW = 1 << 22  #: bytes; the longest event that is rescued
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_NEXT = re.compile(r'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"\s*:)|\}\s*(?=\])|\}\s*\Z')
#: What can stand behind the end of a string.
_AFTER = re.compile(r'\s*(?::|\}|\]|,\s*(?:"|\{|\[|-?\d|true\b|false\b|null\b)|\Z)')
_SPACE = re.compile(r"[\s,]*")
_CONSTANT = re.compile(r"-?Infinity\b|NaN\b")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')


@dataclass
class Repair:
    """What became of the events."""

    events: int = 0
    repaired: int = 0
    lost: int = 0
    cut: bool = False  #: the end was missing
    metadata: bool = False  #: what is around the events had to be changed


def escaped(broken: str) -> str:
    """JSON with its strings escaped anew: a guess, as good as `_AFTER`. NaN and Infinity become null."""
    parts: list[str] = []
    at, inside = 0, False
    while at < len(broken):
        character = broken[at]
        if not inside:
            found = _CONSTANT.match(broken, at)
            if found:
                character, at = "null", at + len(found[0]) - 1
            inside = character == '"'
        elif character == '"':
            if _AFTER.match(broken, at + 1):
                inside = False
            else:
                character = '\\"'
        elif character == "\\":
            found = _ESCAPE.match(broken, at)
            # An escaped quote that must be the end was a backslash at the end.
            character = found[0] if found else "\\\\"
            at += len(found[0]) - 1 if found else 0
        elif character < " ":
            character = json.dumps(character)[1:-1]
        parts.append(character)
        at += 1
    return "".join(parts)


def repair(file: Path, target: IO[bytes]) -> Repair:
    """Write the repaired trace to `target`. Raises OSError, and ValueError where there are no events to be found."""
    with opened(file) as source:
        return _Repairer(source, target).run()


class _Repairer:
    def __init__(self, source: IO[bytes], target: IO[bytes]) -> None:
        self.source, self.target, self.done = source, target, Repair()
        self.buffer, self.at, self.ended = "", 0, False
        self.pending = b""  # the beginning of a character
        self.decoder = json.JSONDecoder(parse_constant=_no_constant)

    def more(self) -> None:
        """Have a window's length before us, or the rest."""
        while len(self.buffer) - self.at < _WINDOW and not self.ended:
            try:
                chunk = self.source.read(_WINDOW)
            except (EOFError, gzip.BadGzipFile, zlib.error):  # what was unpacked until there can be rescued
                chunk = b""
            # What is no UTF-8 becomes the mark for it; a character may be cut at the end of a chunk only.
            self.pending += chunk
            self.ended = not chunk
            whole = len(self.pending) if self.ended else max(0, len(self.pending) - _tail(self.pending))
            self.buffer = self.buffer[self.at :] + self.pending[:whole].decode(errors="replace")
            self.pending, self.at = self.pending[whole:], 0

    def write(self, text: str) -> None:
        self.target.write(text.encode(errors="replace"))

    def run(self) -> Repair:
        self.more()
        found = _EVENTS.search(self.buffer)
        if found:
            head = self.buffer[: found.end()]
            self.write(self.around(head, "]}") or '{"traceEvents": [')
            self.at = found.end()
        elif self.buffer.lstrip("\ufeff \t\r\n").startswith("["):
            self.write("[")
            self.at = self.buffer.index("[") + 1
        else:
            raise ValueError("there are no events to be found: neither traceEvents nor an array")
        closed = self.events()
        tail = "" if closed is None else self.rest()
        if found:
            self.write("]" + (self.tail(tail) if closed is not None else "}"))
        else:
            self.write("]")
        self.done.cut |= closed is None
        self.write("\n")
        return self.done

    def around(self, head: str, closing: str) -> str | None:
        """What is before the events, readable; None where it cannot be made so."""
        for text in (head, escaped(head)):
            try:
                json.loads(text + closing, parse_constant=_no_constant)
            except ValueError:
                self.done.metadata = True
                continue
            self.done.metadata = text is not head
            return text
        return None

    def rest(self) -> str:
        text = self.buffer[self.at :]
        while not self.ended:
            self.at = len(self.buffer)
            self.more()
            text += self.buffer
        return text

    def tail(self, tail: str) -> str:
        before = self.done.metadata
        for text in (tail, escaped(tail)):
            try:
                json.loads('{"": []' + text, parse_constant=_no_constant)
            except ValueError:
                continue
            self.done.metadata = before or text is not tail
            return text.rstrip()
        self.done.metadata = True
        self.done.cut |= not tail.strip()
        return "}"

    def events(self) -> bool | None:
        """All events; None where the end is missing."""
        while True:
            if len(self.buffer) - self.at < _WINDOW // 2:
                self.more()
            self.at = _SPACE.match(self.buffer, self.at).end()  # type: ignore[union-attr]  # it matches nothing too
            if self.at >= len(self.buffer):
                return None
            if self.buffer[self.at] == "]":
                self.at += 1
                return True
            try:
                _, end = self.decoder.raw_decode(self.buffer, self.at)
                self.put(self.buffer[self.at : end])
                self.at = end
            except (ValueError, RecursionError):
                if not self.broken():
                    return None

    def put(self, event: str) -> None:
        self.write((",\n" if self.done.events else "\n") + event)
        self.done.events += 1

    def broken(self) -> bool:
        """The event here, repaired or left out; False where there is nothing behind it."""
        self.more()
        for tries, found in enumerate(_NEXT.finditer(self.buffer, self.at)):
            event = escaped(self.buffer[self.at : found.start() + 1])
            try:
                json.loads(event, parse_constant=_no_constant)
            except (ValueError, RecursionError):
                if tries < 3:  # the boundary may be part of a string
                    continue
                break
            self.put(event)
            self.done.repaired += 1
            self.at = found.end()
            return True
        self.done.lost += 1
        behind = _NEXT.search(self.buffer, self.at + 1)
        if behind is None:
            self.at = len(self.buffer)
            return False
        self.at = behind.end()
        return True


def _tail(data: bytes) -> int:
    """How many bytes at the end may belong to a character that goes on."""
    for length in range(1, min(4, len(data)) + 1):
        byte = data[-length]
        if byte >= 0xC0:
            return length
        if byte < 0x80:
            return 0
    return 0


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
