"""The HTML document: whatever the texts hold, its elements are those of the template, and it needs nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from evidence_study import study
from hostile import hostile_texts, infested
from hypothesis import given, settings

from unpatch.report import render
from unpatch.report.words import visible

VOID = {"meta", "wbr"}
ELEMENTS = {
    *VOID, "html", "head", "title", "style", "body", "header", "nav", "main", "section", "h1", "h2", "h3", "h4", "p",
    "ul", "li", "dl", "div", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "details",
    "summary", "span", "strong", "a",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "http-equiv", "class", "id", "href", "title", "aria-label", "tabindex",
    "role", "scope", "colspan", "open", "data-head",
}  # fmt: skip


class Page(HTMLParser):
    """Elements, attributes and texts of a page; complains about elements that do not close."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]


@given(hostile_texts)
@settings(deadline=None, max_examples=40)
def test_no_text_becomes_an_element_or_an_attribute(text: str) -> None:
    page = Page(render(infested(text), "html"))
    assert page.elements <= ELEMENTS
    assert {name for name, _ in page.attributes} <= ATTRIBUTES
    assert not page.comments
    assert page.texts["h1"] == [visible(text)]
    assert len(page.texts["style"]) == 1


@given(hostile_texts)
@settings(deadline=None, max_examples=20)
def test_links_lead_to_places_of_the_document(text: str) -> None:
    page = Page(render(infested(text), "html"))
    anchors = page.values("id")
    assert len(set(anchors)) == len(anchors)
    assert {link.removeprefix("#") for link in page.values("href")} <= set(anchors)


def test_every_patch_and_its_reason_is_in_the_overview() -> None:
    page = Page(render(study(), "html"))
    reasons = page.values("title")
    assert reasons == [visible(patch.because) for patch in study().patches]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = Page(render(study(), "html"))
    assert any(value.startswith("default-src 'none'") for value in page.values("content"))
    assert "url(" not in page.texts["style"][0]
    assert "@import" not in page.texts["style"][0]


def test_long_identifiers_break_between_their_words_only() -> None:
    names = {"share_memory", "operator[batch_norm]", "torch/nn/modules/module.py:share_memory"}
    page = render(study(), "html")
    assert "<code>operator[<wbr>batch_<wbr>norm]</code>" in page
    assert names & set(Page(page).texts["code"])


@pytest.mark.parametrize("word", ["prefers-color-scheme: dark", "@media print", "max-width: 700px"])
def test_the_page_is_made_for_the_dark_for_paper_and_for_a_phone(word: str) -> None:
    assert word in Page(render(study(), "html")).texts["style"][0]
