"""The runtime's own functions behind `torch.npu.npurt()`: error codes instead of crashes, registered memory, handles."""

import ctypes
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

SIZE = 4096


@pytest.fixture
def npurt():
    return torch.npu.npurt()


@pytest.fixture
def block():
    """A tensor's own memory, which nobody has pinned; not registered any more in the end."""
    tensor = torch.zeros(SIZE, dtype=torch.uint8)
    yield tensor
    torch.npu.npurt().npuHostUnregister(tensor.data_ptr())


def created(npurt) -> int:
    where = ctypes.c_void_p()
    assert npurt.npuStreamCreate(ctypes.addressof(where)) == 0
    assert where.value
    return where.value


def test_it_starts_the_runtime(with_vnpu):
    with_vnpu(
        """
        import torch, torch_vnpu
        assert not torch.npu.is_initialized()
        npurt = torch.npu.npurt()
        assert torch.npu.is_initialized() and npurt is torch.npu.npurt()
        """
    ).passed()


def test_codes_are_integers_with_words(npurt):
    words = [npurt.npuGetErrorString(code) for code in npurt.npuError]
    assert len(set(words)) == len(words)
    assert [int(code) for code in npurt.npuError] == list(range(len(words)))
    assert words[npurt.npuError.success] == "success"
    for none in (-1, len(words), 2**31 - 1):
        assert npurt.npuGetErrorString(none) == "unknown error"
    assert type(npurt.npuHostUnregister(0)) is npurt.npuError


def test_tensors_whose_storage_starts_in_registered_memory_are_pinned(npurt):
    memory = bytearray(SIZE)

    def tensor(at: int) -> torch.Tensor:
        return torch.frombuffer(memory, dtype=torch.uint8, offset=at)

    start = tensor(0).data_ptr()
    assert npurt.npuHostRegister(start + 64, 1024, 0) == 0
    assert [tensor(at).is_pinned() for at in (0, 63, 64, 64 + 1023, 64 + 1024)] == [False, False, True, True, False]
    assert tensor(64)[5:].is_pinned()
    assert tensor(64).to("npu", non_blocking=True).sum().item() == 0
    assert npurt.npuHostUnregister(start + 64) == 0
    assert not tensor(64).is_pinned()


def test_what_is_no_memory_is_an_invalid_value(npurt, block):
    start = block.data_ptr()
    for arguments in ((0, 16, 0), (0, 0, 0), (start, 0, 0), (start, 2**64 - 1, 0), (start, 16, 4), (start, 16, 2**31)):
        assert npurt.npuHostRegister(*arguments) == npurt.npuError.invalid_value, arguments
    assert npurt.npuHostUnregister(0) == npurt.npuError.invalid_value
    assert not block.is_pinned()


@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_registering_twice_and_unregistering_twice(npurt, block, flags):
    start = block.data_ptr()
    assert npurt.npuHostRegister(start, SIZE, flags) == 0
    assert npurt.npuHostRegister(start, SIZE, flags) == npurt.npuError.already_registered
    assert block.is_pinned()
    assert npurt.npuHostUnregister(start + 1) == npurt.npuError.not_registered
    assert npurt.npuHostUnregister(start) == 0
    assert npurt.npuHostUnregister(start) == npurt.npuError.not_registered
    assert npurt.npuHostRegister(start, 1) == 0
    assert npurt.npuHostUnregister(start) == 0


@pytest.mark.parametrize(
    ("first", "bytes", "code"), [(0, 100, 0), (0, 101, 10), (150, 1, 10), (0, 4096, 10), (199, 1, 10), (200, 8, 0)]
)
def test_ranges_never_overlap(npurt, block, first, bytes, code):
    start = block.data_ptr()
    assert npurt.npuHostRegister(start + 100, 100) == 0
    assert npurt.npuHostRegister(start + first, bytes) == code
    npurt.npuHostUnregister(start + first)
    assert npurt.npuHostUnregister(start + 100) == 0


# Nothing looks at the memory itself, so the addresses may be any.
BASE = 1 << 40
RANGES = st.tuples(st.booleans(), st.integers(0, 40), st.integers(1, 12))


@settings(max_examples=60, deadline=None)
@given(st.lists(RANGES, max_size=30))
def test_what_is_registered_is_what_a_list_of_ranges_says(steps):
    npurt, ranges = torch.npu.npurt(), {}
    try:
        for registers, first, size in steps:
            if registers:
                free = all(first + size <= start or start + bytes <= first for start, bytes in ranges.items())
                assert npurt.npuHostRegister(BASE + first, size) == (0 if free else npurt.npuError.already_registered)
                if free:
                    ranges[first] = size
            else:
                known = ranges.pop(first, None)
                assert npurt.npuHostUnregister(BASE + first) == (0 if known else npurt.npuError.not_registered)
    finally:
        for first in ranges:
            assert npurt.npuHostUnregister(BASE + first) == 0


@pytest.mark.parametrize("number", [-1, 2**64, "1", None, 1.5])
def test_what_is_no_address_is_a_type_error(npurt, number):
    for use in (
        lambda: npurt.npuHostRegister(number, 16),
        lambda: npurt.npuHostUnregister(number),
        lambda: npurt.npuStreamCreate(number),
        lambda: npurt.npuStreamDestroy(number),
    ):
        with pytest.raises(TypeError):
            use()


def test_memory_that_torch_pinned_is_torchs(npurt):
    pinned = torch.ones(8).pin_memory()
    assert npurt.npuHostRegister(pinned.data_ptr(), 4) == npurt.npuError.already_registered
    assert npurt.npuHostUnregister(pinned.data_ptr()) == npurt.npuError.not_registered
    assert pinned.is_pinned()


