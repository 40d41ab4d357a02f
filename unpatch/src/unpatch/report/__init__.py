"""Evidence for people and programs: one document model, rendered as Markdown, HTML and JSON.

`write` puts all three beside each other; `render` gives one as text; `table.summary` is the short form for a terminal, and
the format `summary` the one for a pull request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unpatch.files import write_whole
from unpatch.model import StudyResult
from unpatch.report import html, json, markdown, summary
from unpatch.report.document import build

Format = Literal["md", "html", "json", "summary"]
#: What a study leaves behind; a summary is made on request.
FORMATS: tuple[Format, ...] = ("md", "html", "json")


def render(result: StudyResult, form: Format) -> str:
    """The evidence in one format."""
    if form == "json":
        return json.dumps(result)
    if form == "summary":
        return summary.render(result)
    return markdown.render(build(result, compact=True)) if form == "md" else html.render(build(result))


def write(result: StudyResult, out: Path) -> list[Path]:
    """Write evidence.md, evidence.html and evidence.json into the folder `out`, each whole, and return their paths.

    Raises WriteError where a file cannot be written.
    """
    return [write_whole(out / f"evidence.{form}", render(result, form)) for form in FORMATS]
