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
    seed: int = 0


class Ready(Struct, frozen=True, tag=True):
    """The study is imported and activated."""


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
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - open as long as the process lives
        self._owner = os.getpid()

    def write(self, answer: Answer) -> None:
        """Append one answer. A process that the workload forked off and that got here ends instead: it is no trial."""
        if os.getpid() != self._owner:
            os._exit(0)
        self._file.write(msgspec.json.encode(answer) + b"\n")
