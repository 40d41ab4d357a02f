"""The caching allocator: what is handed out again, when and to whom, and that its books are right."""

import gc
from itertools import pairwise

import pytest
import torch
from holding import held
from hypothesis import given, settings
from hypothesis import strategies as st

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_cached():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()


def memory(size: int, device: str = "npu") -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def blocks(state: str | None = None) -> list[dict]:
    every = [block for segment in torch.npu.memory_snapshot() for block in segment["blocks"]]
    return [block for block in every if state in (None, block["state"])]


# ---- reuse ----
@pytest.mark.parametrize("size", [1, 512, 4000, MIB, 3 * MIB, 15 * MIB])
def test_what_a_stream_gives_back_it_gets_again(size):
    x = memory(size)
    address = x.data_ptr()
    del x
    before = torch.npu.memory_stats()["num_device_alloc"]
    assert memory(size).data_ptr() == address
    assert torch.npu.memory_stats()["num_device_alloc"] == before


@pytest.mark.parametrize("size", [4000, 3 * MIB])
def test_another_stream_does_not_get_it(size):
    x = memory(size)
    address = x.data_ptr()
    del x
    with torch.npu.stream(torch.npu.Stream()):
        assert memory(size).data_ptr() != address
    assert memory(size).data_ptr() == address


def test_results_of_operators_are_kept_too():
    a = torch.randn(50, 50, device="npu")
    addresses = set()
    for _ in range(10):
        b = a @ a
        addresses.add(b.data_ptr())
        del b
    assert len(addresses) == 1


@pytest.fixture
def learned():
    """Calls whose look is known, so that they are queued."""
    x = torch.full((1024,), 5.0, device="npu")
    for _ in range(2):
        x + x
        x.fill_(0)
    torch.npu.synchronize()


def test_memory_is_handed_out_again_while_queued_work_still_uses_it(learned):
    x = torch.full((1024,), 5.0, device="npu")
    torch.npu.synchronize()
    with held(torch.npu.current_stream()):
        result = x + x
        address = x.data_ptr()
        del x
        y = torch.empty(1024, device="npu")
        assert y.data_ptr() == address
        y.fill_(0)  # behind all that reads the old values
    assert result.tolist() == [10.0] * 1024


@pytest.mark.parametrize("recorded", [True, False])
def test_record_stream_keeps_memory_for_the_stream_that_uses_it(learned, recorded):
    x = torch.full((1024,), 5.0, device="npu")
    address, side = x.data_ptr(), torch.npu.Stream()
    torch.npu.synchronize()
    with held(side):
        with torch.npu.stream(side):
            result = x + x
        if recorded:
            x.record_stream(side)
        allocated = torch.npu.memory_allocated()
        del x
        assert torch.npu.memory_allocated() == allocated - 4096  # it counts as free, but not as idle
        assert [block["address"] for block in blocks("active_awaiting_free")] == [address] * recorded
        other = torch.empty(1024, device="npu")
        assert (other.data_ptr() == address) == (not recorded)
        other.fill_(0)
        torch.npu.current_stream().synchronize()
    side.synchronize()
    assert result.tolist() == ([10.0] if recorded else [0.0]) * 1024  # without it the other stream read what came after
    assert not blocks("active_awaiting_free")
    assert not recorded or torch.empty(1024, device="npu").data_ptr() == address


def test_recording_its_own_stream_changes_nothing():
    x = memory(1000)
    address = x.data_ptr()
    x.record_stream(torch.npu.current_stream())
    del x
    assert memory(1000).data_ptr() == address


def test_a_stream_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="on npu:0 cannot be recorded on a stream of npu:1"):
        memory(1).record_stream(torch.npu.Stream(1))


# ---- books ----
def test_sizes_are_those_of_cudas_allocator(with_vnpu):
    with_vnpu(
        """
        import torch
        MIB = 1 << 20
        small, large, own = (torch.empty(n, dtype=torch.uint8, device="npu") for n in (700, 2 * MIB, 25 * MIB))
        found = {segment["address"]: segment for segment in torch.npu.memory_snapshot()}
        figures = [(found[x.data_ptr()]["total_size"], found[x.data_ptr()]["segment_type"]) for x in (small, large, own)]
        assert figures == [(2 * MIB, "small"), (20 * MIB, "large"), (26 * MIB, "large")], figures
        block = found[small.data_ptr()]["blocks"][0]
        assert (block["size"], block["requested_size"], block["state"]) == (1024, 700, "active_allocated")
        stats = torch.npu.memory_stats()
        assert stats["requested_bytes.small_pool.current"] == 700
        assert stats["allocated_bytes.small_pool.current"] == 1024
        assert stats["allocated_bytes.large_pool.current"] == 28 * MIB
        """
    ).passed()


def test_empty_cache_gives_back_what_is_unused_and_nothing_else(with_vnpu):
    with_vnpu(
        """
        import torch
        MIB = 1 << 20
        kept = torch.full((MIB // 2,), 7, dtype=torch.uint8, device="npu")
        dropped = [torch.empty(MIB, dtype=torch.uint8, device="npu") for _ in range(5)]
        assert torch.npu.memory_reserved() == 6 * MIB
        del dropped
        torch.npu.empty_cache()
        assert torch.npu.memory_reserved() == 2 * MIB
        assert kept.sum().item() == 7 * (MIB // 2)
        """
    ).passed()


