"""The command itself: quick help, and our errors as one sentence with their exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from unpatch import __version__
from unpatch.cli import COMMANDS, main
from unpatch.errors import UnpatchError


class NegativeError(UnpatchError):
    exit_code = 1


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command `fail`, whose module raises its attribute `error`."""
    module = ModuleType("failing_command")

    @click.command()
    def command() -> None:
        raise module.error

    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "failing_command", module)
    monkeypatch.setitem(COMMANDS, "fail", ("failing_command:command", "Fails."))
    return module


@pytest.mark.parametrize(("error", "code"), [(UnpatchError("No such study."), 2), (NegativeError("One is needed."), 1)])
def test_our_errors_are_one_sentence_with_an_exit_code(fail: ModuleType, error: UnpatchError, code: int) -> None:
    fail.error = error  # type: ignore[attr-defined]
    result = CliRunner().invoke(main, ["fail"])
    assert result.exit_code == code
    assert result.stderr == f"Error: {error.message}\n"
    assert result.stdout == ""


def test_a_bug_keeps_its_traceback(fail: ModuleType) -> None:
    fail.error = ZeroDivisionError()  # type: ignore[attr-defined]
    assert isinstance(CliRunner().invoke(main, ["fail"]).exception, ZeroDivisionError)


def test_help_lists_every_command_with_a_line() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(line)}$", result.stdout, re.MULTILINE)


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"unpatch, version {__version__}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
from unpatch.cli import main
main(["--help"], standalone_mode=False)
heavy = {"torch", "rich", "jinja2", "msgspec", "unpatch.cli.report", "unpatch.cli.ablate"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


def test_python_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "unpatch", "list", "no_such_module"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: There is no module 'no_such_module' here; is it installed?\n"
    assert subprocess.run([sys.executable, "-m", "unpatch", "-h"], capture_output=True, text=True).stdout.startswith(
        "Usage: unpatch "
    )


MODULE = "from unpatch.patches import PatchManager\nmanager = PatchManager('declared')\n"
PRINTING = [["list", "declared"], ["list", "declared", "--json"], ["check", "declared"], ["--help"], ["--version"]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_device_is_one_sentence(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "declared.py").write_text(MODULE)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "unpatch", *arguments], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.stderr == "Error: Cannot write the output: No space left on device.\n"
    assert done.returncode == 2


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_pipe_whose_reader_has_gone_is_met_with_silence(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "declared.py").write_text(MODULE)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "unpatch", *arguments],
            cwd=tmp_path,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
