"""The rendered documents, whole, against files that a person has looked at.

After a wanted change: `UNPATCH_UPDATE_GOLDEN=1 python -m pytest unpatch/tests/report/test_golden.py`, then read the
diff of `golden/` and open `golden/evidence.html` in a browser.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from evidence_study import study

from unpatch.report import Format, render, write

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "form"), [("evidence.md", "md"), ("evidence.html", "html"), ("summary.md", "summary")]
)
def test_document_is_the_one_that_was_approved(name: str, form: Format) -> None:
    written = render(study(), form)
    approved = GOLDEN / name
    if os.environ.get("UNPATCH_UPDATE_GOLDEN"):
        approved.write_text(written, encoding="utf-8")
    assert written == approved.read_text(encoding="utf-8")


def test_write_makes_the_folder_and_returns_all_three_files(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    paths = write(study(), out)
    assert [path.name for path in paths] == ["evidence.md", "evidence.html", "evidence.json"]
    assert sorted(out.iterdir()) == sorted(paths)
