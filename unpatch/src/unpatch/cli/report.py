"""`unpatch report`: renders the saved result of a study again, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from unpatch.cli import output

if TYPE_CHECKING:
    from unpatch.report import Format

_SUFFIXES = {".md": "md", ".html": "html", ".json": "json", ".txt": "table"}
_FILE_WIDTH = 160  # columns of a table in a file, which no terminal limits


@click.command()
@click.argument("evidence", type=click.Path(path_type=Path), metavar="EVIDENCE.json")
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "html", "table", "json", "summary"]),
    help="What to write; by default what the name of --out ends in, else md. summary: Markdown for a pull request.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write; by default standard output."
)
def report(evidence: Path, form: str | None, out: Path | None) -> None:
    """Show the evidence of a finished study again.

    EVIDENCE.json is what `unpatch ablate` wrote. Nothing is run, and the exit code says only whether the evidence
    could be read and written, not what it says.

    \b
    Example:
      unpatch report evidence/evidence.json --format table
      unpatch report evidence/evidence.json --out evidence.html
      unpatch report evidence/evidence.json --format summary
    """
    from unpatch.files import write_whole
    from unpatch.report import json, render, table

    result = json.load(evidence)
    form = form or (_SUFFIXES.get(out.suffix.lower(), "md") if out else "md")
    if form == "table":
        if out:
            write_whole(out, table.plain(result, _FILE_WIDTH))
        else:
            output.console(None).print(table.summary(result))
        return
    text = render(result, cast("Format", form))
    if out:
        write_whole(out, text)
    else:
        output.echo(text)
