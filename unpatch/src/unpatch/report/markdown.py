"""Renders the evidence document as Markdown that GitHub shows as intended, whatever the texts in it contain.

No text can open HTML, end a table cell, notify a person or link an issue: what has a meaning in Markdown is escaped,
by entity where a backslash would not survive inside a table.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from unpatch.report.blocks import (
    Badge,
    Block,
    Bullets,
    Code,
    Details,
    Document,
    Facts,
    Inline,
    Link,
    Mono,
    Paragraph,
    Section,
    Span,
    Strong,
    Table,
    Tone,
)

_SYMBOLS: dict[Tone, str] = {"go": "🟢", "harm": "🟣", "keep": "🔴", "unsure": "🟡", "note": "🔵", "none": "⚪"}


def render(document: Document) -> str:
    """The document as GitHub-flavoured Markdown."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), f"**{_text(document.headline)}**"]
    for section in document.sections:
        parts += _block(section, level=2)
    return "\n\n".join(parts) + "\n"


# ----------------------------------------------------------------------------------------------------- blocks
def _block(block: Block, level: int) -> Iterator[str]:
    """The chunks of one block, which a blank line has to part."""
    match block:
        case Paragraph(content):
            yield _line(content)
        case Bullets(items):
            yield "\n".join(f"- {_line(item)}" for item in items)
        case Facts(items):
            yield "\n".join(f"- **{_text(name)}**: {_inline(value)}" for name, value in items)
        case Table():
            yield from _table(block)
        case Code(text, language):
            yield _fenced(text, language)
        case Details(summary, blocks, is_open):
            yield f"<details{' open' if is_open else ''}>\n<summary>{_summary(summary)}</summary>"
            for inner in blocks:
                yield from _block(inner, level)
            yield "</details>"
        case Section(title, blocks, anchor):
            if anchor:
                yield f'<a id="{html.escape(anchor)}"></a>'
            yield f"{'#' * min(level, 6)} {_text(title)}"
            for inner in blocks:
                yield from _block(inner, level + 1)


def _table(table: Table) -> Iterator[str]:
    rules = ["--:" if column in table.numeric else "---" for column in range(len(table.head))]
    lines = [[_text(head) for head in table.head], rules]
    lines += [[_inline(cell) for cell in row.cells] for row in table.rows]
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = [f"- {_inline(row.label)}: {_inline(row.note)}" for row in table.rows if row.note]
    if notes:
        yield "\n".join(notes)


def _fenced(text: str, language: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}"


# ------------------------------------------------------------------------------------------------------ spans
def _line(content: Inline) -> str:
    """Spans that begin a block: they must not look like a heading, a list or a rule."""
    line = _inline(content).strip()
    return re.sub(r"^(\d*)([#+=.)-])", r"\1\\\2", line)


def _inline(content: Inline) -> str:
    return "".join(map(_span, content))


def _span(span: Span) -> str:
    match span:
        case Strong(text):
            return _bold(text)
        case Mono(text):
            return _mono(text)
        case Badge(text, tone, quiet):
            return _text(text) if quiet else f"{_SYMBOLS[tone]} {_bold(text)}"
        case Link(text, anchor):
            return f"[{_text(text)}](#{anchor})"
        case _:
            return _text(span.text)


def _bold(text: str) -> str:
    bold = _text(text).strip()  # a space inside the asterisks would show them
    return f"**{bold}**" if bold else ""


_ENTITIES = {character: f"&#{ord(character)};" for character in "|\\`*_[]~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# What Markdown, or GitHub after it, reads as more than text. An underscore inside a word is not among them.
_SPECIAL = re.compile(
    r"[&<>|\\`*\[\]~$]|(?<![^\W_])_|_(?![^\W_])|@(?=\w)|#(?=\d)|(?<=GH)-(?=\d)|:(?=(?:[a-zA-Z_][\w+-]*|100|1234|[+-]1):)"
)


def _text(text: str) -> str:
    """Plain words on one line. A zero-width space parts what GitHub would turn into a mention, a link or an emoji."""

    def escaped(match: re.Match[str]) -> str:
        character = match.group()
        if character in "*_[]~":
            return "\\" + character
        return _ENTITIES.get(character, f"{character}&#8203;")

    return _SPECIAL.sub(escaped, re.sub(r"\s+", " ", text))


def _mono(text: str) -> str:
    """Literal text; as an element where backticks could not hold it."""
    if not text:
        return "(empty)"
    if text != text.strip() or re.search(r"[`|\\\n]", text):
        return f"<code>{''.join(_ENTITIES.get(c, c) for c in text).replace(chr(10), '<br>')}</code>"
    return f"`{text}`"


def _summary(content: Inline) -> str:
    """The summary of a fold: GitHub reads no Markdown there, only HTML."""
    parts = []
    for span in content:
        text = re.sub(r"\s+", " ", html.escape(span.text, quote=False))
        if isinstance(span, Mono):
            parts.append(f"<code>{text}</code>")
        else:
            text = re.sub(r"@(?=\w)|#(?=\d)", lambda match: f"{match.group()}&#8203;", text)
            bold = isinstance(span, Strong | Badge)
            symbol = f"{_SYMBOLS[span.tone]} " if isinstance(span, Badge) and not span.quiet else ""
            parts.append(f"{symbol}<b>{text}</b>" if bold else text)
    return "".join(parts)
