"""The import hook: modules of the traced packages are loaded from rewritten source, which is kept in a folder.

What Python itself keeps (`__pycache__`) is never touched: rewritten code must not outlive the audit.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unpatch.audit.rewrite import TRACER, VERSION, rewrite

_NOTHING = b"-"  #: kept for source in which nothing is to be traced


class TracingFinder(importlib.abc.MetaPathFinder):
    """Finds modules as all other finders do, and has those that `traced` says loaded rewritten.

    Args:
        traced: whether the module of a name is traced.
        tracer: what rewritten code calls.
        cache: folder for rewritten code; None keeps none.
    """

    def __init__(self, traced: Callable[[str], bool], tracer: Any, cache: Path | None = None) -> None:
        self._traced = traced
        self._tracer = tracer
        self._cache = cache

    def install(self) -> None:
        """Ask this finder before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not self._traced(fullname):
            return None
        spec = found_after(self, fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _TracingLoader(spec.loader.name, spec.loader.path, self._tracer, self._cache)
        return spec


def found_after(
    finder: importlib.abc.MetaPathFinder, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    """What the finders say that are asked after `finder`; all of them, if it is no longer asked itself."""
    following = sys.meta_path[sys.meta_path.index(finder) + 1 :] if finder in sys.meta_path else sys.meta_path
    for other in following:
        find = getattr(other, "find_spec", None)
        spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None


class _TracingLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tracer: Any, cache: Path | None) -> None:
        super().__init__(name, path)
        self._tracer = tracer
        self._cache = cache

    def get_code(self, fullname: str) -> types.CodeType | None:
        return traced_code(self.path, self._cache) or super().get_code(fullname)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__[TRACER] = self._tracer
        super().exec_module(module)


def traced_code(path: str, cache: Path | None = None) -> types.CodeType | None:
    """The rewritten code of a source file; None where nothing is to be traced. Raises SyntaxError as Python does."""
    kept = _kept(path, cache)
    if kept is not None:
        try:
            data = kept.read_bytes()
            return None if data == _NOTHING else marshal.loads(data)
        except (OSError, ValueError, EOFError, TypeError):
            pass
    source = importlib.util.decode_source(Path(path).read_bytes())
    tree = rewrite(source, path)
    code = None if tree is None else compile(tree, path, "exec", dont_inherit=True)
    if kept is not None:
        _keep(kept, _NOTHING if code is None else marshal.dumps(code))
    return code


def _kept(path: str, cache: Path | None) -> Path | None:
    if cache is None:
        return None
    status = os.stat(path)
    what = (path, status.st_mtime_ns, status.st_size, VERSION, sys.flags.optimize)
    name = hashlib.sha256(repr(what).encode("utf-8", "surrogateescape") + importlib.util.MAGIC_NUMBER).hexdigest()
    return cache / name[:2] / name


def _keep(file: Path, data: bytes) -> None:
    """Write a file whole, without waiting for the disk: it can be made again. A full disk only costs time."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.write_bytes(data)
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
