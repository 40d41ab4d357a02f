"""A trial, as planned and as finished: one mode, some cases, some patches suppressed, in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from unpatch.ablate.protocol import Mode
from unpatch.model import Observation, ProbeRecord, ReachRecord


class Trial(Struct, frozen=True):
    """What is to run. `name` is unique in a study and safe as a folder's name; `title` is for people."""

    name: str
    title: str
    mode: Mode
    cases: tuple[str, ...]
    suppressed: tuple[str, ...] = ()


class TrialResult(Struct, frozen=True):
    """What a trial recorded, by case; a case that ended a reach trial has no entry in `reach`."""

    trial: Trial
    seconds: float
    processes: int  #: more than one when a case ended its process
    observations: dict[str, Observation] = {}
    reach: dict[str, tuple[ReachRecord, ...]] = {}
    probes: tuple[ProbeRecord, ...] = ()
    applied: tuple[str, ...] | None = None  #: ids of the patches in force; None if that was never reached


class Event(Struct, frozen=True):
    """Progress of a study, as data. Sent from several threads, one event at a time per trial."""

    kind: Literal["planned", "started", "advanced", "finished", "reused"]
    trial: str  #: a trial's title
    done: int = 0  #: cases done
    total: int = 0  #: cases of the trial
    note: str = ""  #: outcomes, once finished


Progress = Callable[[Event], None]


def silent(event: Event) -> None:
    """The progress callback of who wants none."""
