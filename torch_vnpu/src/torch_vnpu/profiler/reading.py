"""Reads the events of a chrome trace one after the other, in bounded memory, and says at which byte a broken one breaks.

The file is looked at as Latin-1, in which characters are bytes, so that positions cost nothing; `text` turns a string of it
into what it is. Both forms of the format are read: an object with `traceEvents`, and the bare array, whose end may be missing.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

_CHUNK = 1 << 20
_LONGEST = 1 << 26  #: bytes of one event or one value of the metadata
_SPACE = re.compile(r"[ \t\r\n]*")


class TraceError(Exception):
    """The file is no JSON: `byte` is where it breaks, `start` where the event or value begins, `reason` a likely cause."""

    def __init__(self, byte: int, start: int, reason: str) -> None:
        super().__init__(f"byte {byte}: {reason}")
        self.byte, self.start, self.reason = byte, start, reason


class Item(NamedTuple):
    """An event, or (with a key) a member of the object around them."""

    key: str | None
    value: Any
    start: int  #: bytes
    end: int


def text(latin: str) -> str:
    """A string of the trace, as UTF-8 where its bytes are that."""
    if latin.isascii():
        return latin
    try:
        return latin.encode("latin-1").decode()
    except UnicodeError:  # written with escapes
        return latin


def opened(file: Path) -> IO[bytes]:
    """The file's bytes, unpacked where it is packed. Positions are those of what is unpacked. Raises OSError."""
    raw = open(file, "rb")  # noqa: SIM115  # the caller's to close
    if raw.peek(2)[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    return raw


class Reader:
    """Iterates over the items of a trace; raises TraceError where it cannot go on. `form` is "object" or "array"."""

    def __init__(self, source: IO[bytes]) -> None:
        self.form = ""
        self.constants: list[int] = []  #: where items have NaN or Infinity, which is no JSON
        self._source = source
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._buffer = ""
        self._base = 0  # the byte that the buffer begins with
        self._at = 0
        self._ended = False
        self._strange = False
        self._decoder = json.JSONDecoder(parse_constant=self._constant)

    def _constant(self, name: str) -> float:
        self._strange = True
        return float(name)

    def __iter__(self) -> Iterator[Item]:
        if self._peek() == "\xef":
            self._at += 3  # a byte order mark
        opening = self._peek()
        if opening == "[":
            self.form = "array"
            self._at += 1
            yield from self._events()
        elif opening == "{":
            self.form = "object"
            self._at += 1
            yield from self._members()
        else:
            raise self._error("neither an object nor an array begins here" if opening else "the file is empty")
        if self._peek():
            raise self._error("there is something after the end of the trace: two traces in one file?")

    def _members(self) -> Iterator[Item]:
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                raise self._error("the name of a member was expected", cut="within the object around the events")
            start = self._base + self._at
            key, _ = self._value()
            if self._peek() != ":":
                raise self._error(f"a colon was expected after {key!r}: an unescaped quote in the key?", start=start)
            self._at += 1
            if key == "traceEvents" and self._peek() == "[":
                self._at += 1
                yield from self._events()
            else:
                value, at = self._value(start)
                yield Item(key, value, at, self._base + self._at)
            if self._next("}", start, "the metadata"):
                return

    def _events(self) -> Iterator[Item]:
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            if self.form == "array" and not self._peek():
                self.unfinished = True
                return
            value, start = self._value()
            yield Item(None, value, start, self._base + self._at)
            if self.form == "array" and not self._peek():
                self.unfinished = True
                return
            if self._next("]", start, "an event"):
                return

    def _next(self, closing: str, start: int, what: str) -> bool:
        """Go past a comma (False) or the closing bracket (True)."""
        found = self._peek()
        if found not in (",", closing) or not found:
            raise self._error(f"a comma or {closing} was expected after {what}", start=start, cut=f"after {what}")
        self._at += 1
        return found == closing

    def _peek(self) -> str:
        """The next character that is no space, without going past it; empty at the end."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]  # it matches nothing too
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        if self._ended:
            return False
        try:
            chunk = self._source.read(max(_CHUNK, len(self._buffer) - self._at))
            self._utf8.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            byte = self._base + len(self._buffer) + error.start - len(self._utf8.getstate()[0])
            raise TraceError(byte, byte, "this is no UTF-8: a name that was cut inside of a character?") from error
        except (EOFError, OSError, zlib.error) as error:
            byte = self._base + len(self._buffer)
            raise TraceError(byte, byte, f"the file cannot be read on: {error}") from error
        self._base += self._at
        self._buffer = self._buffer[self._at :] + chunk.decode("latin-1")
        self._at = 0
        self._ended = not chunk
        return bool(chunk)

    def _value(self, start: int | None = None) -> tuple[Any, int]:
        """The value that begins here, and the byte; goes past it."""
        self._peek()
        while True:
            self._strange = False
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except JSONDecodeError as error:
                inside = error.pos < len(self._buffer) - 16 and not error.msg.startswith("Unterminated")
                if inside or len(self._buffer) - self._at > _LONGEST or not self._more():
                    raise self._broken(error, start) from error
            except ValueError as error:  # of Python's reading of numbers
                raise self._error("a number has more digits than any reader takes") from error
            except RecursionError as error:
                raise self._error("this is nested too deeply") from error
            else:
                # A number may go on in the next chunk; whatever else has an end of its own.
                if end < len(self._buffer) or not self._more():
                    begin = self._base + self._at
                    if self._strange:
                        self.constants.append(begin)
                    self._at = end
                    return value, begin

    def _broken(self, error: JSONDecodeError, start: int | None) -> TraceError:
        begin = self._base + self._at if start is None else start
        # The buffer may have been moved since: what stands there is decoded again.
        try:
            self._decoder.raw_decode(self._buffer, self._at)
        except JSONDecodeError as again:
            error = again
        here = self._base + error.pos
        # An escape is six characters long, and a mark at its backslash.
        reached = error.pos >= len(self._buffer.rstrip()) - (6 if error.msg.startswith("Invalid \\") else 0)
        if self._ended and (reached or error.msg.startswith("Unterminated")):
            end = self._base + len(self._buffer)
            return TraceError(end, begin, "the file ends within a value: it was cut off, or a quote is not closed")
        return TraceError(here, begin, _cause(error.msg, self._buffer[error.pos : error.pos + 40]))

    def _error(self, reason: str, start: int | None = None, cut: str = "") -> TraceError:
        byte = self._base + self._at
        if cut and not self._peek():
            byte, reason = self._base + self._at, f"the file ends {cut}: it was cut off"
        return TraceError(byte, byte if start is None else start, reason)


def _cause(message: str, there: str) -> str:
    if message.startswith("Invalid control character"):
        return f"a string has the control character U+{ord(there[0]):04X}, which must be escaped"
    if message.startswith("Invalid \\"):
        return "a string has a backslash that escapes nothing: a path of Windows that was not escaped?"
    if message.startswith(("Expecting ',' delimiter", "Expecting ':' delimiter")):
        return f"a string has ended too early: an unescaped quote before {text(there)[:20]!r}?"
    if there[:1] == "'" or there.startswith(("None", "True", "False")):
        return "this is Python's spelling, not JSON's"
    return f"{message}: something is missing, or a comma too much"
