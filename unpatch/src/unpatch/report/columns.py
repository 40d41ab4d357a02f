"""Tables without lines, as list, check and audit print them: good in a terminal and in a pipe."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from unpatch.report.words import visible


def table(*heads: str) -> Table:
    """An empty table with these columns; long text is folded, never cut."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        made.add_column(head, overflow="fold")
    return made


def plain(text: str) -> Text:
    """Text as it stands: no markup, no control characters."""
    return Text(visible(text))
