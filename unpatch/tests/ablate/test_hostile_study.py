"""Patches and workloads that reach for the lab itself: verdicts stay true, and no case costs another."""

from __future__ import annotations

from pathlib import Path

import pytest

from unpatch.ablate.run import run_study
from unpatch.model import PatchResult, StudyResult

STUDY = Path(__file__).parent / "studies" / "hostile"


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> StudyResult:
    return run_study(STUDY, tmp_path_factory.mktemp("hostile"), jobs=2, timeout=60)


def patch(result: StudyResult, id: str) -> PatchResult:
    return next(found for found in result.patches if found.patch.id == id)


@pytest.mark.parametrize(
    ("id", "verdict", "removable"),
    [
        # What the lab itself uses is replaced.
        ("clock", "unreached", True),
        ("recorder", "inconclusive", False),
        # What is told by a repr in short.
        ("hex", "behavioural", False),
        ("container", "behavioural", False),
        ("dataclass", "behavioural", False),
        ("digits", "behavioural", False),
        ("elements", "behavioural", False),
        # The study clears the variable by which a patch is suppressed.
        ("cleared", "behavioural", False),
        ("early", "inconclusive", False),
        ("disabled", "inconclusive", False),
        ("empty", "inconclusive", False),
        # A patch that makes warnings errors.
        ("study.strict", "harmful", True),
        # A workload that fails before it comes to the patch.
        ("broken", "inconclusive", False),
        ("bystander", "inert", True),
    ],
)
def test_verdicts(result, id, verdict, removable):
    found = patch(result, id)
    assert (found.verdict, found.removable) == (verdict, removable), found.because


def test_an_arm_that_is_no_test_of_the_patch_says_so(result):
    assert "in arm B too" in patch(result, "early").because
    assert "in no arm" in patch(result, "disabled").because
    assert "in no arm" in patch(result, "empty").because


def test_what_could_not_be_recorded_is_told(result):
    (case,) = patch(result, "recorder").cases
    (exceptions,) = [found for found in case.channels if found.channel == "exceptions"]
    assert "not today" in exceptions.detail


@pytest.mark.parametrize("id", ["closes_everything", "takes_every_number", "warns_of_a_file", "is_large"])
def test_what_a_workload_does_to_its_process_costs_nothing(result, id):
    (case,) = [found for found in patch(result, "bystander").cases if found.case == id]
    assert [arm.outcome for arm in case.arms] == ["passed"] * 3


@pytest.mark.parametrize("kind", ["SilentError", "ExitsError", "NotedError"])
def test_an_exception_that_cannot_be_told_is_a_failure_like_any_other(result, kind):
    (case,) = [found for found in patch(result, "bystander").cases if found.case == f"raises[{kind}]"]
    assert [arm.error.type for arm in case.arms] == [f"study.{kind}"] * 3


def test_a_message_that_is_no_text_is_escaped(result):
    (case,) = [found for found in patch(result, "bystander").cases if found.case == "raises[UndecodableError]"]
    assert case.arms[0].error.message == "a\\udc80"
