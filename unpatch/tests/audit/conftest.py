"""Small packages for audits: one that is written to, and one that writes."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from unpatch.audit.records import Activation, AuditResult
from unpatch.audit.run import audit

_numbers = itertools.count()

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path, monkeypatch) -> Write:
    """Writes packages into a folder that children import from: `write(name="source", …)`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)

    def write(**files: str) -> Path:
        for name, source in files.items():
            folder = tmp_path / name.partition("__")[0]
            folder.mkdir(exist_ok=True)
            module = name.partition("__")[2] or "__init__"
            (folder / f"{module}.py").write_text(textwrap.dedent(source))
        return tmp_path

    return write


@pytest.fixture
def audit_of(write) -> Callable[..., AuditResult]:
    """Audits a package that was just written: `audit_of("patcher", target="…", patcher="…")`."""

    def run(name: str, *calls: str, on: tuple[str, ...] = (), timeout: float = 60.0, **files: str) -> AuditResult:
        write(**files)
        return audit(Activation(name, calls=calls), on=on, timeout=timeout)

    return run
