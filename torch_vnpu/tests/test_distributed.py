"""Process groups over two processes (distributed_ranks.py), RPC, and how the backends are registered."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from torch_vnpu.distributed.host_alias import host_alias


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What rank 0 and rank 1 saw, and what they wrote to stderr."""
    folder = tmp_path_factory.mktemp("ranks")
    script = str(Path(__file__).with_name("distributed_ranks.py"))
    environment = {k: v for k, v in os.environ.items() if k not in ("TASK_QUEUE_ENABLE", "ASCEND_LAUNCH_BLOCKING")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore::UserWarning", script, str(rank), str(folder)],
            env=environment | {"VNPU_DEVICES": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        ended = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (out, err) in zip(processes, ended, strict=True):
        assert process.returncode == 0, err + out
    return [json.loads(out.splitlines()[-1]) for out, _ in ended], [err for _, err in ended]


BOTH = {
    "names": lambda rank, npu: ["hccl", "hccl", rank, 2],
    "all_reduce": lambda rank, npu: [[npu, [12, 14]], [npu, [11, 12]], [npu, [6, 7]]],
    "average_through_a_future": lambda rank, npu: [[npu, [6, 7]], [npu, [6, 7]]],
    "broadcast": lambda rank, npu: [npu, [13]],
    "reduce": lambda rank, npu: [npu, [16]] if rank == 1 else None,
    "all_gather": lambda rank, npu: [[npu, [1, 2]], [npu, [11, 12]], [npu, [1, 2, 11, 12]]],
    "gather_and_scatter": lambda rank, npu: [[[npu, [1]], [npu, [11]]] if rank == 0 else None, [npu, [5 + rank]]],
    "reduce_scatter": lambda rank, npu: [[npu, [12 + 2 * rank]], [npu, [6 + rank]]],
    "all_to_all": lambda rank, npu: [[npu, [1 + rank, 11 + rank]], [npu, [1 + rank]], [npu, [11 + rank]]],
    "send_and_receive": lambda rank, npu: [[npu, [1]], [npu, [14 - 10 * rank]]],
    "coalesced": lambda rank, npu: [[npu, [12]], [npu, [14]]],
    "objects": lambda rank, npu: [{"rank": 0}, {"rank": 1}],
    "strided_and_empty": lambda rank, npu: [[npu, [[0, 0], [3, 3], [0, 0]]], [npu, []]],
    "on_cpu": lambda rank, npu: ["cpu", [3]],
    "queued_work_comes_first": lambda rank, npu: [[npu, [[4, 4]]], True],
    "a_failed_kernel_is_told_by_the_collective": lambda rank, npu: True,
    "functional": lambda rank, npu: [npu, [13]],
    "new_group": lambda rank, npu: ["lccl", [npu, [12]]],
    "data_parallel": lambda rank, npu: [True, True, True, True],
    "profiled": lambda rank, npu: [True, True],
    "fully_sharded": lambda rank, npu: True,
    "default": lambda rank, npu: ["hccl", [npu, [12, 14]]],
}


@pytest.mark.parametrize("name", BOTH)
def test_two_processes(seen, name):
    for rank, values in enumerate(seen[0]):
        assert values[name] == BOTH[name](rank, f"npu:{rank}"), f"rank {rank}"


def test_no_case_is_missing_here(seen):
    assert set(seen[0][0]) == set(seen[0][1]) == set(BOTH)


def test_a_process_that_leaves_its_group_behind_ends_without_a_word_of_it(seen):
    # torch itself warns of timers that it has for CPU and CUDA only.
    said = [
        line for err in seen[1] for line in err.splitlines() if "Time stats are currently only collected" not in line
    ]
    assert [
        line for line in said if "destroy_process_group" in line or "terminate" in line or "torch_vnpu" in line
    ] == []


def test_the_backends_are_registered_in_their_order():
    assert [name for name in dist.Backend._plugins if name in ("HCCL", "LCCL")] == ["HCCL", "LCCL"]
    assert dist.Backend.default_device_backend_map["npu"] == "hccl"
    assert dist.get_default_backend_for_device("npu") == "hccl"
    for name in ("hccl", "lccl"):
        assert dist.Backend(name.upper()) == name
        assert dist.Backend.backend_capability[name] == ["npu"]
        assert dist.is_backend_available(name)


def test_an_alias_has_the_same_bytes_and_keeps_them():
    x = torch.arange(6.0, device="npu").view(2, 3)
    alias = host_alias(x.t()[1:])
    torch.npu.synchronize()
    assert alias.device.type == "cpu"
    assert (alias.shape, alias.stride(), alias.dtype) == ((2, 2), (1, 3), torch.float32)
    alias[0, 1] = 40
    assert x.tolist() == [[0, 1, 2], [3, 40, 5]]
    del x
    torch.npu.synchronize()
    assert alias.tolist() == [[1, 40], [2, 5]]
    before = torch.npu.memory_allocated()
    del alias
    assert torch.npu.memory_allocated() < before


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
def test_an_alias_of_any_dtype(dtype):
    x = torch.tensor([0, 1, 1], device="npu").to(dtype)
    torch.npu.synchronize()
    assert torch.equal(host_alias(x), x.cpu())


def test_an_alias_of_a_tensor_on_cpu_is_itself_and_of_a_meta_tensor_is_refused():
    x = torch.ones(2)
    assert host_alias(x) is x
    with pytest.raises(RuntimeError, match="npu or CPU"):
        host_alias(torch.ones(2, device="meta"))


RPC = """
import sys, torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed import autograd
def twice(value): return value * 2, str(value.device)
def worker(rank, folder):
    options = rpc.backend_registry.construct_rpc_backend_options(
        rpc.BackendType.NPU_TENSORPIPE, init_method=f"file://{folder}/rpc")
    rpc.init_rpc(f"w{rank}", rpc.BackendType.NPU_TENSORPIPE, rank, 2, options)
    if rank == 0:
        for device in ("npu:1", "cpu"):
            value, where = rpc.rpc_sync("w1", twice, (torch.ones(2, device=device),))
            print(value.tolist(), value.device, where)
        print(rpc.remote("w1", twice, (torch.ones(1, device="npu"),)).to_here()[0].device)
        with autograd.context():
            try:
                rpc.rpc_sync("w1", twice, (torch.ones(2, device="npu", requires_grad=True),))
            except NotImplementedError as error:
                print(error)
    rpc.shutdown()
    if rank == 0:  # torch's own default still starts
        rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/own"))
        print(rpc.rpc_sync("alone", torch.add, (torch.ones(1), 1)).tolist())
        rpc.shutdown()
if __name__ == "__main__":
    torch.multiprocessing.spawn(worker, (sys.argv[1],), nprocs=2)
"""


def test_rpc_sends_tensors_on_npu(tmp_path):
    script = tmp_path / "rpc_workers.py"
    script.write_text(RPC)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"VNPU_DEVICES": "2", "OMP_NUM_THREADS": "1", "TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    first, second, third, refused, own = done.stdout.splitlines()
    assert [first, second, third] == ["[2.0, 2.0] npu:1 npu:1", "[2.0, 2.0] cpu cpu", "npu:0"]
    assert "distributed autograd, which follows CPU tensors only: send tensor.cpu()" in refused
    assert own == "[2.0]"
