"""`unpatch report`: a saved result, rendered again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from evidence_study import study

from unpatch.cli import main
from unpatch.report import render, write
from unpatch.report.table import plain


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(study(), tmp_path_factory.mktemp("evidence"))[2]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_it_prints_what_the_study_wrote(evidence: Path, form: str) -> None:
    result = run(evidence, "--format", form)
    assert result.exit_code == 0
    assert result.stdout_bytes == evidence.with_suffix(f".{form}").read_bytes()


def test_a_summary_is_made_on_request(evidence: Path) -> None:
    assert run(evidence, "--format", "summary").stdout_bytes.decode() == render(study(), "summary")


def test_markdown_is_the_default(evidence: Path) -> None:
    assert run(evidence).stdout_bytes == evidence.with_suffix(".md").read_bytes()


def test_the_table_is_plain_text_in_a_pipe(evidence: Path) -> None:
    result = run(evidence, "--format", "table")
    assert "\x1b" not in result.stdout
    assert "branch unreachable" in " ".join(result.stdout.split())
    assert result.stdout.rstrip().endswith("4 of 7 patches can be removed.")


@pytest.mark.parametrize(
    ("name", "form"), [("a.md", "md"), ("a.HTML", "html"), ("a.json", "json"), ("a.unknown", "md")]
)
def test_the_name_of_the_file_says_the_format(evidence: Path, tmp_path: Path, name: str, form: str) -> None:
    result = run(evidence, "--out", tmp_path / "new" / name)
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "new" / name).read_text(encoding="utf-8") == render(study(), form)  # type: ignore[arg-type]


def test_the_option_wins_over_the_name(evidence: Path, tmp_path: Path) -> None:
    assert run(evidence, "--format", "table", "--out", tmp_path / "a.html").exit_code == 0
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == plain(study(), 160)


def test_what_is_not_evidence_is_wrong_usage(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for path in (other, tmp_path / "missing.json"):
        result = run(path)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert str(path) in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_place_that_cannot_be_written_is_wrong_usage(evidence: Path) -> None:
    result = run(evidence, "--out", evidence / "below.md")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Cannot write ")


def test_help_has_an_example() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "unpatch report evidence/evidence.json --format table" in result.stdout


def test_as_a_process_it_writes_utf_8_and_imports_no_torch(evidence: Path) -> None:
    code = f"""
import sys
from unpatch.cli import main
main(["report", {str(evidence)!r}, "--format", "html"], standalone_mode=False)
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "LC_ALL": "C"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == evidence.with_suffix(".html").read_bytes()
