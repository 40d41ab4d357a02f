"""The document model: what an evidence document is made of, without saying how it looks.

Blocks hold blocks or spans, spans hold plain text; the Markdown and the HTML renderer each have one rule per class.
All text is data: no renderer interprets it as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

#: What a verdict means for the patch. go: nothing speaks for it; harm: it does damage; keep: something depends on it;
#: unsure: noise hides the answer; note: a difference that is listed and does not decide; none: nothing to say.
Tone = Literal["go", "harm", "keep", "unsure", "note", "none"]


# ------------------------------------------------------------------------------------------------------ spans
@dataclass(frozen=True, slots=True)
class Text:
    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    kind: ClassVar[str] = "strong"
    text: str


@dataclass(frozen=True, slots=True)
class Mono:
    """Literal text: identifiers, paths, values; its line breaks are kept."""

    kind: ClassVar[str] = "mono"
    text: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A verdict word. `quiet` ones recede, so that the exceptions in a table of many stand out."""

    kind: ClassVar[str] = "badge"
    text: str
    tone: Tone
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A reference to the section with that anchor."""

    kind: ClassVar[str] = "link"
    text: str
    anchor: str


Span = Text | Strong | Mono | Badge | Link
Inline = tuple[Span, ...]


def inline(*parts: str | Span) -> Inline:
    """Spans in a row; a bare string is a Text."""
    return tuple(Text(part) if isinstance(part, str) else part for part in parts)


def joined(parts: Iterable[Inline], separator: str = ", ") -> Inline:
    """All parts in one, with a separator between them."""
    spans: list[Span] = []
    for part in parts:
        spans += (Text(separator), *part) if spans else part
    return tuple(spans)


# ----------------------------------------------------------------------------------------------------- blocks
@dataclass(frozen=True, slots=True)
class Paragraph:
    kind: ClassVar[str] = "paragraph"
    content: Inline


@dataclass(frozen=True, slots=True)
class Bullets:
    kind: ClassVar[str] = "bullets"
    items: tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they stand for."""

    kind: ClassVar[str] = "facts"
    items: tuple[tuple[str, Inline], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Cells under the table's heads, and perhaps a note on the whole row, `label` saying which row it is."""

    cells: tuple[Inline, ...]
    label: Inline = ()
    note: Inline = ()


@dataclass(frozen=True, slots=True)
class Table:
    kind: ClassVar[str] = "table"
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    numeric: tuple[int, ...] = ()  #: columns that hold numbers


@dataclass(frozen=True, slots=True)
class Code:
    kind: ClassVar[str] = "code"
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """Something long, folded away behind its summary."""

    kind: ClassVar[str] = "details"
    summary: Inline
    blocks: tuple[Block, ...]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    kind: ClassVar[str] = "section"
    title: str
    blocks: tuple[Block, ...]
    anchor: str = ""


def prose(text: str) -> tuple[Paragraph, ...]:
    """Written text as paragraphs: blank lines part them, single line breaks do not count."""
    parts = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return tuple(Paragraph(inline(part)) for part in parts if part)


Block = Paragraph | Bullets | Facts | Table | Code | Details | Section


@dataclass(frozen=True, slots=True)
class Pointer:
    """One patch in the overview that stays in sight while one reads."""

    anchor: str
    title: str
    verdict: Badge
    because: str


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    subtitle: str
    headline: str  #: how many patches can go, in a few words
    pointers: tuple[Pointer, ...]
    sections: tuple[Section, ...]