def test_a_stream_that_was_created_works_in_torch(npurt):
    with torch.npu.device(1):
        handle = created(npurt)
    stream = torch.npu.ExternalStream(handle)
    assert isinstance(stream, torch.npu.Stream)
    assert (stream.device_index, stream.npu_stream) == (1, handle)
    same = torch.npu.get_stream_from_external(handle, "npu:1")
    assert same == stream
    assert type(same) is torch.npu.Stream
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        x = torch.arange(4.0, device="npu:1") * 2
    stream.synchronize()
    assert x.tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match="on npu:1, not on 0"):
        torch.npu.ExternalStream(handle, 0)
    assert npurt.npuStreamDestroy(handle) == 0


def test_work_is_finished_after_its_stream_was_destroyed(npurt):
    handle = created(npurt)
    stream = torch.npu.ExternalStream(handle)
    with torch.npu.stream(stream):
        x = torch.zeros(1000, device="npu")
        for _ in range(200):
            x += 1
        event = torch.npu.Event()
        event.record()
    assert npurt.npuStreamDestroy(handle) == 0
    event.synchronize()
    torch.npu.synchronize()
    assert x.eq(200).all().item()


def test_what_is_no_live_stream_is_an_invalid_handle(npurt):
    handle = created(npurt)
    torch.npu.ExternalStream(handle)
    assert npurt.npuStreamDestroy(handle) == 0
    for none in (
        handle,
        0,
        1,
        2**64 - 1,
        torch.npu.default_stream().npu_stream,
        torch.npu.default_stream(1).npu_stream,
    ):
        assert npurt.npuStreamDestroy(none) == npurt.npuError.invalid_handle, none
    for none in (handle, 0, 1):
        with pytest.raises(RuntimeError, match="invalid handle"):
            torch.npu.ExternalStream(none)
    assert npurt.npuStreamCreate(0) == npurt.npuError.invalid_value
    assert created(npurt) != handle


def test_a_destroyed_stream_is_refused_wherever_it_is_used(npurt):
    handle = created(npurt)
    stream = torch.npu.ExternalStream(handle)
    event = torch.npu.Event()
    torch.npu.set_stream(stream)
    assert npurt.npuStreamDestroy(handle) == 0
    for use in (
        lambda: torch.ones(2, device="npu"),
        lambda: event.record(),
        lambda: event.record(stream),
        stream.synchronize,
        lambda: stream.wait_stream(torch.npu.default_stream()),
        lambda: torch.npu.set_stream(stream),
    ):
        with pytest.raises(RuntimeError, match="invalid handle"):
            use()
    torch.npu.set_stream(torch.npu.default_stream())
    assert torch.ones(2, device="npu").tolist() == [1, 1]


def test_many_streams_come_and_go(npurt):
    def threads() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

    before = threads()
    for _ in range(100):
        handle = created(npurt)
        with torch.npu.stream(torch.npu.ExternalStream(handle)):
            torch.ones(2, device="npu").add_(1)
        assert npurt.npuStreamDestroy(handle) == 0
    torch.npu.synchronize()
    deadline = time.monotonic() + 60  # a thread ends soon after its queue is empty; one that never does is a failure
    while threads() > before + 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before + 2


def test_a_stream_is_destroyed_once_however_many_try(npurt):
    """While a third thread uses it, which either works or is refused."""
    for _ in range(20):
        handle = created(npurt)
        stream = torch.npu.ExternalStream(handle)
        codes, refused, start = [], [], threading.Barrier(3)

        def use(stream=stream, refused=refused, start=start) -> None:
            x = torch.zeros(8, device="npu")
            torch.npu.synchronize()
            start.wait()
            try:
                with torch.npu.stream(stream):
                    for _ in range(50):
                        x.add_(1)
            except RuntimeError as error:
                refused.append(str(error))

        def destroy(handle=handle, codes=codes, start=start) -> None:
            start.wait()
            codes.append(int(npurt.npuStreamDestroy(handle)))

        threads = [threading.Thread(target=work) for work in (use, destroy, destroy)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.npu.synchronize()
        assert sorted(codes) == [0, npurt.npuError.invalid_handle]
        assert all("invalid handle" in words for words in refused)


def test_memory_info(npurt):
    torch.npu.synchronize()
    assert npurt.npuMemGetInfo(1) == torch.npu.mem_get_info(1)
    for none in (-1, 2, 1000):
        with pytest.raises(torch.npu.NpuError, match="invalid device ordinal") as caught:
            npurt.npuMemGetInfo(none)
        assert caught.value.code == npurt.npuError.invalid_device


def test_check_error(npurt):
    torch.npu.check_error(0)
    torch.npu.check_error(npurt.npuError.success)
    with pytest.raises(torch.npu.NpuError, match=r"invalid handle \(error 4\)"):
        torch.npu.check_error(npurt.npuStreamDestroy(0))
    with pytest.raises(torch.npu.NpuError, match="unknown error"):
        torch.npu.check_error(99)


def test_a_forked_child_gets_codes_too(with_vnpu):
    with_vnpu(
        """
        import os, torch
        npurt = torch.npu.npurt()
        child = os.fork()
        if not child:
            codes = npurt.npuHostRegister(4096, 8), npurt.npuHostUnregister(4096), npurt.npuStreamDestroy(4096)
            os._exit(0 if set(codes) == {npurt.npuError.bad_fork} else 1)
        assert os.waitpid(child, 0)[1] == 0
        """
    ).passed()
