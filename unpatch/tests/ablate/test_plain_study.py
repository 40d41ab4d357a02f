"""A study without torch, run once: every verdict, and every way in which a case can end."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from unpatch.ablate.run import run_study
from unpatch.model import CaseResult, PatchResult, StudyResult

STUDY = Path(__file__).parent / "studies" / "plain"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture(scope="module")
def events() -> list:
    return []


@pytest.fixture(scope="module")
def result(out, events) -> StudyResult:
    return run_study(STUDY, out, jobs=2, timeout=4, progress=events.append)


def patch(result: StudyResult, id: str) -> PatchResult:
    return next(found for found in result.patches if found.patch.id == id)


def case(result: StudyResult, patch_id: str, id: str = "") -> CaseResult:
    return next(found for found in patch(result, patch_id).cases if found.case == (id or patch_id))


def arm(result: StudyResult, name: str, patch_id: str, id: str = ""):
    return next(found for found in case(result, patch_id, id).arms if found.arm == name)


def channel(result: StudyResult, name: str, patch_id: str, id: str = ""):
    return next(found for found in case(result, patch_id, id).channels if found.channel == name)


@pytest.mark.parametrize(
    ("id", "verdict", "removable"),
    [
        ("same", "inert", True),
        ("changed", "behavioural", False),
        ("refused", "harmful", True),
        ("missing", "required", False),
        ("never", "unreached", True),
        ("guarded", "branch_unreachable", True),
        ("noisy", "inconclusive", False),
        ("failing", "inconclusive", False),
        ("reworded", "inconclusive", False),
        ("retyped", "inconclusive", False),
        ("killed", "harmful", True),
        ("stuck", "harmful", True),
        ("told", "inert", True),
        ("uncovered", "inconclusive", False),
        ("patches.opaque", "inert", True),
    ],
)
def test_verdicts(result, id, verdict, removable):
    found = patch(result, id)
    assert (found.verdict, found.removable) == (verdict, removable), found.because


@pytest.mark.parametrize(
    ("id", "verdict"), [("failing", "nothing"), ("reworded", "error_changed"), ("retyped", "error_changed")]
)
def test_cases_that_fail_in_both_arms(result, id, verdict):
    assert case(result, id).verdict == verdict


def test_because_rests_on_calls_and_cases(result):
    assert patch(result, "missing").because == "Called 1 time in 1 of 1 case; 1 case fails without it (missing)."
    assert patch(result, "guarded").because.startswith("Called 1 time in 1 of 1 case, none of 1 branch line")
    assert "No workload covers" in patch(result, "uncovered").because


def test_what_nobody_can_watch_is_not_called_unreached(result):
    found = patch(result, "patches.opaque")
    assert case(result, "patches.opaque", "opaque").reach is None
    assert found.reach.cases_unknown == 1


# ------------------------------------------------------------------------------------------ endings
def test_a_crash_is_named_with_what_the_process_last_said(result):
    ended = arm(result, "A", "killed")
    assert ended.outcome == "crashed"
    assert (ended.error.type, ended.error.message) == ("SIGKILL", "about to die")
    assert arm(result, "B", "killed").outcome == "passed"


def test_a_hang_is_ended_and_says_where_it_hung(result):
    ended = arm(result, "A", "stuck")
    assert ended.outcome == "timed_out"
    assert ended.error.raised_at == "patches.py:stuck"
    assert arm(result, "B", "stuck").outcome == "passed"


def test_reach_of_a_case_that_ends_its_process_is_unknown(result):
    assert case(result, "killed").reach is None
    assert patch(result, "stuck").reach.cases_unknown == 1


def test_cases_after_a_crash_still_run(result):
    """`killed` and `stuck` come before these in the same trial."""
    assert arm(result, "A", "told").outcome == "passed"
    assert case(result, "same", "looks_around").reach is not None


@pytest.mark.parametrize("id", ["prints_garbage", "forks", "closes_stdout", "calls_from_a_thread"])
def test_what_a_workload_does_to_its_process_costs_nothing(result, id):
    assert [found.outcome for found in case(result, "same", id).arms] == ["passed"] * 3
    assert case(result, "same", id).verdict == "inert"


@pytest.mark.parametrize("exception", ["SystemExit", "KeyboardInterrupt"])
def test_an_exit_of_the_workload_is_its_own_failure(result, exception):
    ended = arm(result, "A", "same", f"leaves[{exception}]")
    assert (ended.outcome, ended.error.type) == ("failed", f"builtins.{exception}")


def test_a_name_handed_over_twice_is_an_error(result):
    ended = arm(result, "A", "same", "hands_over_twice")
    assert "'y' was handed over twice" in ended.error.message


# ------------------------------------------------------------------------------------------ channels
def observations(out: Path, trial: str) -> dict[str, dict]:
    with sqlite3.connect(out / "study.sqlite") as store:
        (found,) = store.execute("SELECT result FROM trials WHERE name = ?", (trial,)).fetchone()
    return json.loads(found)["observations"]


def test_values_are_flattened_and_kept_by_repr(result, out):
    values = observations(out, "a")["same"]["values"]
    elements = {"y": "8", "parts.list.0": "1", "parts.list.1.0": "2", "parts.list.1.1": "3"}
    containers = {"parts": "dict", "parts.list": "list", "parts.list.1": "tuple", "parts.empty": "list"}
    assert values == elements | {name: f"<class '{kind}'>" for name, kind in containers.items()}


def test_a_child_has_the_declared_environment_and_does_not_load_torch(result, out):
    values = observations(out, "a")["looks_around"]["values"]
    assert values["environment"] == "'declared'"
    assert values["hash seed"] == "'0'"
    assert values["torch"] == "False"


def test_addresses_are_no_difference(result, out):
    assert observations(out, "a")["looks_around"]["values"]["object"] == "<object object at 0x…>"


def test_operators_are_not_recorded_without_torch(result):
    found = channel(result, "operators", "same")
    assert (found.verdict, found.detail) == ("not_compared", "not recorded: torch was not imported")


def test_warnings_are_listed_and_decide_nothing(result):
    assert channel(result, "warnings", "told").verdict == "changed"
    assert patch(result, "told").listed == ("told: warnings changed: + builtins.FutureWarning: use other()",)


def test_changed_errors_are_listed_with_both_texts(result):
    (line,) = patch(result, "reworded").listed
    assert line.startswith("reworded: ")
    assert "the patch's words" in line
    assert "the library's words" in line
    assert patch(result, "failing").listed == ()


def test_values_that_differ_are_shown(result):
    assert channel(result, "tensors", "changed", "changed[2]").detail == "y: 6 → 4"
    assert channel(result, "tensors", "noisy").detail.startswith("A and A′ differ: ")


# ------------------------------------------------------------------------------------------ probes
def probe(result: StudyResult, patch_id: str, id: str):
    return next(found for found in patch(result, patch_id).probes if found.id == id)


def test_a_probe_shows_what_the_patch_would_do(result):
    found = probe(result, "guarded", "negative")
    assert (found.before, found.after, found.acted) == ("2", "3", True)
    assert found.what == "A negative number takes the branch. It is made positive."


def test_a_probe_that_did_not_look_twice_has_not_acted(result):
    found = probe(result, "guarded", "half_done")
    assert not found.acted
    assert "before and after" in found.error


def test_a_probe_that_dies_belongs_to_its_patch(result):
    found = probe(result, "killed", "fatal")
    assert "SIGKILL" in found.error
    assert found.patch == "killed"


# ------------------------------------------------------------------------------------------ what a report needs
def test_what_is_declared_is_told(result):
    assert result.info.goals == ("judge every kind of patch",)
    assert case(result, "same").doc == "The same, computed in another way."
    assert patch(result, "same").patch.source.startswith("patches.py:")


def test_the_circumstances_name_no_place_of_this_machine(result, out):
    told = json.dumps(result.environment) + result.command
    assert str(out) not in told
    assert str(STUDY) not in told
    assert result.environment["seed"] == "7"
    # A, A′, reach; probes; an arm B for each covered patch; a control for each that makes a difference
    assert result.trials == 3 + 1 + 14 + 7


def test_artefacts_carry_checksums_of_what_is_there(result, out):
    import hashlib

    assert "study.sqlite" in {artefact.path for artefact in result.artefacts}
    for artefact in result.artefacts:
        assert hashlib.sha256((out / artefact.path).read_bytes()).hexdigest() == artefact.sha256


def test_progress_tells_of_every_trial_and_case(result, events):
    assert events[0].kind == "planned"
    assert [event.total for event in events if event.kind == "planned"] == [18, result.trials]
    finished = [event for event in events if event.kind == "finished"]
    assert len(finished) == result.trials
    advanced = [event.done for event in events if event.kind == "advanced" and event.trial == "A, all patches"]
    assert advanced == sorted(advanced)
    (whole,) = [event for event in finished if event.trial == "A, all patches"]
    assert "killed crashed" in whole.note
