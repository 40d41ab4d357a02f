"""The lab finds by itself what the maintainers found by hand; and it says so when a patch or a workload is another one."""

import json
import shutil
from pathlib import Path

import pytest

from unpatch.ablate.run import run_study
from unpatch.model import CaseResult, PatchResult, StudyResult
from unpatch.report import render

STUDY = Path(__file__).parent.parent
EXPECTED = json.loads((STUDY / "expected.json").read_text())


def by_id(result: StudyResult) -> dict[str, PatchResult]:
    return {patch.patch.id: patch for patch in result.patches}


def case_of(patch: PatchResult, id: str) -> CaseResult:
    return next(case for case in patch.cases if case.case == id)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    return run_study(STUDY, tmp_path_factory.mktemp("evidence"), jobs=1)


@pytest.fixture(scope="module")
def patches(result: StudyResult) -> dict[str, PatchResult]:
    return by_id(result)


# ------------------------------------------------------------------------------------ the study as it is
def test_every_patch_gets_the_verdict_of_its_maintainers(patches):
    assert {id: patch.verdict for id, patch in patches.items()} == EXPECTED
    assert all(patch.removable for patch in patches.values())


def test_workaround_is_entered_by_every_operator_and_its_branch_never_runs(patches):
    workaround = patches["sanitizer-keys"]
    for case in workaround.cases:
        assert case.reach is not None
        # Whatever the mode was handed, forward and backward, went through the patch.
        if case.case.startswith("under_sanitizer"):
            assert case.reach.calls == case.arms[0].operators > 0
        assert (case.reach.branches, case.reach.branches_run) == (1, 0)
    assert "backward" in {role for case in workaround.cases for role in case.reach.threads}


def test_recorder_sees_internal_names_only(patches):
    internal = {
        "adaptive_avg_pool2d": ("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool2d_backward.default"),
        "batch_norm": ("aten.native_batch_norm.default", "aten.native_batch_norm_backward.default"),
        "log_softmax": ("aten._log_softmax.default", "aten._log_softmax_backward_data.default"),
        "nll_loss": ("aten.nll_loss_forward.default", "aten.nll_loss_backward.default"),
        "to": ("aten._to_copy.default",),
    }
    for public, names in internal.items():
        for arm in case_of(patches["sanitizer-keys"], f"under_sanitizer[{public}]").arms:
            assert set(names) <= set(arm.names)
            assert not any(name.split(".")[1] == public for name in arm.names)


def test_direct_probe_of_the_workaround_changes_the_keys(patches):
    (probe,) = patches["sanitizer-keys"].probes
    assert (probe.before, probe.after, probe.acted) == ("True", "False", True)


@pytest.mark.parametrize("id", ["parallel-apply", "data-parallel"])
def test_dataparallel_differs_in_messages_only(patches, id):
    patch = patches[id]
    assert {channel: verdict for channel, verdict in patch.channels.items() if verdict != "inert"} == {
        "messages": "changed"
    }
    assert any("ERR0000" in line for line in patch.listed)
    for case in patch.cases:
        errors = {arm.arm: arm.error.type for arm in case.arms if arm.error is not None}
        assert len(set(errors.values())) <= 1
    threads = {thread for case in patch.cases for arm in case.arms for thread in arm.by_thread}
    assert {"worker npu:0", "worker npu:1"} <= {thread.split(":  ")[0].rsplit(":", 1)[0] for thread in threads}


def test_dataparallel_shows_the_code_that_matters_and_which_of_its_lines_never_ran(patches):
    for id in ("parallel-apply", "data-parallel"):
        code = patches[id].patch.code
        assert "def apply_in_threads(" in code
        assert "def coded(" in code
        assert patches[id].reach.branches == len(patches[id].patch.branches)
    assert patches["module-methods"].patch.code.count("def refuse_on_npu") == 1
    texts = {line.text for line in patches["parallel-apply"].patch.branches}
    assert "tensor = get_a_var(inputs[index])" in texts


def test_errors_of_workers_differ_in_frames_only(patches):
    for id in ("parallel-apply", "data-parallel"):
        assert len(patches[id].listed_frames) == 2
        assert all("apply_in_threads" in line or "in work" in line for line in patches[id].listed_frames)
        messages = [arm.error.message for case in patches[id].cases for arm in case.arms if arm.error is not None]
        assert not any("unpatch/observe" in message for message in messages)


