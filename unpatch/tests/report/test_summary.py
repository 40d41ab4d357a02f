"""The summary for a pull request: what a reviewer decides by, and always short enough to be pasted."""

from __future__ import annotations

import msgspec
import pytest
from evidence_study import LONG, case, patch, study
from hostile import hostile_texts, infested
from hypothesis import given, settings

from unpatch.model import ProbeRecord
from unpatch.report import render
from unpatch.report.summary import LIMIT

GITHUB = 65_536  # characters of a comment


def test_it_says_what_a_reviewer_decides_by() -> None:
    text = render(study(), "summary")
    for words in (
        "4 of 7 patches can be removed",
        "Removable: ",
        "| Patch | Group |",
        "itself breaks cases",
        "1 of 1 case passes with it and fails without it (compiled).",
        "script[add_module]: builtins.RuntimeError -> torch.jit.Error",
        "In 1 more the error is the same",
        "AutogradFunctionality excluded",
        "What is not covered",
        "Devices other than the virtual one.",
        "unpatch ablate studies/every_verdict --out evidence",
    ):
        assert words in text
    assert text.count("It was called 80 times in 2 of 2 cases") == 1
    assert len(text) < len(render(study(), "md")) / 2


@pytest.mark.parametrize("patches", [1, 5, 40])
def test_it_fits_into_a_comment(patches: int) -> None:
    lines = tuple(f"case[{number}]: {LONG} → {LONG}" for number in range(100))
    cases = tuple(case("p", f"error_in_a_worker[{number}]", verdict="nothing") for number in range(100))
    probe = ProbeRecord("probe", "p", LONG, LONG, LONG, LONG)
    many = tuple(
        patch(f"p{n}", "inert", LONG[:1000], cases, listed=lines, probes=(probe,) * (n < 5)) for n in range(patches)
    )
    text = render(msgspec.structs.replace(study(), patches=many), "summary")
    assert len(text) < LIMIT < GITHUB
    assert "more, in the evidence" in text
    assert " more\n" in text  # of the cases that were not compared


@given(hostile_texts)
@settings(deadline=None, max_examples=15)
def test_it_takes_any_text(text: str) -> None:
    assert "can be removed" in render(infested(text), "summary")
