"""The sanitizer from a command line: a script run under it, or a log replayed. Both return the exit code."""

import builtins
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TextIO

from torch_vnpu.sanitizer import render, suppressions
from torch_vnpu.sanitizer.findings import Finding
from torch_vnpu.sanitizer.log import LogError, Recorder, replay
from torch_vnpu.sanitizer.session import Sanitizer


def run_sanitized(
    script: str | Path,
    argv: Sequence[str] = (),
    *,
    stack_depth: int = 32,
    suppress: str | Path | None = None,
    json: str | Path | None = None,
    html: str | Path | None = None,
    log: str | Path | None = None,
    err: TextIO | None = None,
) -> int:
    """Run a Python script as `python script argv…` would, under the stream check, and report on `err` (stderr).

    `json`, `html`: files for the findings. `log`: a file that `replay_log` reads. Returns 1 where something was found, else the
    script's own exit code; 2 where the script or the suppressions cannot be read. What the script raises is raised.
    """
    err = sys.stderr if err is None else err
    script = Path(script)
    if not script.is_file():
        print(f"{script}: no such script", file=err)
        return 2
    try:
        check = Sanitizer("collect", stack_depth=stack_depth, suppress=suppress)
    except (OSError, ValueError) as error:
        print(error, file=err)
        return 2
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    # Its variables live until what it did is judged: that they end with the script is no free that it made.
    main = ModuleType("__main__")
    main.__file__ = str(script)
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.argv = [str(script), *argv]
    sys.path.insert(0, str(script.resolve().parent))
    code = 0
    try:
        with check:
            if log is None:
                code = _run(script, main)
            else:
                with Recorder(log, stack_depth=stack_depth):
                    code = _run(script, main)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before
        check.finish()
        print(check.text(), file=err)
        if json is not None:
            _write(Path(json), check.json() + "\n")
        if html is not None:
            _write(Path(html), check.html())
    return 1 if check.findings else code


def _run(script: Path, main: ModuleType) -> int:
    try:
        exec(compile(script.read_bytes(), str(script), "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    return 0


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
        findings = [finding for finding in replay(path) if not any(rule.fits(finding) for rule in rules)]
    except (OSError, LogError, ValueError) as error:
        print(error, file=sys.stderr if err is None else err)
        return 2
    print(render.as_json(findings) if json else _text(findings), file=out)
    if html is not None:
        _write(Path(html), render.as_html(findings))
    return 1 if findings else 0


def _text(findings: Sequence[Finding]) -> str:
    return "\n\n".join([*map(render.as_text, findings), render.summary(findings)])


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
