"""Every row of the tables in docs/verdicts.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpatch.ablate.compare import compare
from unpatch.ablate.verdict import (
    CONCLUDING,
    case_verdict,
    channel_results,
    patch_verdict,
    strongest,
    strongest_by_channel,
    summarise_reach,
)
from unpatch.model import (
    CaseResult,
    CaseVerdict,
    ChannelResult,
    ErrorInfo,
    Observation,
    ReachRecord,
    ReachSummary,
    ThreadRecord,
    WarningInfo,
)


def seen(value: str = "1", operators: tuple[str, ...] = ("add",), keys: tuple[str, str] = ("0x1", "0x0"), **more):
    thread = ThreadRecord("main", "cpu", operators, (0,) * len(operators))
    given = {"outcome": "passed", "threads": (thread,), "key_sets": (keys,), "values": {"y": value}, **more}
    return Observation("case", seconds=0.0, **given)


def error(kind: str = "E", message: str = "text", place: str = "study.py:1", outcome: str = "failed") -> Observation:
    return Observation("case", outcome, 0.0, ErrorInfo(kind, message, place, ""))


def warned(text: str) -> Observation:
    return seen(warnings=(WarningInfo("UserWarning", text),))


def judge(a: Observation, a2: Observation, b: Observation):
    noise, effect = compare(a, a2, Path()), compare(a, b, Path())
    channels = channel_results(a, b, noise, effect)
    return case_verdict(a, a2, b, channels), {result.channel: result for result in channels}


CRASH, HANG = error("SIGSEGV", outcome="crashed"), error("timeout", "no progress", outcome="timed_out")

#: What cannot be compared, because the case did not pass in both arms.
APART = {"operators": "not_compared", "keys": "not_compared", "tensors": "not_compared"}

CASES = [
    # what, A, A′, B, the case, channels
    ("A ≠ A′ in values", seen(), seen("2"), seen(), "inconclusive", {"tensors": "inconclusive", "operators": "inert"}),
    ("A ≠ A′ in operators", seen(), seen(operators=("mul",)), seen(), "inconclusive", {"operators": "inconclusive"}),
    ("A ≠ A′ in outcome", seen(), error(), seen(), "inconclusive", {"exceptions": "inconclusive"}),
    ("A ≠ A′ in outcome, B fails", seen(), error(), error(), "inconclusive", {"exceptions": "inconclusive"}),
    ("A ≠ A′, A fails", error(), seen(), error(), "inconclusive", {"exceptions": "inconclusive"}),
    ("A ≠ A′ in type", error("E"), error("F"), error("E"), "inconclusive", {"exceptions": "inconclusive"}),
    ("equal, equal", seen(), seen(), seen(), "inert", {"tensors": "inert", "keys": "inert", "messages": "inert"}),
    (
        "equal, A fails, B passes",
        error(),
        error(),
        seen(),
        "harmful",
        {"exceptions": "harmful", "tensors": "not_compared"},
    ),
    (
        "equal, A passes, B fails",
        seen(),
        seen(),
        error(),
        "required",
        {"exceptions": "required", "tensors": "not_compared"},
    ),
    ("a crash fails", CRASH, CRASH, seen(), "harmful", {"exceptions": "harmful"}),
    ("a hang fails", seen(), seen(), HANG, "required", {"exceptions": "required"}),
    ("a crash in B fails", seen(), seen(), CRASH, "required", {"exceptions": "required"}),
    ("both fail, alike", error(), error(), error(), "nothing", {"exceptions": "not_compared", "messages": "inert"}),
    ("both crash, alike", CRASH, CRASH, CRASH, "nothing", {"exceptions": "not_compared"}),
    ("both fail, other type", error("E"), error("E"), error("F"), "error_changed", {"exceptions": "changed"}),
    ("both fail, crash instead", error(), error(), CRASH, "error_changed", {"exceptions": "changed"}),
    ("both fail, other place", error(), error(), error(place="x:2"), "error_changed", {"exceptions": "changed"}),
    (
        "both fail, other text",
        error(),
        error(),
        error(message="other"),
        "error_changed",
        {"exceptions": "not_compared", "messages": "changed"},
    ),
    (
        "both fail, text is noise",
        error(message="at 1"),
        error(message="at 2"),
        error(message="at 3"),
        "nothing",
        {"messages": "inconclusive"},
    ),
    (
        "equal, values differ",
        seen(),
        seen(),
        seen("2"),
        "behavioural",
        {"tensors": "behavioural", "operators": "inert"},
    ),
    ("equal, operators differ", seen(), seen(), seen(operators=()), "behavioural", {"operators": "behavioural"}),
    ("equal, keys differ", seen(), seen(), seen(keys=("0x1", "0x8")), "behavioural", {"keys": "behavioural"}),
    (
        "a difference outranks noise",
        seen(),
        seen("2"),
        seen("3", operators=()),
        "behavioural",
        {"tensors": "inconclusive"},
    ),
    (
        "a failure outranks noise",
        seen(),
        seen("2"),
        error(),
        "required",
        {"exceptions": "required", "tensors": "inconclusive"},
    ),
    ("warnings never decide", warned("x"), warned("x"), warned("y"), "inert", {"warnings": "changed"}),
    ("warnings are noise", warned("x"), warned("y"), warned("z"), "inert", {"warnings": "inconclusive"}),
]


@pytest.mark.parametrize(("a", "a2", "b", "verdict", "channels"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_case(a, a2, b, verdict, channels):
    said, by_channel = judge(a, a2, b)
    assert said == verdict
    assert {channel: by_channel[channel].verdict for channel in channels} == channels


def test_noise_is_called_noise():
    _, channels = judge(warned("x"), warned("y"), warned("z"))
    assert channels["warnings"].detail.startswith("noisy")


def test_unrecorded_operators_leave_the_other_channels_to_decide():
    without = {"threads": (), "operators_note": "not recorded: torch was not imported"}
    said, channels = judge(seen(**without), seen(**without), seen(**without))
    assert said == "inert"
    assert channels["operators"] == ChannelResult("operators", "not_compared", without["operators_note"])


@pytest.mark.parametrize("unrecorded", [(True, True, False), (False, False, True), (True, False, False)])
def test_what_could_not_be_recorded_is_no_failure_of_the_case(unrecorded):
    broken = seen(outcome="failed", error=ErrorInfo("E", "text", "", ""), unrecorded="the disk is full")
    said, channels = judge(*(broken if here else seen() for here in unrecorded))
    assert said == "inconclusive"
    assert "the disk is full" in channels["exceptions"].detail


# ------------------------------------------------------------------------------------------ patches
def case(verdict: CaseVerdict, name: str = "case", reach: ReachRecord | None = None) -> CaseResult:
    return CaseResult(name, "", False, (), (), verdict, reach)


def reached(calls=3, branches=0, run=0, compiled="no", unknown=0, cases=1) -> ReachSummary:
    return ReachSummary(calls, min(calls, cases), cases, branches, run, compiled, unknown)


PATCHES = [
    # cases, reach, the patch, removable
    (["required", "behavioural", "inconclusive", "harmful", "inert"], reached(), "required", False),
    (["behavioural", "inconclusive", "harmful", "inert"], reached(), "behavioural", False),
    (["inconclusive", "harmful", "inert"], reached(), "inconclusive", False),
    (["harmful", "inert", "nothing", "error_changed"], reached(), "harmful", True),
    (["inert", "nothing", "error_changed"], reached(), "inert", True),
    # An error that changes without a call is changed by applying the patch: it acts.
    (["inert", "error_changed"], reached(0), "inert", True),
    (["inert", "error_changed"], reached(3, branches=2), "inert", True),
    (["nothing"], reached(), "inconclusive", False),
    (["error_changed", "nothing"], reached(), "inconclusive", False),
    ([], reached(0, cases=0), "inconclusive", False),
    (["inert"], reached(0), "unreached", True),
    (["inert", "nothing"], reached(0), "unreached", True),
    # Cases that fail before they come to the patch say nothing of it.
    (["nothing"], reached(0), "inconclusive", False),
    (["error_changed"], reached(0), "inconclusive", False),
    (["inert"], reached(3, branches=2), "branch_unreachable", True),
    (["nothing"], reached(3, branches=2), "inconclusive", False),
    (["inert"], reached(3, branches=2, run=1), "inert", True),
    (["nothing"], reached(3, branches=2, run=1), "inconclusive", False),
    # Reach does not overrule a difference.
    (["required"], reached(0), "required", False),
    (["behavioural"], reached(3, branches=2), "behavioural", False),
    (["inconclusive"], reached(0), "inconclusive", False),
    (["harmful"], reached(0), "harmful", True),
    # What is traced or unknown is never "not reached".
    (["inert"], reached(0, compiled="traced"), "inert", True),
    (["inert"], reached(0, compiled="unknown"), "inert", True),
    (["nothing"], reached(0, compiled="unknown"), "inconclusive", False),
    (["inert"], reached(3, branches=2, compiled="traced"), "inert", True),
    (["inert"], reached(0, unknown=1), "inert", True),
    (["nothing"], reached(0, unknown=1), "inconclusive", False),
    (["inert"], reached(3, branches=2, unknown=1), "inert", True),
]


@pytest.mark.parametrize(("cases", "reach", "verdict", "removable"), PATCHES)
def test_patch(cases, reach, verdict, removable):
    judgement = patch_verdict([case(said) for said in cases], reach)
    assert (judgement.verdict, judgement.removable) == (verdict, removable)


@pytest.mark.parametrize("said", ["required", "inert", "harmful", "nothing"])
def test_arms_that_did_not_differ_in_the_patch_conclude_nothing(said):
    judgement = patch_verdict([case(said)], reached(), not_ablated="It was applied in no arm.")
    assert (judgement.verdict, judgement.removable, judgement.because) == (
        "inconclusive",
        False,
        "It was applied in no arm.",
    )


@pytest.mark.parametrize("says_nothing", ["nothing", "error_changed"])
@pytest.mark.parametrize(
    ("concluding", "failing", "verdict"),
    [
        # What a case that concludes saw of the patch, what the failing one saw.
        ((0, 0, 0), (1, 0, 0), "inconclusive"),  # called in the failing one alone
        ((1, 2, 0), (1, 2, 1), "inconclusive"),  # its branch ran there alone
        ((1, 2, 1), (1, 2, 2), "inert"),
        ((1, 0, 0), (1, 0, 0), "inert"),
    ],
)
def test_agreement_of_cases_in_which_a_patch_does_nothing_is_no_evidence(says_nothing, concluding, failing, verdict):
    def seen(calls: int, branches: int, run: int) -> ReachRecord:
        return record(calls, branches, [f"f.py:{line}" for line in range(run)])

    cases = [case("inert", "agrees", seen(*concluding)), case(says_nothing, "fails", seen(*failing))]
    judgement = patch_verdict(cases, summarise_reach([one.reach for one in cases]))
    assert judgement.verdict == verdict
    assert judgement.removable == (verdict == "inert")
    assert ("conclude nothing" in judgement.because) == (verdict == "inconclusive")


def test_because_gives_calls_cases_and_what_was_concluded():
    judgement = patch_verdict([case("inert", "one"), case("harmful", "two")], reached(5, branches=2, run=1, cases=2))
    assert judgement.because == (
        "Called 5 times in 2 of 2 cases, 1 of 2 branch lines of its own ran; "
        "1 case fails with it and passes without it (two), 1 case is the same without it."
    )


def test_because_does_not_count_calls_where_reach_is_unknown():
    assert patch_verdict([case("harmful")], reached(0, unknown=1)).because.startswith("Reach unknown in 1 case; ")
    two = patch_verdict([case("inert"), case("inert")], reached(0, unknown=1, cases=2)).because
    assert two.startswith("No call seen in 1 case, reach unknown in 1 case; ")


def test_because_says_that_no_case_concludes():
    assert "no case concludes anything" in patch_verdict([case("nothing")], reached()).because
    assert "No workload covers this patch" in patch_verdict([], reached()).because


def record(calls=1, branches=2, lines=(), compiled="no") -> ReachRecord:
    return ReachRecord("p", "c", calls, ("main",), branches, len(lines), tuple(lines), compiled)


def test_reach_adds_calls_and_counts_each_branch_once():
    summary = summarise_reach([record(2, lines=["f.py:1"]), record(3, lines=["f.py:1", "f.py:2"]), record(0)])
    assert summary == ReachSummary(5, 2, 3, 2, 2, "no", 0)


def test_a_replacement_without_branches_acts_at_every_call():
    assert summarise_reach([record(1, branches=0), record(2, branches=2)]).branch_ran


@pytest.mark.parametrize(
    ("records", "compiled", "unknown"),
    [
        ([record(compiled="traced"), record(compiled="unknown")], "traced", 0),
        ([record(), record(compiled="unknown")], "unknown", 0),
        ([record(), None], "no", 1),
    ],
)
def test_reach_keeps_what_is_not_known(records, compiled, unknown):
    summary = summarise_reach(records)
    assert (summary.compiled, summary.cases_unknown) == (compiled, unknown)


@given(st.lists(st.sampled_from([*CONCLUDING, "nothing", "error_changed"]), min_size=1))
def test_a_removable_patch_has_no_case_that_speaks_against_it(verdicts):
    judgement = patch_verdict([case(verdict) for verdict in verdicts], reached())
    against = {"required", "behavioural", "inconclusive"}
    assert judgement.removable == (not against & set(verdicts) and bool({"harmful", "inert"} & set(verdicts)))


@given(st.permutations(["inert", "harmful", "behavioural", "not_compared", "changed"]))
def test_the_strongest_does_not_depend_on_the_order(verdicts):
    assert strongest(verdicts) == "behavioural"


def test_channels_of_a_patch_are_the_strongest_over_its_cases():
    one = CaseResult("one", "", False, (), (ChannelResult("keys", "inert"),), "inert", None)
    two = CaseResult("two", "", False, (), (ChannelResult("keys", "behavioural"),), "behavioural", None)
    channels = strongest_by_channel([one, two])
    assert channels["keys"] == "behavioural"
    assert channels["warnings"] == "not_compared"
