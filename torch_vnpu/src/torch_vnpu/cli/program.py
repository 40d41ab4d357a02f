"""A program that runs as `python` would run it: as `__main__`, with its arguments, its folder first on the path, its code."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType


@dataclass(frozen=True)
class Program:
    """A script (a file) or a module (`is_module`) and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def start(self) -> int:
        """Run it in this process; returns the exit code. SystemExit and KeyboardInterrupt pass."""
        sys.argv[:] = [self.name, *self.arguments]
        if not sys.flags.safe_path:
            sys.path[0] = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(self.name))
        try:
            if self.is_module:
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                self._run_script()
        except Exception as error:
            error.__traceback__ = _of_the_program(error.__traceback__)
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
        return 0

    def _run_script(self) -> None:
        # Not runpy: the module must outlive the script, as child processes, exit handlers and threads look for it.
        module = ModuleType("__main__")
        module.__dict__.update(
            __file__=self.name,
            __builtins__=builtins,
            __loader__=SourceFileLoader("__main__", self.name),
            __cached__=None,
        )
        sys.modules["__main__"] = module
        with io.open_code(os.path.abspath(self.name)) as file:
            code = compile(file.read(), self.name, "exec", dont_inherit=True)
        exec(code, module.__dict__)


@dataclass(frozen=True)
class Checked:
    """A program under the stream check; `findings` and `log` are files to write."""

    program: Program
    findings: Path | None = None
    log: Path | None = None
    suppress: Path | None = None

    def start(self) -> int:
        """Run it in this process; returns 1 where something is found, else the program's exit code."""
        from torch_vnpu.sanitizer.run import run_checked

        page = self.findings is not None and self.findings.suffix in (".html", ".htm")
        json, html = (None, self.findings) if page else (self.findings, None)
        return run_checked(self.program.start, suppress=self.suppress, log=self.log, json=json, html=html)


def _of_the_program(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the program; all of it where the program has none."""
    rest = traceback
    while rest is not None and rest.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        rest = rest.tb_next
    return rest or traceback
