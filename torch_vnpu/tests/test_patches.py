"""The patches that this backend makes to torch: all declared, none drifted, as few as the README says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_vnpu.compile.inductor_patches  # declares what is applied when Inductor loads  # noqa: F401
from torch_vnpu._init.patches import manager
from torch_vnpu._init.patches.sharing_patches import reduce_untyped_storage
from unpatch.patches import conditions

README = Path(__file__).parents[2] / "README.md"
_LIMIT = 15

SNAPSHOT = """
import sys, warnings
import torch, torch.multiprocessing.reductions
from multiprocessing.reduction import ForkingPickler

def snapshot():
    found = {("ForkingPickler._extra_reducers", kind): value for kind, value in ForkingPickler._extra_reducers.items()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            found[name, attribute] = value
            if type(value) in (type, torch._C._TensorMeta) and value.__module__.partition(".")[0] == "torch":
                for member, inner in list(vars(value).items()):
                    found[f"{value.__module__}.{value.__qualname__}", member] = inner
    return found

before = snapshot()
import torch_vnpu
after = snapshot()
for key, value in before.items():
    if after.get(key) is not value:
        print(*key)
"""
#: What torch's own functions for backends change: renaming, RPC's registration, the default device of checkpointing.
_BY_TORCH = {
    "torch.utils.backend_registration _privateuse1_backend_name",
    "torch.distributed.rpc.backend_registry BackendType",
    "torch.utils.checkpoint.DefaultDeviceType _default_device_type",
}
_AT_INDUCTORS_LOAD = {"inductor-cpu-loops", "inductor-cpu-backend"}


def test_none_of_our_own_patches_has_drifted_and_each_says_when_it_goes():
    code = "from unpatch.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "torch_vnpu", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    patches = json.loads(done.stdout)["patches"]
    assert {patch["id"] for patch in patches} == {patch.id for patch in manager.patches} >= _AT_INDUCTORS_LOAD
    for patch in patches:
        # Every condition can be checked, every original has its fingerprint: not even a note.
        assert (patch["due"], patch["result"], patch["findings"]) == (False, "ok", []), patch["id"]
        # Asking whether Inductor still needs its two may load the parts of it that take them.
        assert patch["state"] == "applied" or patch["id"] in _AT_INDUCTORS_LOAD


@pytest.mark.parametrize("module", ["torch_vnpu.contrib", "torch_vnpu.contrib.transfer_to_npu"])
def test_what_the_transfer_replaces_takes_what_the_original_takes(module):
    code = "from unpatch.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "check", module, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    patches = json.loads(done.stdout)["patches"]
    assert {patch["manager"] for patch in patches} == {"transfer_to_npu"}
    assert {"cuda-module", "factories", "nccl"} <= {patch["id"] for patch in patches}
    found = [finding for patch in patches for finding in patch["findings"]]
    assert [finding for finding in found if finding["kind"] in ("signature", "source")] == []


def test_what_the_import_replaces_in_torch_is_what_is_declared(with_torch):
    replaced = set(with_torch(SNAPSHOT).passed().lines) - _BY_TORCH
    assert replaced == {
        "torch.Tensor __dlpack_device__",
        "torch.autograd _add_metadata_json",
        "torch.autograd.profiler.profile export_chrome_trace",
        "torch.distributed.rpc BackendType",
        "torch.profiler.profiler._KinetoProfile add_metadata",
        "ForkingPickler._extra_reducers <class 'torch.storage.UntypedStorage'>",
    }
    at_import = [patch for patch in manager.patches if patch.id not in _AT_INDUCTORS_LOAD]
    declared = {write.target for patch in at_import for write in patch.writes if write.kind != "add"}
    assert declared == {
        "torch.Tensor.__dlpack_device__",
        "torch.distributed.rpc.BackendType",
        "multiprocessing.reduction.ForkingPickler._extra_reducers[torch.UntypedStorage]",
        "torch.autograd._add_metadata_json",
        "torch.autograd.profiler.profile.export_chrome_trace",
        "torch.profiler.profiler._KinetoProfile.add_metadata",
    }


def test_the_readme_tells_the_number_of_patches_and_when_each_goes():
    text = README.read_text(encoding="utf-8")
    (number,) = re.findall(r"`import torch_vnpu` makes (\d+) patch", text)
    assert int(number) == len(manager.patches) - len(_AT_INDUCTORS_LOAD)
    assert len(manager.patches) < _LIMIT
    section = text[text.index("## The patches that torch_vnpu itself makes") :]
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    assert dict(rows) == {patch.id: conditions.told(patch.remove_when) for patch in manager.patches}


def _escaping(replacement):
    """What torch would have instead of `replacement` if it escaped."""
    if replacement.__name__ == "add_metadata":
        return lambda self, key, value: self._trace_metadata.update({key: json.dumps(value)})
    return lambda *arguments: None


def test_the_conditions_notice_when_torch_does_it_itself(monkeypatch):
    asked = {patch.id: patch.remove_when for patch in manager.patches if callable(patch.remove_when)}
    assert set(asked) == {patch.id for patch in manager.patches} - {"deprecated-operators"}  # which goes with a version
    assert {id: condition() for id, condition in asked.items()} == dict.fromkeys(asked, False)
    monkeypatch.setattr("torch_vnpu._init.patches.dlpack_patches.original", lambda function: lambda tensor: (12, 0))
    monkeypatch.setattr("torch_vnpu._init.patches.sharing_patches.reduce_storage", lambda storage: (len, ()))
    loaded = {'a"b\\c\td': ['a"b\\c\td'], "traceEvents": [{"name": 'a"b é'}]}
    monkeypatch.setattr("torch_vnpu._init.patches.profiler_patches._trace", lambda profiler: loaded)
    monkeypatch.setattr("torch_vnpu._init.patches.profiler_patches.original", _escaping)
    monkeypatch.setattr("inspect.getsource", lambda module: "from torch.accelerator import scatter")
    monkeypatch.setattr(
        "torch_vnpu.compile.inductor_patches._own_source", lambda ours, target: "return by_backend(device)"
    )
    assert {id: condition() for id, condition in asked.items()} == dict.fromkeys(asked, True)


def test_a_storage_elsewhere_is_sent_as_torch_sends_it():
    storage = torch.ones(2).untyped_storage()
    rebuild, _ = reduce_untyped_storage(storage)
    assert rebuild.__module__ == "torch.multiprocessing.reductions"


def test_a_component_may_patch_in_any_group(with_vnpu):
    run = with_vnpu(
        """
        import json, sys, types
        from torch_vnpu._init.patches import apply_patches, manager, register_patch_module
        def component(name, group, target):
            module = types.ModuleType(name)
            sys.modules[name] = module
            @manager.patch(target, id=name, group=group, reason="A test.")
            def replacement(*arguments, **options):
                return name
        before = len(manager.applied)
        component("in_a_group_of_its_own", "of its own", "json.dumps")
        component("in_dynamos", "dynamo", "json.loads")
        register_patch_module("in_dynamos")
        apply_patches()
        print(json.dumps(1), json.loads("1"), [patch.id for patch in manager.applied[before:]])
        apply_patches()
        assert len(manager.applied) == before + 2
        """
    ).passed()
    assert run.lines == ["in_a_group_of_its_own in_dynamos ['in_dynamos', 'in_a_group_of_its_own']"]
