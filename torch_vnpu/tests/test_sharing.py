"""Tensors on npu that are sent to another process are the same memory there; DLPack shares them within one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_vnpu import _C

SCRIPT = """
import json, sys
import torch
import torch.multiprocessing as mp
from torch import nn


def child(argument, inbox, outbox):
    told = {"argument": argument.tolist(), "device": str(argument.device)}
    argument.mul_(2)
    whole, view, empty, model = inbox.get()
    whole.add_(10)
    told["view"] = view.tolist()  # it looks into `whole`
    told["empty"] = [str(empty.device), list(empty.shape)]
    told["model"] = [str(parameter.device) for parameter in model.parameters()]
    with torch.no_grad():
        model.weight.fill_(3)
    mine = torch.full((3,), 7, dtype=torch.int64, device="npu")
    for device in range(torch.npu.device_count()):
        torch.npu.synchronize(device)
    outbox.put((told, mine))
    assert inbox.get() == "written"
    outbox.put(mine.tolist())


if __name__ == "__main__":
    mp.set_sharing_strategy(sys.argv[1])
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    argument = torch.ones(4, device="npu:1")
    whole = torch.arange(6.0, device="npu").view(2, 3)
    model = nn.Linear(2, 2).npu()
    process = context.Process(target=child, args=(argument, inbox, outbox))
    process.start()
    inbox.put((whole, whole[1], torch.empty(0, 2, device="npu"), model))
    told, theirs = outbox.get(timeout=100)
    told["argument after"] = argument.tolist()
    told["whole after"] = whole.tolist()
    told["weight after"] = model.weight.tolist()
    told["theirs"] = theirs.tolist()
    theirs.add_(1)
    torch.npu.synchronize()
    inbox.put("written")
    told["theirs after"] = outbox.get(timeout=100)
    process.join()
    told["exit"] = process.exitcode
    del theirs
    print(json.dumps(told))
"""


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_both_processes_see_what_either_writes(tmp_path: Path, strategy: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, strategy], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "argument": [1, 1, 1, 1],
        "device": "npu:1",
        "view": [13, 14, 15],
        "empty": ["npu:0", [0, 2]],
        "model": ["npu:0", "npu:0"],
        "argument after": [2, 2, 2, 2],
        "whole after": [[10, 11, 12], [13, 14, 15]],
        "weight after": [[3, 3], [3, 3]],
        "theirs": [7, 7, 7],
        "theirs after": [8, 8, 8],
        "exit": 0,
    }


def test_sharing_keeps_the_values_the_views_and_the_charge():
    x = torch.arange(128.0, device="npu")  # a whole block: shared bytes are charged as they are
    view = x[2:4]
    before = torch.npu.memory_allocated()
    shared = _C.share_storage(x.untyped_storage())
    assert torch.npu.memory_allocated() == before
    assert shared.device.type == "cpu"
    assert shared.data_ptr() == x.data_ptr()
    view.fill_(9)
    assert x[:8].tolist() == [0, 1, 9, 9, 4, 5, 6, 7]
    assert _C.share_storage(x.untyped_storage()).data_ptr() == shared.data_ptr()
    x.resize_(200).fill_(1)  # grows into memory of its own
    assert x.sum().item() == 200


def test_storages_of_the_wrong_device_are_refused():
    with pytest.raises(TypeError, match="a storage on npu"):
        _C.share_storage(torch.ones(2).untyped_storage())
    with pytest.raises(TypeError, match="a storage on CPU"):
        _C.storage_over(torch.ones(2, device="npu").untyped_storage(), 0)
    with pytest.raises(RuntimeError, match="invalid device ordinal 9"):
        _C.storage_over(torch.ones(2).untyped_storage(), 9)


# ------------------------------------------------------------------------------------ within one process
@pytest.mark.parametrize("device", ["npu:0", "npu:1"])
def test_dlpack_shares_memory_both_ways(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    for y in (torch.from_dlpack(x.t()), torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.t()))):
        assert y.device == torch.device(device)
        assert y.stride() == (1, 3)
        y.add_(1)
    assert x.tolist() == [[2, 3, 4], [5, 6, 7]]
    del x
    assert y.sum().item() == 27


def test_dlpack_of_cpu_tensors_is_torchs_own():
    x = torch.ones(3)
    assert x.__dlpack_device__() == (1, 0)
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()


def test_numpy_does_not_see_device_memory():
    import numpy

    x = torch.ones(3, device="npu")
    for look in (numpy.asarray, numpy.array, lambda tensor: tensor.numpy(), memoryview):
        with pytest.raises((TypeError, RuntimeError)):
            look(x)
    assert not hasattr(x, "__array_interface__")
