"""The sanitizer from a command line: a program run under it, or a log replayed. Both return the exit code."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from torch_vnpu.sanitizer import render, suppressions
from torch_vnpu.sanitizer.children import Children
from torch_vnpu.sanitizer.log import Recorder, replay
from torch_vnpu.sanitizer.session import Sanitizer
from unpatch.files import WriteError, write_whole


def run_checked(
    start: Callable[[], int],
    *,
    stack_depth: int = 32,
    suppress: str | Path | None = None,
    json: str | Path | None = None,
    html: str | Path | None = None,
    log: str | Path | None = None,
    err: TextIO | None = None,
) -> int:
    """Run a program (`start` runs it and returns its exit code) under the stream check, and report on `err` (stderr).

    It has ended when its threads have, as with Python. The processes that it starts are checked, too, and are in the report
    where they have used npu and ended by then. `json`, `html`: files for the findings. `log`: a file that `replay_log`
    reads, of this process alone. Returns 1 where something was found, else the program's own exit code; 2 where the
    suppressions cannot be read, or (and nothing else is wrong) a file cannot be written. The program's variables should
    outlive it: that they end with it is no free that it made.
    """
    err = sys.stderr if err is None else err
    recorder = None if log is None else Recorder(log, stack_depth=stack_depth)
    code, written, process, others = 0, True, os.getpid(), []
    with contextlib.ExitStack() as until_reported:
        try:
            check = Sanitizer("collect", stack_depth=stack_depth, suppress=suppress)
            children = until_reported.enter_context(Children(check, stack_depth))
            if recorder is not None:
                recorder.start()
        except (OSError, ValueError) as error:
            print(error, file=err)
            return 2
        try:
            with check:
                code = _code_of(start)
                _join_threads()
        finally:
            if os.getpid() == process:  # a child that the program forked may end here, too; it reports at its exit
                check.finish()
                found, hidden, others = check.findings, check.suppressed, children.processes()
                _tell(render.report(found, hidden, others), err)
                if recorder is not None:
                    written &= _done(recorder.stop, err)
                if json is not None:
                    text = render.as_json(found, check.statistics, suppressed=hidden, processes=others) + "\n"
                    written &= _done(lambda: write_whole(Path(json), text), err)
                if html is not None:
                    page = render.as_html(found, hidden, others)
                    written &= _done(lambda: write_whole(Path(html), page), err)
    if os.getpid() == process and (check.findings or any(other.findings for other in others)):
        return 1
    return code if written else code or 2


def _join_threads() -> None:
    """Wait for those for which Python would wait before it ends."""
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread() and thread is not threading.main_thread():
            thread.join()


def _done(write: Callable[[], object], err: TextIO) -> bool:
    """Whether a file could be written; if not, why is told."""
    try:
        write()
    except (OSError, WriteError) as error:
        _tell(str(error), err)
        return False
    return True


def _tell(text: str, err: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):  # the program may have closed it
        print(text, file=err)


def _code_of(start: Callable[[], int]) -> int:
    try:
        return start()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1


def replay_log(
    path: str | Path,
    *,
    suppress: str | Path | None = None,
    json: bool = False,
    html: str | Path | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Report on `out` (stdout) what a recorded log shows, as text or `json`, and as a page in the file `html`.

    Returns 0 where nothing was found, 1 where something was, 2 where the log or the suppressions cannot be read.
    """
    out = sys.stdout if out is None else out
    try:
        rules = suppressions.load(suppress) if suppress is not None else []
        every = replay(path)
        findings = [finding for finding in every if not any(rule.fits(finding) for rule in rules)]
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr if err is None else err)
        return 2
    hidden = len(every) - len(findings)
    print(render.as_json(findings, suppressed=hidden) if json else render.report(findings, hidden), file=out)
    if html is not None:
        write_whole(Path(html), render.as_html(findings, hidden))
    return 1 if findings else 0
