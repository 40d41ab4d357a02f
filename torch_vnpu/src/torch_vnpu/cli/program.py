"""A program that runs as `python` would run it: as `__main__`, with its arguments, its folder first on the path, its code."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import runpy
import sys
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

STDIN = "-"
#: Files whose functions start the program, or find it.
_STARTERS = (__file__, runpy.__file__, "<frozen runpy>", "<frozen zipimport>", "<frozen importlib.")


def packed_main(path: str) -> ModuleSpec | None:
    """The `__main__` in a folder or a zip file; None where `path` is neither.

    Raises:
        ImportError: there is none in it.
    """
    importer: Any = pkgutil.get_importer(path)
    if importer is None:
        return None
    found: ModuleSpec | None = importer.find_spec("__main__")
    if found is None:
        raise ImportError(f"there is no __main__.py in {path!r}")
    return found


@dataclass(frozen=True)
class Program:
    """A script, a folder or zip file with a `__main__.py`, stdin (`-`), or a module (`is_module`), and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    def start(self) -> int:
        """Run it in this process; returns the exit code. SystemExit and KeyboardInterrupt pass."""
        sys.argv[:] = [self.name, *self.arguments]
        try:
            if self.is_module:
                self._put_first(os.getcwd())
                runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            else:
                self._run()
        except Exception as error:
            rest = _of_the_program(error.__traceback__)
            if rest is None and self.is_module and isinstance(error, ImportError):
                print(f"{sys.executable}: {error}", file=sys.stderr)  # as python: there is no such module
            else:
                sys.excepthook(type(error), error.with_traceback(rest), rest)
            return 1
        return 0

    def _put_first(self, folder: str) -> None:
        if not sys.flags.safe_path:
            sys.path[0] = folder

    def _run(self) -> None:
        # Not runpy: the module must outlive the script, as child processes, exit handlers and threads look for it.
        path = os.path.abspath(self.name)
        module = ModuleType("__main__")
        code: CodeType
        if self.name == STDIN:
            self._put_first("")
            module.__dict__.update(__file__="<stdin>", __loader__=BuiltinImporter)
            code = compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
        elif spec := packed_main(path):
            sys.path[: not sys.flags.safe_path] = [path]  # python puts it there in any case
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            code = spec.loader.get_code("__main__")  # type: ignore[attr-defined]
        else:
            self._put_first(os.path.dirname(os.path.realpath(path)))
            compiled = path.endswith(".pyc")
            loader = (SourcelessFileLoader if compiled else SourceFileLoader)("__main__", path)
            module.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
            if compiled:
                code = loader.get_code("__main__")  # type: ignore[assignment]
            else:
                with io.open_code(path) as file:
                    code = compile(file.read(), path, "exec", dont_inherit=True)
        module.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = module
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
    """The traceback without the frames that started the program; None where it was not started."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_STARTERS):
        traceback = traceback.tb_next
    return traceback
