"""What parent and child say to each other: orders as one JSON file, answers as JSON lines.

A child appends each answer as one whole line, so that a parent sees where a child died: after `Begin` without a result.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from unpatch.model import ErrorInfo, Observation, ProbeRecord, ReachRecord, StudyInfo

Mode = Literal["describe", "observe", "reach", "probe"]


class Orders(Struct, frozen=True):
    """What a child is to do."""

    study: str  #: path of the study's file
    mode: Mode
    out: str  #: folder for answers and tensors
    base: str  #: folder that the paths of tensor files are relative to
    cases: tuple[str, ...] = ()  #: case ids, or probe ids; in this order
    suppressed: tuple[str, ...] = ()  #: patches never to apply, `manager/id`
    seed: int = 0


class Ready(Struct, frozen=True, tag=True):
    """The study is imported and activated."""

    applied: tuple[str, ...]  #: ids of the patches in force


class Begin(Struct, frozen=True, tag=True):
    """A case or probe begins."""

    case: str


class Observed(Struct, frozen=True, tag=True):
    """The result of one case."""

    observation: Observation

    @property
    def case(self) -> str:
        return self.observation.case


class Reached(Struct, frozen=True, tag=True):
    """The calls of all patches in one case; None when the case ended the process, so that nothing is known."""

    case: str
    records: tuple[ReachRecord, ...] | None


class Probed(Struct, frozen=True, tag=True):
    """The result of one probe."""

    record: ProbeRecord

    @property
    def case(self) -> str:
        return self.record.id


class Described(Struct, frozen=True, tag=True):
    """What a study declares, and what it is made of."""

    info: StudyInfo
    manager: str  #: name of the patch manager, which tells its ids from those of others
    sources: dict[str, str]  #: sha256 of each imported source file that no package manager installed, by module
    versions: dict[str, str]  #: of the distributions that the study imports or patches


class Unusable(Struct, frozen=True, tag=True):
    """The study could not be imported, described or activated: no case can run."""

    error: ErrorInfo
    text: str  #: for people, with the study's own traceback


class Done(Struct, frozen=True, tag=True):
    """Everything ordered was tried; what follows is only the interpreter's exit."""


Answer = Ready | Begin | Observed | Reached | Probed | Described | Unusable | Done

ORDERS = "orders.json"
ANSWERS = "answers.jsonl"

_decoder = msgspec.json.Decoder(Answer)


class AnswerReader:
    """Reads the answers of a child as they come, each once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> list[Answer]:
        """The whole lines since the last call; a line that is not ended yet waits for the next call."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(whole) + len(newline)
        return [_decoder.decode(line) for line in whole.split(b"\n") if line]


class AnswerWriter:
    """Appends the answers of a child, each as one line that is on its way when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._path = str(path.resolve())
        self._owner = os.getpid()
        self._file = self._open()
        self._identity = _identity(self._file)

    def write(self, answer: Answer) -> None:
        """Append one answer. A process that the workload forked off and that got here ends instead: it is no trial."""
        if os.getpid() != self._owner:
            os._exit(0)
        # The workload may have closed every file, and its own may have taken this one's number.
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


def _encode(answer: Answer) -> bytes:
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
