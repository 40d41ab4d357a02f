"""What parent and child say to each other: orders as one JSON file, answers as JSON lines.

A child appends each answer as one whole line, so that a parent sees where a child died: after `Begin` without a result.
"""

from __future__ import annotations

from typing import Literal

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
