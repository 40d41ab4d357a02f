"""Runs an audit: two fresh processes, one that learns what is loaded and one that audits, with a time limit and progress."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

import unpatch
from unpatch.answers import AnswerReader
from unpatch.audit.activate import audited_packages
from unpatch.audit.errors import AuditError
from unpatch.audit.records import Activation, Answer, Audited, AuditResult, Finding, Learned, Orders, Phase, Write
from unpatch.files import write_whole
from unpatch.here import import_from_here

_POLL_SECONDS = 0.05
_READ = 16_384  #: bytes at the end of what a process wrote before it died, of which
_TOLD = 12  #: lines are shown


def audit(
    activation: Activation,
    *,
    on: tuple[str, ...] = (),
    timeout: float = 300.0,
    cache: bool = True,
    progress: Callable[[str], None] = lambda phase: None,
) -> AuditResult:
    """Find what an activation writes to other packages.

    Args:
        activation: a module or a script, environment variables, calls.
        on: dotted names; only writes to what lies under them are kept. Empty: all.
        timeout: seconds that each of the two processes may take.
        cache: keep rewritten source in the user's cache folder.
        progress: told what is being done.

    Raises:
        AuditError: there is no such module or script.
    """
    _check(activation)
    audited = audited_packages(activation)
    with tempfile.TemporaryDirectory(prefix="unpatch-audit-") as folder:
        passes = _Passes(Path(folder), activation, audited, on, timeout, _cache_folder() if cache else "", progress)
        started = time.monotonic()
        learned, stopped = passes.run("learn", ())
        took = round(time.monotonic() - started, 3)
        known = next((answer for answer in learned if isinstance(answer, Learned)), None)
        answers, died = passes.run("audit", known.modules if known is not None else ())
    done = next((answer for answer in answers if isinstance(answer, Audited)), None)
    if done is None:
        writes = [answer for answer in answers if isinstance(answer, Write)]
        return AuditResult(activation, on, audited, {}, _unjoined(writes, audited), died, False)
    # Without the first pass nothing was loaded before the writes: modules that the activation itself loads are not compared.
    unlearned = f"the pass that learns which modules are loaded did not end: {stopped}" if known is None else ""
    error = "; ".join(filter(None, (unlearned, done.error)))
    return AuditResult(
        activation, on, audited, done.versions, done.findings, error, True, done.places, done.unloaded,
        {"learning which modules are loaded": took, **done.seconds},
    )  # fmt: skip


def _check(activation: Activation) -> None:
    if activation.is_script:
        if not Path(activation.target).is_file():
            raise AuditError(f"There is no script {activation.target}; give the path of a Python file, or a module.")
        return
    if not re.fullmatch(r"\w+(\.\w+)*", activation.target):
        raise AuditError(
            f"{activation.target!r} is no module and no script; give a dotted name, or a path that ends in .py."
        )
    top = activation.target.partition(".")[0]
    import_from_here()
    if importlib.util.find_spec(top) is None:
        raise AuditError(f"There is no module {top!r}; is it installed in {sys.prefix}?")


class _Passes:
    def __init__(
        self, folder: Path, activation: Activation, audited: tuple[str, ...], on: tuple[str, ...], timeout: float,
        cache: str, progress: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._activation = activation
        self._audited = audited
        self._on = on
        self._timeout = timeout
        self._cache = cache
        self._progress = progress

    def run(self, mode: Literal["learn", "audit"], learned: tuple[str, ...]) -> tuple[list[object], str]:
        """The answers of one process, and how it died if it did."""
        answers = self._folder / f"{mode}.jsonl"
        orders = Orders(mode, self._activation, str(answers), self._audited, self._cache, self._on, learned)
        file = write_whole(self._folder / f"{mode}.json", msgspec.json.encode(orders))
        errors = self._folder / f"{mode}.stderr"
        with open(errors, "wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "unpatch.audit.child", str(file)],
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=_variables(), start_new_session=True,
            )  # fmt: skip
            try:
                return self._watch(process, AnswerReader(answers, Answer), errors)
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _watch(self, process: subprocess.Popen[bytes], reader: AnswerReader, errors: Path) -> tuple[list[object], str]:
        answers: list[object] = []
        started, phase = time.monotonic(), "starting"
        while True:
            exited = process.poll() is not None  # asked first: what it wrote before its exit is read below
            for answer in reader.read():
                answers.append(answer)
                if isinstance(answer, Phase):
                    phase = answer.name
                    self._progress(phase)
                elif isinstance(answer, Audited | Learned):
                    return answers, ""
            if exited:
                told = "\n".join(_end_of(errors).splitlines()[-_TOLD:])
                return answers, f"The process ended with exit code {process.returncode} while {phase}.\n{told}".strip()
            if time.monotonic() - started > self._timeout:
                return answers, f"No end after {self._timeout:g} s while {phase}; allow more with --timeout."
            time.sleep(_POLL_SECONDS)


def _end_of(file: Path) -> str:
    with open(file, "rb") as opened:
        opened.seek(max(0, opened.seek(0, os.SEEK_END) - _READ))
        return opened.read().decode(errors="replace")


def _unjoined(writes: list[Write], audited: tuple[str, ...]) -> tuple[Finding, ...]:
    """What is known of a process that ended early: the writes until then, without their effect."""
    found = []
    for write in writes:
        what: Literal["patch", "addition", "registration"] = (
            "addition" if write.kind == "add" else "registration" if write.kind == "entry" else "patch"
        )
        writer = f"@{write.site.module}" if write.traced_by == "source" else f"~{write.package}"
        found.append(
            Finding(
                f"{write.target}{writer}", write.target, (), write.kind,
                what if write.package in audited else "dependency", what, write.package, None, write.new, write.site,
                write.order, ("until the end of the process",), write.via,
            )
        )  # fmt: skip
    return tuple(found)


def _variables() -> dict[str, str]:
    # A backend that torch loads by itself would be part of the past of every audit.
    variables = {"PYTHONHASHSEED": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **os.environ}
    variables.pop("UNPATCH_DISABLE", None)
    ours = str(Path(unpatch.__file__).resolve().parents[1])
    paths = [str(Path(entry).resolve()) for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if ours not in (*paths, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        paths.append(ours)
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    return variables


def _cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "unpatch", "audit")
