"""Memory: figures, the capacity of a device, what happens beyond it, and that nothing leaks."""

import gc
import threading
from contextlib import suppress

import pytest
import torch

MIB = 1 << 20


def blocks(size: int) -> int:
    """The bytes that a tensor of `size` bytes occupies."""
    return -(-size // 512) * 512


def used(device: int = 0) -> int:
    gc.collect()
    return torch.npu.memory_allocated(device)


def test_figures_follow_allocations_and_return():
    before = used(1)
    torch.npu.reset_peak_memory_stats(1)
    x = torch.empty(MIB, dtype=torch.uint8, device="npu:1")
    y = x.float()
    assert used(1) - before == 5 * MIB
    del y
    assert used(1) - before == MIB
    assert torch.npu.max_memory_allocated(1) - before == 5 * MIB
    assert torch.npu.memory_allocated(1) == torch.accelerator.memory_allocated(1)
    free, total = torch.npu.mem_get_info(1)
    assert total - free == torch.npu.memory_reserved(1) == torch.npu.device_memory_used(1)
    assert torch.npu.memory_reserved(1) >= torch.npu.memory_allocated(1)
    del x
    assert used(1) == before
    torch.npu.reset_peak_memory_stats(1)
    assert torch.npu.max_memory_allocated(1) == before
    assert torch.npu.max_memory_reserved(1) == torch.npu.memory_reserved(1)


def test_blocks_are_counted():
    def count(field):
        return torch.npu.memory_stats(1)[f"allocation.all.{field}"]

    before = count("current")
    torch.npu.reset_accumulated_memory_stats(1)
    xs = [torch.empty(4, device="npu:1") for _ in range(3)]
    assert count("current") - before == 3
    del xs
    assert (count("current"), count("allocated"), count("freed")) == (before, 3, 3)
    torch.npu.reset_accumulated_memory_stats(1)
    assert (count("allocated"), count("freed")) == (0, 0)


def test_no_bytes_are_no_block():
    before = torch.npu.memory_stats()["allocation.all.allocated"]
    x = torch.empty(0, 3, device="npu")
    y = x + x
    assert y.shape == (0, 3)
    assert torch.npu.memory_stats()["allocation.all.allocated"] == before


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x + 1,
        lambda x: x.sort(),
        lambda x: x.view(-1)[3:].clone().split(2),
        lambda x: torch.add(x, 1, out=torch.empty(0, device="npu:1")),
        lambda x: torch.empty(2, device="npu:1").resize_(1000),
        lambda x: torch.empty(0, device="npu:1").set_(x.clone().untyped_storage(), 0, (5000,), (1,)),
        lambda x: x.nonzero(),
        lambda x: x.to("npu:0").to("npu:1").cpu().npu(1),
        lambda x: torch.nn.Linear(64, 64).npu(1)(x).sum().backward(),
        lambda x: torch.linalg.inv(torch.zeros(3, 3, device="npu:1"), out=torch.empty(0, device="npu:1")),
        lambda x: x + torch.ones(3, 3, device="npu:1"),
        lambda x: x + 1 + torch.ones(2, device="npu:0"),
        lambda x: x.untyped_storage().clone().resize_(9),
    ],
)
def test_nothing_leaks_whether_an_operator_works_or_fails(work):
    x = torch.ones(64, 64, device="npu:1")
    before = used(0), used(1)
    for _ in range(3):
        with suppress(RuntimeError):
            work(x)
    assert (used(0), used(1)) == before


def test_new_memory_belongs_to_the_tensors_device_not_to_the_current_one():
    before = used(0), used(1)
    x = torch.ones(2, device="npu:1")
    x.resize_(1000)
    y = torch.empty(0, device="npu:1").set_(x.untyped_storage(), 0, (2000,), (1,))
    z = torch.add(x, 1, out=torch.empty(0, device="npu:1"))
    w = torch.empty(0, device="npu:1")
    w.set_()
    w.resize_(10)
    assert {t.untyped_storage().device for t in (x, y, z, w)} == {torch.device("npu:1")}
    assert (used(0) - before[0], used(1) - before[1]) == (0, sum(map(blocks, (8000, 4000, 40))))


def test_the_last_owner_of_the_bytes_frees_them():
    before = used()
    base = torch.ones(1000, device="npu")
    view = base[:10]
    del base
    assert used() - before == blocks(4000)
    del view
    assert used() == before


def test_memory_is_counted_from_many_threads():
    before = used()

    def work() -> None:
        for _ in range(50):
            x = torch.ones(100, device="npu")
            torch.add(x, 1, out=x)
            x.resize_(200)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used() == before


# Each of these wants more than the 64 KiB that are there; `x` takes 16 KiB of them.
TOO_MUCH = {
    "factory": "torch.empty(1 << 20, device='npu')",
    "output of a CPU kernel": "x.repeat(8)",
    "output on top of what is there": "x.double().exp() + x.double().sin()",
    "out= that grows": "torch.cat([x] * 8, out=out[:0])",
    "resize_": "out.resize_(1 << 20)",
    "storage": "out.untyped_storage().resize_(1 << 20)",
    "set_": "out.set_(out.untyped_storage(), 0, (1 << 20,), (1,))",
    "copy": "torch.ones(1 << 20).npu()",
    "copy from the other device": "torch.ones(1 << 13, device='npu:1').npu(0).npu(0).repeat(4)",
    "backward": "(leaf.repeat(2) * 2).sum().backward()",
}


@pytest.mark.parametrize("work", TOO_MUCH)
def test_beyond_the_capacity_an_operator_fails_and_leaves_everything_usable(with_vnpu, work):
    run = with_vnpu(
        f"""
        import torch
        x = torch.arange(4096.0, device="npu")
        out = torch.arange(4.0, device="npu")
        leaf = torch.ones(3000, device="npu", requires_grad=True)
        view = out[1:3]
        before = torch.npu.memory_allocated()
        assert torch.npu.memory_stats()["num_ooms"] == 0
        try:
            {TOO_MUCH[work]}
        except torch.OutOfMemoryError as error:
            assert isinstance(error, torch.npu.OutOfMemoryError)
            print(error)
        leaf.grad = None
        assert torch.npu.memory_stats()["num_ooms"] == 1
        assert torch.npu.memory_allocated() == before, torch.npu.memory_allocated() - before
        torch.npu.empty_cache()  # what the operator left unused
        assert torch.npu.mem_get_info() == (65536 - before, 65536)
        assert out.tolist() == [0, 1, 2, 3] and view.tolist() == [1, 2] and x.sum().item() == 4095 * 2048
        out.add_(1)
        assert view.tolist() == [2, 3] and torch.add(out, 1, out=torch.empty(0, device="npu")).tolist() == [2, 3, 4, 5]
        del x, out, view, leaf
        assert torch.npu.memory_allocated() == 0
        torch.ones(1 << 14, device="npu")  # all of it
        """,
        VNPU_MEMORY="64K",
    ).passed()
    assert "NPU out of memory. Tried to allocate " in run.out
    assert "NPU 0 has a total capacity of 64.00 KiB of which " in run.out
    assert run.out.count("VNPU_MEMORY") == 1


def test_a_capacity_of_a_few_bytes_is_no_other_error(with_vnpu):
    run = with_vnpu("import torch; torch.npu.init(); torch.ones(1, device='npu')", VNPU_MEMORY="2")
    assert "OutOfMemoryError: NPU out of memory. Tried to allocate 4 bytes" in run.err
