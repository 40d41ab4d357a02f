"""Renders the evidence document as one HTML file that needs no network and runs no script.

Every text is escaped; the page's own content policy forbids whatever might still slip through.
"""

from __future__ import annotations

from unpatch.report.blocks import Document
from unpatch.report.pages import page


def render(document: Document) -> str:
    """The document as a complete HTML page."""
    return page("evidence.html", document=document)
