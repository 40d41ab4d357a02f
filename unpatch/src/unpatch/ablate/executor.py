"""Runs trials as fresh processes, several at once, and turns every way in which one can end into an observation.

A child that dies or makes no progress costs the case that it was in; a new child goes on with the remaining cases.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

import unpatch
from unpatch.ablate.errors import AblationError
from unpatch.ablate.protocol import (
    ANSWERS,
    ORDERS,
    Answer,
    Begin,
    Described,
    Done,
    Observed,
    Orders,
    Probed,
    Reached,
    Ready,
    Unusable,
)
from unpatch.ablate.trial import Event, Progress, Trial, TrialResult, failures, silent
from unpatch.answers import AnswerReader
from unpatch.files import write_whole
from unpatch.model import ErrorInfo, Observation, Outcome, ProbeRecord
from unpatch.study import study_file

#: Seconds that a child may take to import and activate the study, and to exit after its last case.
STARTUP_SECONDS = 300.0
EXIT_SECONDS = 10.0
POLL_SECONDS = 0.02
WAKE_SECONDS = 0.5


_Advanced = Callable[[int], None]  #: told the number of results of the running child


class StoppedError(Exception):
    """The study was interrupted while this trial ran."""


class _Ending(Struct):
    """How a process ended."""

    results: dict[str, Observed | Reached | Probed]
    described: Described | None = None
    applied: tuple[str, ...] | None = None
    unusable: Unusable | None = None
    lost: str = ""  #: the case that it was in when it ended
    outcome: Outcome = "passed"
    error: ErrorInfo | None = None
    seconds: float = 0.0  #: spent in the lost case


class Executor:
    """Runs the trials of one study.

    Args:
        study: a folder with a `study.py`, or a Python file.
        folder: the output folder; each trial gets a folder in `trials/` there.
        environment: environment variables of every child, over those of this process.
        seed: what each case is seeded with.
        jobs: processes at once.
        timeout: seconds that a case may take.
        progress: called with an `Event`, from several threads.
    """

    def __init__(
        self,
        study: Path,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        seed: int = 0,
        jobs: int = 1,
        timeout: float = 120.0,
        progress: Progress = silent,
    ) -> None:
        self._study = study_file(study)
        self._folder = folder.resolve()
        self._environment = dict(environment or {})
        self._seed = seed
        self._jobs = jobs
        self._timeout = timeout
        self._progress = progress
        self._stop = threading.Event()

    def describe(self) -> Described:
        """Ask a child what the study declares.

        Raises:
            AblationError: the study cannot be used; the message has the study's own traceback.
        """
        trial = Trial("describe", "describe", "describe", ())
        ending = self._attempt(trial, (), self._folder / "trials" / trial.name / "1", lambda done: None)
        if ending.unusable is not None:
            raise AblationError(ending.unusable.text)
        if ending.described is None:
            assert ending.error is not None
            raise AblationError(
                f"The process that imports {self._study.name} ended ({ending.error.type}): {ending.error.message}"
            )
        return ending.described

    def run(self, trials: Sequence[Trial]) -> Generator[TrialResult, None, None]:
        """Run trials, yielding each as it ends. Closing the iterator (or an interrupt) ends the running children."""
        self._stop.clear()
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="trial") as pool:
            running = {pool.submit(self._run, trial) for trial in trials}
            try:
                while running:
                    # Woken now and then: only a running main thread acts on a signal that another thread received.
                    done, running = wait(running, timeout=WAKE_SECONDS, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            except BaseException:
                self._stop.set()
                for future in running:
                    future.cancel()
                raise

    def _run(self, trial: Trial) -> TrialResult:
        started = time.monotonic()
        total = len(trial.cases)
        self._progress(Event("started", trial.title, 0, total))
        results: dict[str, Observed | Reached | Probed] = {}
        remaining = trial.cases
        applied: tuple[str, ...] | None = None
        processes = 0
        # What an interrupted run of this trial left behind.
        shutil.rmtree(self._folder / "trials" / trial.name, ignore_errors=True)
        while remaining:
            processes += 1
            folder = self._folder / "trials" / trial.name / str(processes)

            def advanced(done: int, before: int = len(results)) -> None:
                self._progress(Event("advanced", trial.title, before + done, total))

            ending = self._attempt(trial, remaining, folder, advanced)
            results |= ending.results
            applied = applied if ending.applied is None else ending.applied
            if ending.unusable is not None:
                lost: Sequence[str] = [case for case in remaining if case not in results]
                results |= _lost(trial, lost, "failed", ending.unusable.error, 0.0)
            elif ending.error is not None:
                # Without a case to blame and without any progress, the next child would end in the same way.
                lost = [ending.lost] if ending.lost else [] if ending.results else remaining
                results |= _lost(trial, lost, ending.outcome, ending.error, ending.seconds)
            remaining = tuple(case for case in remaining if case not in results)
        result = _collect(trial, results, time.monotonic() - started, processes, applied)
        self._progress(Event("finished", trial.title, total, total, _note(result), failures(result)))
        return result

    def _attempt(self, trial: Trial, cases: Sequence[str], folder: Path, advanced: _Advanced) -> _Ending:
        folder.mkdir(parents=True)
        orders = Orders(
            study=str(self._study),
            mode=trial.mode,
            out=str(folder),
            base=str(self._folder),
            cases=tuple(cases),
            suppressed=trial.suppressed,
            seed=self._seed,
        )
        write_whole(folder / ORDERS, msgspec.json.format(msgspec.json.encode(orders)))
        with open(folder / "stdout.txt", "wb") as stdout, open(folder / "stderr.txt", "wb") as stderr:
            process = self._start(trial, folder, stdout, stderr)
            try:
                ending = self._watch(process, folder, advanced)
            finally:
                _end(process)
        return ending

    def _start(self, trial: Trial, folder: Path, stdout: BinaryIO, stderr: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "unpatch.ablate.child", str(folder / ORDERS)],
            # A folder of its own: two trials that write the same relative path must not meet.
            cwd=folder,
            env=self._variables(trial),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            # A process group of its own: whatever the workload starts is ended with it, and Ctrl-C reaches only us.
            start_new_session=True,
        )

    def _variables(self, trial: Trial) -> dict[str, str]:
        variables = {"PYTHONHASHSEED": "0", **os.environ}
        # Patches that the user's shell disables would falsify every arm; a study may declare such a thing itself.
        variables.pop("UNPATCH_DISABLE", None)
        variables.update(self._environment)
        disabled = [*filter(None, [variables.get("UNPATCH_DISABLE", "")]), *trial.suppressed]
        if disabled:
            variables["UNPATCH_DISABLE"] = ",".join(disabled)
        # Relative entries would mean something else in the child's folder.
        paths = [str(Path(entry).resolve()) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        ours = str(Path(unpatch.__file__).resolve().parents[1])
        if ours not in (*paths, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
            paths.append(ours)
        if paths:
            variables["PYTHONPATH"] = os.pathsep.join(paths)
        return variables

    def _watch(self, process: subprocess.Popen[bytes], folder: Path, advanced: _Advanced) -> _Ending:
        """Follow a child's answers until it exits, or until it has made no progress for too long."""
        reader = AnswerReader(folder / ANSWERS, Answer)
        ending = _Ending({})
        limit, since = max(STARTUP_SECONDS, self._timeout), time.monotonic()
        done = False
        while True:
            exited = process.poll() is not None  # asked first: what it wrote before its exit is read below
            for answer in reader.read():
                since = time.monotonic()
                match answer:
                    case Ready(applied):
                        ending.applied, limit = applied, self._timeout
                    case Begin(case):
                        ending.lost = case
                    case Observed() | Reached() | Probed():
                        ending.results[answer.case] = answer
                        ending.lost = ""
                        advanced(len(ending.results))
                    case Described():
                        ending.described = answer
                    case Unusable():
                        ending.unusable = answer
                if isinstance(answer, Described | Unusable | Done):  # its last word
                    done, limit = True, EXIT_SECONDS
            idle = time.monotonic() - since
            if exited:
                if not done:
                    ending.outcome, ending.seconds = "crashed", idle
                    ending.error = self._death(process.returncode, folder)
                return ending
            if idle > limit:
                if not done:
                    ending.outcome, ending.seconds = "timed_out", idle
                    ending.error = self._hang(process, folder, limit)
                return ending
            if self._stop.wait(POLL_SECONDS):
                raise StoppedError

    def _death(self, code: int, folder: Path) -> ErrorInfo:
        text = self._stderr(folder)
        kind = _signal_name(-code) if code < 0 else f"exit code {code}"
        told = "\n".join(line for line in text.splitlines()[-8:] if line.strip())
        told = told or "the process ended without a word"
        return ErrorInfo(type=kind, message=told, place="", raised_at=_frame(text))

    def _hang(self, process: subprocess.Popen[bytes], folder: Path, limit: float) -> ErrorInfo:
        """Ask the child for its stack (see `child.main`), so that the report can say where it hangs."""
        before = len(self._stderr(folder))
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGUSR1)
            self._stop.wait(0.2)
        where = _frame(self._stderr(folder)[before:])
        return ErrorInfo(type="timeout", message=f"no progress for {limit:g} s", place="", raised_at=where)

    def _stderr(self, folder: Path) -> str:
        """The end of what a child wrote, without addresses and without the absolute paths of this machine."""
        with open(folder / "stderr.txt", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            text = file.read().decode(errors="replace")
        text = text.split("\nExtension modules:")[0]  # faulthandler's list of all that was imported
        for known in (str(self._study.parent), str(folder), *(sysconfig.get_path(key) for key in _LIBRARIES)):
            text = text.replace(f"{known}/", "")
        return re.sub(r"\b0x[0-9a-fA-F]+", "0x…", text)


_LIBRARIES = ("purelib", "platlib", "stdlib")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child with all that it started; what outlived its exit is in the same group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _frame(text: str) -> str:
    """`file:function` of the innermost frame in a stack that faulthandler printed, or nothing."""
    found = re.search(r'most recent call first\):\n\s+File "([^"]+)", line \d+ in (\S+)', text)
    return f"{found[1]}:{found[2]}" if found else ""


def _lost(
    trial: Trial, cases: Sequence[str], outcome: Outcome, error: ErrorInfo, seconds: float
) -> dict[str, Observed | Reached | Probed]:
    """What is known of cases that never answered. Their reach stays unknown, which is not the same as no call."""
    if trial.mode == "observe":
        return {case: Observed(Observation(case, outcome, seconds, error)) for case in cases}
    if trial.mode == "probe":
        told = f"{outcome.replace('_', ' ')}: {error.type}: {error.message}"
        return {case: Probed(ProbeRecord(case, "", "", "", "", told)) for case in cases}
    return {case: Reached(case, None) for case in cases}


def _collect(
    trial: Trial,
    results: Mapping[str, Observed | Reached | Probed],
    seconds: float,
    processes: int,
    applied: tuple[str, ...] | None,
) -> TrialResult:
    ordered = [results[case] for case in trial.cases]
    return TrialResult(
        trial=trial,
        seconds=seconds,
        processes=processes,
        observations={answer.case: answer.observation for answer in ordered if isinstance(answer, Observed)},
        reach={
            answer.case: answer.records
            for answer in ordered
            if isinstance(answer, Reached) and answer.records is not None
        },
        probes=tuple(answer.record for answer in ordered if isinstance(answer, Probed)),
        applied=applied,
    )


def _note(result: TrialResult) -> str:
    """How many cases passed and failed, and which of them ended their process. That a case fails may be its purpose."""
    outcomes = Counter(observation.outcome for observation in result.observations.values())
    counts = [f"{outcomes[outcome]} {outcome}" for outcome in ("passed", "failed") if outcomes[outcome]]
    ended = sorted(
        f"{case} {observation.outcome.replace('_', ' ')}"
        for case, observation in result.observations.items()
        if observation.outcome in ("crashed", "timed_out")
    )
    return ", ".join([*counts, *ended[:3]]) + (f" and {len(ended) - 3} more" if len(ended) > 3 else "")
