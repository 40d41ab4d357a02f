"""The Markdown document, read back by a Markdown parser: what comes out is the text that went in, in its place."""

from __future__ import annotations

import re

from hostile import hostile_texts, infested
from hypothesis import example, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from unpatch.report import render
from unpatch.report.blocks import (
    Badge,
    Block,
    Bullets,
    Code,
    Details,
    Document,
    Link,
    Mono,
    Paragraph,
    Row,
    Section,
    Strong,
    Table,
    inline,
)
from unpatch.report.markdown import render as render_document
from unpatch.report.words import visible

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
OURS = re.compile(r'</?(?:details|summary|code|b)>|<details open>|<br>|<a id="[a-z0-9-]+">|</a>')


def parsed(*blocks: Block) -> list[Token]:
    """The tokens of a document that holds just these blocks, less those of its title."""
    text = render_document(Document("T", "S", "H", (), (Section("X", blocks),)))
    tokens = PARSER.parse(text)
    heading = next(n for n, token in enumerate(tokens) if token.type == "heading_close" and token.tag == "h2")
    return tokens[heading + 1 :]


def text_of(token: Token) -> str:
    """What a reader sees of an inline token; zero-width spaces are the renderer's own."""
    parts = []
    for child in token.children or ():
        if child.type == "html_inline":
            parts.append("\n" if child.content == "<br>" else "")
        elif child.type == "softbreak":
            parts.append(" ")
        else:
            parts.append(child.content)
    return "".join(parts).replace("\u200b", "")


def one_line(text: str) -> str:
    return " ".join(text.replace("\u200b", "").split())


def inlines(tokens: list[Token]) -> list[Token]:
    return [token for token in tokens if token.type == "inline"]


@given(hostile_texts.map(visible))
@example("1. no list")
@example("- no list")
@example("# no heading")
@example("***")
@example("a\\|b")
def test_a_paragraph_is_one_paragraph_with_its_text(text: str) -> None:
    tokens = parsed(Paragraph(inline(text)), Paragraph(inline("end")))
    assert {token.type for token in tokens} == {"paragraph_open", "inline", "paragraph_close"}
    texts = [one_line(text_of(token)) for token in inlines(tokens)]
    assert [part for part in texts if part] == [part for part in (one_line(text), "end") if part]


@given(hostile_texts.map(visible))
@example("a|b\\|c`d``e")
def test_a_table_row_keeps_its_cells(text: str) -> None:
    cells = (
        inline(text),
        inline(Mono(text)),
        inline(Strong(text), Badge(text, "keep"), Link(text, "x")),
        inline("end"),
    )
    tokens = parsed(Table(("A", "B", "C", "D"), (Row(cells), Row(cells))))
    found = [text_of(token) for token in inlines(tokens)]
    assert len(found) == 12
    for row in (found[4:8], found[8:12]):
        assert one_line(row[0]) == one_line(text)
        assert one_line(row[1]) == (one_line(text) or ("(empty)" if not text else ""))
        assert row[3] == "end"


@given(hostile_texts.map(visible))
def test_a_bullet_is_one_bullet(text: str) -> None:
    tokens = parsed(Bullets((inline(text), inline(Mono(text)), inline("end"))))
    assert sum(token.type == "list_item_open" for token in tokens) == 3
    assert not any(token.type in ("heading_open", "hr", "fence", "code_block", "blockquote_open") for token in tokens)


@given(hostile_texts.map(visible))
@example("```\n````\n`````")
@example("~~~")
def test_code_is_one_fence_with_its_text(text: str) -> None:
    tokens = parsed(Code(text, "python"), Paragraph(inline("end")))
    fences = [token for token in tokens if token.type == "fence"]
    assert [fence.content.removesuffix("\n") for fence in fences] == [text.removesuffix("\n")]
    assert [text_of(token) for token in inlines(tokens)] == ["end"]


@given(hostile_texts.map(visible))
def test_what_is_folded_away_is_still_markdown(text: str) -> None:
    tokens = parsed(Details(inline(text, Mono(text), Badge(text, "go")), (Paragraph(inline(Strong("within"))),)))
    assert [text_of(token) for token in inlines(tokens)] == ["within"]
    assert [token.content.split("\n")[0] for token in tokens if token.type == "html_block"] == [
        "<details>",
        "</details>",
    ]


@given(hostile_texts)
@settings(deadline=None, max_examples=25)
def test_no_text_becomes_html(text: str) -> None:
    html = [
        piece.content
        for token in PARSER.parse(render(infested(text), "md"))
        for piece in (token, *(token.children or ()))
        if piece.type in ("html_block", "html_inline")
    ]
    assert html
    assert not [piece for piece in html if "<" in OURS.sub("", piece)]


@given(hostile_texts)
@settings(deadline=None, max_examples=25)
def test_nobody_is_notified_and_no_issue_is_linked(text: str) -> None:
    literal = False  # GitHub links nothing inside code, which keeps its characters
    for token in PARSER.parse(render(infested(f"@someone {text} #12 GH-3"), "md")):
        for child in token.children or ():
            if child.type == "html_inline":
                literal = child.content == "<code>" or (literal and child.content != "</code>")
            elif child.type == "text" and not literal:
                assert not re.search(r"@\w|#\d|GH-\d", child.content)
