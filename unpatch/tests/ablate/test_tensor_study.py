"""A study with torch, run once: operators, keys, tensors, gradients and state, each judged by its own channel."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from unpatch.ablate.run import run_study
from unpatch.model import CaseResult, StudyResult

pytest.importorskip("torch")
STUDY = Path(__file__).parent / "studies" / "tensors"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("tensors")


@pytest.fixture(scope="module")
def result(out) -> StudyResult:
    return run_study(STUDY, out, jobs=2, timeout=120)


@pytest.fixture(scope="module")
def observed(result, out) -> dict[str, dict]:
    with sqlite3.connect(out / "study.sqlite") as store:
        (found,) = store.execute("SELECT result FROM trials WHERE name = 'a'").fetchone()
    return json.loads(found)["observations"]


def case(result: StudyResult, id: str) -> CaseResult:
    return next(found for patch in result.patches for found in patch.cases if found.case == id)


def channels(result: StudyResult, id: str) -> dict[str, str]:
    return {channel.channel: channel.verdict for channel in case(result, id).channels}


@pytest.mark.parametrize(
    ("id", "verdict"),
    [
        ("same", "inert"),
        ("other_operators", "behavioural"),
        ("other_values", "behavioural"),
        ("keys", "behavioural"),
        ("noisy", "inconclusive"),
        ("in_thread", "behavioural"),
        ("compiled", "inconclusive"),
    ],
)
def test_verdicts(result, id, verdict):
    found = next(patch for patch in result.patches if patch.patch.id == id)
    assert found.verdict == verdict, found.because


@pytest.mark.parametrize(
    ("id", "differing"),
    [
        ("trains", set()),
        ("hands_over_strange_tensors", set()),
        ("adds", {"operators"}),
        ("scales", {"tensors"}),
        ("leaves_a_key", {"keys"}),
        ("works_in_a_thread", {"operators"}),
    ],
)
def test_only_the_channel_that_differs_says_so(result, id, differing):
    assert {channel for channel, verdict in channels(result, id).items() if verdict == "behavioural"} == differing


def test_noise_in_tensors_leaves_operators_comparable(result):
    found = channels(result, "is_random")
    assert (found["tensors"], found["operators"]) == ("inconclusive", "inert")


def detail(result: StudyResult, id: str, channel: str) -> str:
    return next(found.detail for found in case(result, id).channels if found.channel == channel)


def test_details_say_what_and_how_much(result):
    assert "- aten.add.Tensor" in detail(result, "adds", "operators")
    assert "+ aten.mul.Tensor" in detail(result, "adds", "operators")
    assert detail(result, "scales", "tensors") == "y: 3 of 3 elements differ, by at most 0.5 (relative 0.2)"
    assert "worker cpu:" in detail(result, "works_in_a_thread", "operators")
    assert detail(result, "leaves_a_key", "keys").startswith(("after the case: excluded", "aten."))


def test_what_was_compiled_without_being_declared_so_is_not_judged_by_its_eager_run(result):
    assert "compiled=True" in detail(result, "compiles_undeclared", "exceptions")


def test_an_arm_is_summarised_by_thread_and_name(result):
    (a, _, b) = case(result, "works_in_a_thread").arms
    assert any(line.startswith("worker cpu: ") for line in a.by_thread)
    assert "aten.add.Tensor" in a.names
    assert "aten.add.Tensor" not in b.names


def test_what_is_handed_over(observed):
    tensors = observed["trains"]["tensors"]
    assert tensors["before"] == {
        "kind": "output",
        "dtype": "torch.float32",
        "shape": [4, 2],
        "device": "cpu",
        "finite": True,
        "strides": [2, 1],
        "requires_grad": True,
        "type": "torch.Tensor",
    }
    assert tensors["x"]["kind"] == "gradient"
    state = {name for name, info in tensors.items() if info["kind"] == "state"}
    assert {"state.0.weight", "state.1.running_mean", "state.1.num_batches_tracked"} <= state
    assert "optimizer.state.0.momentum_buffer" in state
    assert observed["trains"]["values"]["none"] == "None"


def test_a_tensor_is_copied_when_it_is_handed_over(observed, out):
    """The workload sets it to zero afterwards."""
    from unpatch.observe.tensors import load_tensors

    assert any(load_tensors(out / observed["trains"]["tensor_file"])["before"])


def test_handing_over_adds_no_operators(observed):
    (thread,) = observed["adds"]["threads"]
    assert thread["operators"] == ["aten.ones.default", "aten.add.Tensor"]


def test_finite_is_told(observed):
    tensors = observed["hands_over_strange_tensors"]["tensors"]
    assert not tensors["nan"]["finite"]
    assert tensors["scalar"]["finite"]


def test_versions_and_commit_of_torch_are_told(result):
    import torch

    assert torch.__version__.startswith(result.environment["torch"].partition("+")[0])
    assert result.environment["torch commit"] == torch.version.git_version
