"""Renders the evidence document as one HTML file that needs no network and runs no script.

jinja2 escapes every text; the page's own content policy forbids whatever might still slip through.
"""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from unpatch.report.blocks import Document

_environment = Environment(
    loader=PackageLoader("unpatch.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
#: Where a long identifier may be broken: after what parts its words.
_environment.filters["parts"] = lambda text: re.split(r"(?<=[_.,:/\[\-])(?=\w)", text)


def render(document: Document) -> str:
    """The document as a complete HTML page."""
    return _environment.get_template("evidence.html").render(document=document)
