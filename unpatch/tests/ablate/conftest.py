"""Writes small studies for tests that need one of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

LIBRARY = """
def double(x):
    return 2 * x
"""
STUDY = """
import library
from unpatch.patches import PatchManager
from unpatch.study import Study

manager = PatchManager("small")

@manager.patch("library.double", id="double", group="all", title="Double", reason="to be judged")
def double(x):
    return x + x

study = Study("small", "A small study", patches=manager)
"""
WORKLOAD = """
@study.workload()
def doubles(case):
    case.output("y", library.double(2))
"""


@pytest.fixture
def write_study(tmp_path) -> Callable[..., Path]:
    """Writes a study into a folder; `head` declares `study`, `body` the workloads."""

    def write(body: str = WORKLOAD, head: str = STUDY, **files: str) -> Path:
        folder = tmp_path / "study"
        folder.mkdir(exist_ok=True)
        (folder / "study.py").write_text(head + textwrap.dedent(body))
        (folder / "library.py").write_text(LIBRARY)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        return folder

    return write