def test_the_evidence_fits_where_it_is_read(result):
    assert len(render(result, "summary")) < 30_000
    assert len(render(result, "md")) < 100_000


def test_tensor_type_is_harmful_where_it_is_compiled_and_inert_elsewhere(patches):
    patch = patches["tensor-type"]
    harmful = {case.case for case in patch.cases if case.verdict == "harmful"}
    assert harmful == {"compiled[name]", "compiled[cpu_class]"}
    assert {case.verdict for case in patch.cases if not case.compiled} == {"inert", "nothing"}


def test_module_methods_are_refused_with_the_patch_and_listed_per_kind_of_module(patches):
    patch = patches["module-methods"]
    harmful = {case.case for case in patch.cases if case.verdict == "harmful"}
    assert "inside_init[npu]" in harmful
    assert {f"module_method[share_memory-{kind}-npu]" for kind in ("plain", "subclass", "scripted", "traced")} < harmful
    # What torch refuses too fails with torch's own error, on npu as on CPU.
    for method in ("add_module", "register_module", "register_buffer", "register_parameter"):
        for kind in ("subclass", "scripted", "traced"):
            npu = case_of(patch, f"module_method[{method}-{kind}-npu]")
            cpu = case_of(patch, f"module_method[{method}-{kind}-cpu]")
            assert (npu.verdict, cpu.verdict) == ("error_changed", "nothing")
            assert npu.arms[2].error.type == cpu.arms[2].error.type
            assert npu.arms[2].error.message == cpu.arms[2].error.message
            assert any(line.startswith(f"{npu.case}:") for line in patch.listed)
    refused = case_of(patch, "module_method[bfloat16-scripted-npu]")
    assert refused.verdict == "nothing"


def test_a_case_that_fails_alike_concludes_nothing_and_is_shown(result, patches):
    alike = case_of(patches["tensor-type"], "error_unknown_type[3.5]")
    assert alike.verdict == "nothing"
    assert {arm.outcome for arm in alike.arms} == {"failed"}
    rows = [line for line in render(result, "md").splitlines() if line.startswith("|") and "unknown_type[3.5]" in line]
    assert any("nothing" in row for row in rows)


# ------------------------------------------------------------------------------------ the study changed
CHANGED = """
from study import *
from study import study

import patches
from unpatch.patches import original

# A patch that changes what it returns, by little.
for number, write in enumerate(patches._tensor_type.writes):
    if write.target == "torch.Tensor.type":
        def slightly_off(self, dtype=None, non_blocking=False, **kwargs):
            result = patches.tensor_type(self, dtype, non_blocking, **kwargs)
            return result if dtype is None else result * 1.125

        patches._tensor_type.writes = (
            *patches._tensor_type.writes[:number],
            type(write)(write.target, write.kind, slightly_off),
            *patches._tensor_type.writes[number + 1 :],
        )

@study.workload(covers=[patches.DATA_PARALLEL])
def random(case):
    import os

    case.output("noise", torch.tensor(list(os.urandom(16)), device="npu"))
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PatchResult]:
    folder = tmp_path_factory.mktemp("changed")
    for file in STUDY.glob("*.py"):
        shutil.copy(file, folder)
    (folder / "changed.py").write_text(CHANGED)
    only = ["tensor-type", "data-parallel"]
    return by_id(run_study(folder / "changed.py", folder / "evidence", jobs=1, only=only))


def test_a_patch_that_changes_values_turns_behavioural(changed):
    patch = changed["tensor-type"]
    assert (patch.verdict, patch.removable) == ("behavioural", False)
    converted = case_of(patch, "conversion[dtype-npu]")
    (tensors,) = (channel for channel in converted.channels if channel.channel == "tensors")
    assert tensors.verdict == "behavioural"
    assert "result" in tensors.detail


def test_a_random_workload_turns_inconclusive_and_not_removable(changed):
    patch = changed["data-parallel"]
    assert case_of(patch, "random").verdict == "inconclusive"
    assert (patch.verdict, patch.removable) == ("inconclusive", False)
