"""The summary for a terminal: every word whole at any width, and good without colours."""

from __future__ import annotations

import pytest
from evidence_study import study
from hostile import hostile_texts, infested
from hypothesis import given, settings
from rich.cells import cell_len

from unpatch.report.table import plain
from unpatch.report.words import visible


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 240])
def test_it_fits_and_cuts_no_word(width: int) -> None:
    text = plain(study(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    for patch in study().patches:
        assert one_line(visible(patch.because)) in one_line(text)
    for word in ("behavioural", "inconclusive", "not compared", "harmful", "required", "unreached", "unreachable"):
        assert word in text


def test_a_wide_terminal_gets_a_column_per_channel() -> None:
    head, first = plain(study(), 240).splitlines()[:2]
    assert head.split() == [
        "patch", "reached", "branch", "operators", "keys", "tensors", "exceptions", "messages", "warnings", "verdict",
        "remove?",
    ]  # fmt: skip
    assert first.split()[-3:] == ["branch", "unreachable", "yes"]


def test_a_narrow_terminal_gets_the_channels_below() -> None:
    text = one_line(plain(study(), 80))
    assert "inert: operators, keys, tensors, exceptions, messages, warnings" in text
    assert "harmful: exceptions; changed: messages; not compared: operators, keys, tensors; inert: warnings" in text


def test_harmful_is_explained() -> None:
    assert "the patch itself breaks cases" in one_line(plain(study(), 80))


def test_it_ends_with_the_answer() -> None:
    assert plain(study(), 80).endswith("\n4 of 7 patches can be removed.\n")


@given(hostile_texts)
@settings(deadline=None, max_examples=25)
def test_no_text_is_taken_for_markup_or_reaches_the_terminal(text: str) -> None:
    shown = plain(infested(f"[red]{text}[/red]"), 240)
    assert "[red]" in shown
    assert not {character for character in shown if character != "\n" and ord(character) < 32}
