"""How an audit's process answers: JSON lines in a file, each whole when it is written, read as they come."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from unpatch.audit.records import Answer

_decoder = msgspec.json.Decoder(Answer)


class AnswerWriter:
    """Appends answers. A process that the package forked off writes none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._owner = os.getpid()

    def write(self, answer: Answer) -> None:
        """Append one answer."""
        if os.getpid() != self._owner:
            return
        line = memoryview(msgspec.json.encode(answer) + b"\n")
        while line:
            line = line[os.write(self._file, line) :]


class AnswerReader:
    """Reads answers as they come, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> list[Answer]:
        """The whole lines since the last call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(newline)
        return [_decoder.decode(line) for line in whole.split(b"\n") if line]
