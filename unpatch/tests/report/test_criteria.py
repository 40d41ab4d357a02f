"""Acceptance criteria: each is met by a clean patch, and missed for the one reason it is there for."""

from __future__ import annotations

import pytest
from evidence_study import arm, case, channels, error, patch, reach

from unpatch.model import CaseResult
from unpatch.report.criteria import acceptance

REPEATABLE, NEEDED, CONCLUDED, REACHED = range(4)
FAILED = tuple(arm(name, error("same")) for name in ("A", "A'", "B"))
CLEAN = case("p", "clean")


def missed(*cases: CaseResult) -> set[int]:
    """The criteria that these cases miss, by number."""
    result = acceptance(patch("p", "inert", "Alike.", cases))
    assert all(criterion.because for criterion in result)
    return {number for number, criterion in enumerate(result) if not criterion.met}


def because(number: int, *cases: CaseResult) -> str:
    return acceptance(patch("p", "inert", "Alike.", cases))[number].because


def test_a_clean_patch_meets_all() -> None:
    assert not missed(CLEAN, case("p", "other"))


def test_a_patch_without_cases_misses_what_needs_one() -> None:
    assert missed() == {REPEATABLE, CONCLUDED, REACHED}


@pytest.mark.parametrize("verdict", ["required", "behavioural"])
def test_a_case_that_needs_the_patch(verdict: str) -> None:
    assert missed(CLEAN, case("p", "bad", verdict=verdict)) == {NEEDED}
    assert because(NEEDED, CLEAN, case("p", "bad", verdict=verdict)) == f"bad: {verdict}"


def test_noise_in_a_deciding_channel() -> None:
    noisy = case("p", "noisy", channels=channels(keys="inconclusive"), verdict="inconclusive")
    assert missed(CLEAN, noisy) == {REPEATABLE, NEEDED}
    assert "1 of 2 cases (noisy)" in because(REPEATABLE, CLEAN, noisy)


def test_noise_in_messages_is_mentioned_and_does_not_count() -> None:
    noisy = case("p", "noisy", channels=channels(messages="inconclusive"))
    assert not missed(noisy)
    assert "do not decide, differ in 1 of 1 case (noisy)" in because(REPEATABLE, noisy)


def test_outcomes_that_differ_between_two_runs_with_the_patch() -> None:
    assert missed(case("p", "flaky", arms=(arm("A"), arm("A'", error("x")), arm("B")))) == {REPEATABLE}


def test_cases_that_all_fail_alike_prove_nothing() -> None:
    silent = case("p", "silent", arms=FAILED, verdict="nothing")
    assert missed(silent) == {CONCLUDED}
    assert not missed(silent, CLEAN)
    concluded = acceptance(patch("p", "inert", "Alike.", (silent, CLEAN)))[CONCLUDED]
    assert (concluded.text, concluded.because) == ("At least one case can be compared", "1 of 2 cases")


def test_reach_that_was_not_measured() -> None:
    assert missed(CLEAN, case("p", "blind", reach=None)) == {REACHED}
    assert "missing in 1 of 1 case (blind)" in because(REACHED, case("p", "blind", reach=None))


def test_reach_that_is_unknown_inside_a_compiled_region_is_mentioned() -> None:
    record = reach("p", "compiled")
    unknown = case("p", "compiled", reach=type(record)("p", "compiled", 0, (), 2, 0, (), "unknown"))
    assert "unknown in 1 of 1 case (compiled)" in because(REACHED, unknown)


def test_many_cases_are_counted_and_not_all_named() -> None:
    many = tuple(case("p", f"c{number}", verdict="required") for number in range(9))
    assert because(NEEDED, *many).endswith("c4: required; 4 more")