def test_a_snapshot_of_one_pool_is_refused():
    with pytest.raises(NotImplementedError, match="mempool_id"):
        torch.npu.memory_snapshot(mempool_id=(0, 1))


def check_books() -> None:
    stats = {device: torch.npu.memory_stats(device) for device in range(2)}
    figures = {
        device: dict.fromkeys(("reserved", "allocated", "requested", "inactive_split"), 0) for device in range(2)
    }
    for segment in torch.npu.memory_snapshot():
        parts = segment["blocks"]
        assert parts[0]["address"] == segment["address"]
        assert all(one["address"] + one["size"] == other["address"] for one, other in pairwise(parts))
        assert sum(part["size"] for part in parts) == segment["total_size"]
        assert all(part["size"] % 512 == 0 and part["requested_size"] <= part["size"] for part in parts)
        mine = figures[segment["device"]]
        mine["reserved"] += segment["total_size"]
        mine["allocated"] += segment["allocated_size"]
        mine["requested"] += segment["requested_size"]
        if len(parts) > 1:
            mine["inactive_split"] += sum(part["size"] for part in parts if part["state"] == "inactive")
    for device, mine in figures.items():
        for name, size in mine.items():
            assert stats[device][f"{name}_bytes.all.current"] == size, name


SIZES = st.sampled_from([1, 511, 512, 513, 5000, 100_000, MIB - 1, MIB, MIB + 1, 3 * MIB, 10 * MIB, 12 * MIB])
ACTIONS = st.one_of(
    st.tuples(st.just("allocate"), SIZES, st.integers(0, 1), st.integers(0, 2)),
    st.tuples(st.just("free"), st.integers(0, 1000)),
    st.tuples(st.just("record"), st.integers(0, 1000), st.integers(0, 2)),
    st.tuples(st.just("empty")),
)


@given(st.lists(ACTIONS, max_size=40))
@settings(max_examples=60, deadline=None)
def test_any_program_gets_memory_of_its_own_and_the_books_are_right(actions):
    before = [torch.npu.memory_reserved(device) for device in range(2)]  # tensors that other tests have left
    streams = [[torch.npu.default_stream(device), *STREAMS[device]] for device in range(2)]
    alive: list[tuple[torch.Tensor, int]] = []
    for number, (action, *arguments) in enumerate(actions):
        if action == "allocate":
            size, device, stream = arguments
            with torch.npu.stream(streams[device][stream]):
                alive.append((memory(size, f"npu:{device}").fill_(number), number))
        elif action == "free" and alive:
            alive.pop(arguments[0] % len(alive))
        elif action == "record" and alive:
            tensor = alive[arguments[0] % len(alive)][0]
            tensor.record_stream(streams[tensor.device.index][arguments[1]])
        elif action == "empty":
            torch.npu.empty_cache()
    for device in range(2):
        torch.npu.synchronize(device)
    check_books()
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor, _ in alive)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert all(tensor[0].item() == tensor[-1].item() == number for tensor, number in alive)
    del alive, places
    tensor = None
    torch.npu.empty_cache()
    assert all(torch.npu.memory_reserved(device) <= before[device] for device in range(2))


STREAMS = [[torch.npu.Stream(device) for _ in range(2)] for device in range(2)]


def test_memory_that_lacks_is_taken_from_the_cache(with_vnpu):
    with_vnpu(
        """
        import torch
        xs = [torch.empty(1 << 20, dtype=torch.uint8, device="npu") for _ in range(8)]
        with torch.npu.stream(torch.npu.Stream()):
            ys = [torch.empty(1 << 20, dtype=torch.uint8, device="npu") for _ in range(8)]
        assert torch.npu.mem_get_info()[0] == 0
        del xs
        z = torch.empty(5 << 20, dtype=torch.uint8, device="npu")
        assert torch.npu.memory_stats()["num_alloc_retries"] == 1
        del ys, z
        torch.empty(16 << 20, dtype=torch.uint8, device="npu")  # all of it
        try:
            torch.empty((16 << 20) + 1, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError as error:
            assert "Of the reserved memory 0 bytes is allocated by PyTorch" in str(error)
        else:
            raise AssertionError
        """,
        VNPU_MEMORY="16M",
    ).passed()


def test_threads_whose_memory_fits_never_run_out_of_it(with_vnpu):
    """Four threads, each with one tensor at a time and three streams, whose pools keep what the others lack."""
    run = with_vnpu(
        """
        import random, threading, torch
        def work(number):
            choose = random.Random(number).choice
            streams = [torch.npu.Stream() for _ in range(3)]
            try:
                for _ in range(150):
                    with torch.npu.stream(choose(streams)):
                        x = torch.ones(choose([10, 12]) << 20, dtype=torch.uint8, device="npu")
                        del x
            except torch.OutOfMemoryError as error:
                print(error)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(torch.npu.memory_stats()["num_alloc_retries"] > 0)
        """,
        VNPU_MEMORY="48M",  # four times the larger segment
    ).passed()
    assert run.lines == ["True"]
