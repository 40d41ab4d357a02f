"""How a child process answers: records as JSON lines in a file, each whole when it is written, read as they come.

Both a trial and an audit answer so; which records there are, each says in its own module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any

import msgspec


class AnswerReader:
    """Reads the answers of a child as they come, each once; they are records of one of the types in `kinds`."""

    def __init__(self, path: Path, kinds: UnionType) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kinds)
        self._read = 0

    def read(self) -> list[Any]:
        """The whole lines since the last call; a line that is not ended yet waits for the next call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(newline)
        return [self._decoder.decode(line) for line in whole.split(b"\n") if line]


class AnswerWriter:
    """Appends the answers of a child, each as one line that is on its way when `write` returns.

    A process that the child forked off writes none: it calls `in_fork` instead.
    """

    def __init__(self, path: Path, in_fork: Callable[[], object] = lambda: None) -> None:
        self._path = str(path.resolve())
        self._in_fork = in_fork
        self._owner = os.getpid()
        self._file = self._open()
        self._identity = _identity(self._file)

    def write(self, answer: msgspec.Struct) -> None:
        """Append one answer."""
        if os.getpid() != self._owner:
            self._in_fork()
            return
        # What runs in the child may have closed every file, and its own may have taken this one's number.
        if _identity(self._file) != self._identity:
            self._file = self._open()
        line = memoryview(_encode(answer) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _identity(file: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _encode(answer: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(answer)))


def _printable(value: object) -> object:
    """Lone surrogates (of a file's name that is no UTF-8, say) written as escapes, in all texts."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
