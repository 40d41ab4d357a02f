"""The processes that a checked program starts: each that uses npu leaves a file of what was found in it.

They meet in a folder. An environment variable names it, so the processes that those start come there too. A process marks there
that it has begun to use npu, and at its end leaves its report, so that one which could leave none is known.
"""

import atexit
import functools
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import util
from pathlib import Path
from typing import Any

from torch_vnpu import _C
from torch_vnpu._init.features import REPORTS
from torch_vnpu.sanitizer.findings import Finding, Process
from torch_vnpu.sanitizer.session import Mode, Sanitizer, SanitizerError
from torch_vnpu.sanitizer.suppressions import Rule
from unpatch.files import WriteError, write_whole

_SETTINGS = "settings.json"
_STARTED, _REPORT = ".started", ".json"


class Children:
    """A context in which the processes that this one starts are checked as `check` is, with `stack_depth` frames of each stack.

    Raises OSError where no temporary folder can be made.
    """

    def __init__(self, check: Sanitizer, stack_depth: int) -> None:
        self._check = check
        self._settings = {"stack_depth": stack_depth, "rules": [[rule.kind, rule.pattern] for rule in check.rules]}

    def __enter__(self) -> "Children":
        global _of_forks
        _install()
        self._process = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="vnpu-sanitizer-"))
        write_whole(self._folder / _SETTINGS, json.dumps(self._settings))
        self._outer = os.environ.get(REPORTS), _of_forks
        os.environ[REPORTS] = str(self._folder)
        _of_forks = (self._folder, self._check)
        return self

    def __exit__(self, *_: object) -> None:
        global _of_forks
        if os.getpid() != self._process:  # a forked child that ends within the context; it has to report yet
            return
        variable, _of_forks = self._outer
        if variable is None:
            os.environ.pop(REPORTS, None)
        else:
            os.environ[REPORTS] = variable
        shutil.rmtree(self._folder, ignore_errors=True)

    def processes(self) -> list[Process]:
        """Those that have used npu until now, in the order in which they began to."""
        marks = sorted(self._folder.glob("*" + _STARTED), key=lambda path: path.stat().st_mtime_ns)
        return [_read(mark) for mark in marks]


def _read(mark: Path) -> Process:
    """The process that left this mark, and its report where there is one."""
    started = json.loads(mark.read_bytes())
    pid, argv = started["pid"], tuple(started["argv"])
    try:
        report = json.loads(mark.with_suffix(_REPORT).read_bytes())
    except FileNotFoundError:
        return Process(pid, argv)
    stacks = report["stacks"]
    findings = [Finding.of(raw, lambda stack: stacks.get(str(stack), ())) for raw in report["findings"]]
    return Process(pid, argv, True, tuple(findings), report["suppressed"])


class _Reporter:
    """Leaves the mark and the report of this process."""

    def __init__(self, folder: Path, check: Sanitizer) -> None:
        self.folder = folder
        self.check = check
        self.file = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        self.old = len(check.findings), check.suppressed  # of the process from which this one was forked
        self.listener: int | None = _C.subscribe(self._begin, ["launch"])
        self.ended = False

    def _begin(self, *_: Any) -> None:
        if self.forget():
            self._write(_STARTED, {"pid": os.getpid(), "argv": list(getattr(sys, "argv", ()))})

    def forget(self) -> bool:
        """Wait no more for the first use of npu; whether it has been waited for."""
        listener, self.listener = self.listener, None
        if listener is not None:
            _C.unsubscribe(listener)
        return listener is not None

    def end(self) -> None:
        """Leave the report, where npu was used. Idempotent."""
        if self.ended or self.listener is not None:
            return
        self.ended = True
        self.check.stop()
        try:
            self.check.finish()
        except SanitizerError as error:
            print(error, file=sys.stderr)
        findings = self.check.findings[self.old[0] :]
        report = {
            "findings": [finding.raw() for finding in findings],
            "stacks": {stack: finding.frames(stack) for finding in findings for stack in finding.stacks},
            "suppressed": self.check.suppressed - self.old[1],
        }
        self._write(_REPORT, report)

    def _write(self, kind: str, content: object) -> None:
        if not self.folder.is_dir():  # the program has ended
            return
        try:
            write_whole(self.file.with_suffix(kind), json.dumps(content))
        except WriteError as error:
            print(f"npu sanitizer: process {os.getpid()} cannot report: {error}", file=sys.stderr)


_here: _Reporter | None = None
_of_forks: tuple[Path, Sanitizer] | None = None


def join(folder: str, mode: Mode) -> bool:
    """Check this process from now on, and report in `folder`; False where that is gone: the program has ended."""
    global _here, _of_forks
    from torch_vnpu import sanitizer

    try:
        settings = json.loads((Path(folder) / _SETTINGS).read_bytes())
    except OSError:
        return False
    rules: Sequence[Rule] = [Rule(*rule) for rule in settings["rules"]]
    check = sanitizer.enable_npu_sanitizer(mode, stack_depth=settings["stack_depth"], suppress=rules)
    _of_forks = (Path(folder), check)
    _here = _Reporter(*_of_forks)
    _install()
    _end_with_process()
    return True


def _end() -> None:
    if _here is not None:
        _here.end()


def _end_with_process(*_: object) -> None:
    # multiprocessing's forks leave by os._exit, after these; the order is after all finalizers that anybody else has.
    util.Finalize(None, _end, exitpriority=-1000)


@functools.cache
def _install() -> None:
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_end)
    util.register_after_fork(_end, _end_with_process)  # multiprocessing's children drop the finalizers that they find


def _forked() -> None:
    global _here
    if _here is not None:
        _here.forget()
    _here = _Reporter(*_of_forks) if _of_forks is not None else None
