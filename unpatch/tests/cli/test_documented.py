"""The examples of docs/patches.md and docs/studies.md are run: what the pages show is whole, and what the commands print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "patches.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```\n\$ unpatch (.*)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)


def _timeless(text: str) -> list[str]:
    """Without what another release of Python changes, and without the spaces that fill columns."""
    text = re.sub(r"is now source:\w{12}|\"source:\w{12}\"", "<fingerprint>", text)
    return [re.sub(r" +", " ", line).strip() for line in re.sub(r"python 3[\d.]+", "<python>", text).splitlines()]


def test_there_are_examples():
    assert [arguments.split()[0] for arguments, _ in EXAMPLES] == ["list", "check"]


@pytest.mark.parametrize(("arguments", "shown"), EXAMPLES, ids=[arguments for arguments, _ in EXAMPLES])
def test_the_page_shows_what_is_printed(tmp_path, arguments, shown):
    # Given, not inherited: readline, which pytest loads, sets COLUMNS behind the back of os.environ.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "UNPATCH_DISABLE")}
    (source,) = re.findall(r"^```python\n(# my_backend\.py\n(?:.*\n)*?)```$", PAGE, re.MULTILINE)
    (tmp_path / "my_backend.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", "from unpatch.cli import main; main()", *arguments.split()],
        capture_output=True, text=True, cwd=tmp_path, check=False, env=environment,
    )  # fmt: skip
    assert done.stderr == ""
    assert _timeless(done.stdout) == _timeless(shown)
    assert done.returncode == (1 if arguments.startswith("check") else 0)


def test_the_study_that_the_page_shows_is_judged(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "studies.md").read_text(encoding="utf-8")
    patches, study = re.findall(r"^```python\n((?:.*\n)*?)```$", page, re.MULTILINE)[:2]
    (tmp_path / "patches.py").write_text(patches)
    (tmp_path / "study.py").write_text(study)
    done = subprocess.run(
        [sys.executable, "-c", "from unpatch.cli import main; main()", "ablate", ".", "--jobs", "1"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "reach: 2 done" in done.stderr
    assert re.search(r"^tensor-type ", done.stdout, re.MULTILINE)
