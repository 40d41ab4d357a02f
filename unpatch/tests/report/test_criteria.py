"""Acceptance criteria: each is met by a clean patch, and missed for the one reason it is there for."""

from __future__ import annotations

import pytest
from evidence_study import arm, case, channels, error, patch, reach

from unpatch.model import CaseResult
from unpatch.report.criteria import acceptance

REPEATABLE, NEEDED, CONCLUDED, REACHED, NAMED = range(5)
FAILED = tuple(arm(name, error("same")) for name in ("A", "A'", "B"))
CLEAN = case("p", "clean")


def missed(*cases: CaseResult, listed: tuple[str, ...] = ()) -> set[int]:
    """The criteria that these cases miss, by number."""
    result = acceptance(patch("p", "inert", "Alike.", cases, listed=listed))
    assert all(criterion.because for criterion in result)
    return {number for number, criterion in enumerate(result) if not criterion.met}


def because(number: int, *cases: CaseResult, listed: tuple[str, ...] = ()) -> str:
    return acceptance(patch("p", "inert", "Alike.", cases, listed=listed))[number].because


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


def test_reach_that_was_not_measured() -> None:
    assert missed(CLEAN, case("p", "blind", reach=None)) == {REACHED}
    assert "missing in 1 of 1 case (blind)" in because(REACHED, case("p", "blind", reach=None))


def test_reach_that_is_unknown_inside_a_compiled_region_is_mentioned() -> None:
    record = reach("p", "compiled")
    unknown = case("p", "compiled", reach=type(record)("p", "compiled", 0, (), 2, 0, (), "unknown"))
    assert "unknown in 1 of 1 case (compiled)" in because(REACHED, unknown)


@pytest.mark.parametrize(
    "changed",
    [
        case("p", "op", channels=channels(messages="changed")),
        case("p", "op", channels=channels(warnings="changed")),
        case("p", "op", channels=channels(exceptions="changed")),
        case("p", "op", arms=FAILED, verdict="error_changed"),
    ],
)
def test_a_change_that_no_line_names(changed: CaseResult) -> None:
    assert NAMED in missed(CLEAN, changed)
    assert NAMED in missed(CLEAN, changed, listed=("operator: x -> y", "op[other]: x -> y"))
    assert NAMED not in missed(CLEAN, changed, listed=("op: x -> y",))


def test_many_cases_are_counted_and_not_all_named() -> None:
    many = tuple(case("p", f"c{number}", verdict="required") for number in range(9))
    assert because(NEEDED, *many).endswith("c4: required; 4 more")
