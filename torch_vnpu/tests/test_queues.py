"""Asynchronous streams: the host goes on, events order for real, errors surface later, and correctly synchronised programs
compute what they compute on CPU, bit for bit.
"""

import ctypes
import threading
import time
import warnings

import pytest
import torch
from holding import held
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def learned():
    """Calls whose look is known, so that they are queued: add_ and clone of two elements on both devices."""
    for device in range(2):
        x = torch.zeros(2, device=f"npu:{device}")
        x.add_(1)
        x.clone()
        x.index_select(0, torch.zeros(1, dtype=torch.long, device=x.device))
        torch.npu.synchronize(device)


def ready(device):
    """Two zeros that every stream may use."""
    x = torch.zeros(2, device=device)
    torch.npu.synchronize(device)
    return x


# ------------------------------------------------------------------------------------ the host goes on
def test_launches_return_before_their_kernels_have_run(learned):
    stream, event = torch.npu.Stream(), torch.npu.Event()
    x = ready("npu")
    with held(stream), torch.npu.stream(stream):
        x.add_(1)
        event.record()
        assert not stream.query()
        assert not event.query()
    event.synchronize()
    assert event.query()
    stream.synchronize()
    assert stream.query()
    assert x.tolist() == [1, 1]


def test_item_and_copies_to_the_host_wait_for_their_own_stream(learned):
    stream = torch.npu.Stream()
    x = ready("npu")
    with held(stream):
        assert (torch.zeros(2, device="npu").add_(1)).tolist() == [1, 1]  # another stream is not waited for
        with torch.npu.stream(stream):
            x.add_(1)
    with torch.npu.stream(stream):
        assert x[0].item() == 1


def test_a_full_queue_makes_the_host_wait(learned):
    stream = torch.npu.Stream()
    x = ready("npu")
    launched = []

    def launch():
        with torch.npu.stream(stream):
            for _ in range(5000):
                x.add_(1)
                launched.append(None)

    with held(stream):
        host = threading.Thread(target=launch)
        host.start()
        host.join(3)
        assert host.is_alive()
        assert 4000 < len(launched) < 5000
    host.join()
    stream.synchronize()
    assert x.tolist() == [5000, 5000]


# ------------------------------------------------------------------------------------ order
def test_a_missing_wait_races_and_a_wait_orders(learned):
    writer, reader = torch.npu.Stream(), torch.npu.Stream()
    x = ready("npu")
    torch.npu.synchronize()
    with held(writer):
        with torch.npu.stream(writer):
            x.add_(1)
        with torch.npu.stream(reader):
            unordered = x.clone()
        reader.synchronize()
        assert unordered.tolist() == [0, 0]
        reader.wait_stream(writer)
        with torch.npu.stream(reader):
            ordered = x.clone()
        assert not reader.query()
    with torch.npu.stream(reader):
        assert ordered.tolist() == [1, 1]


def test_an_event_stands_for_its_latest_record(learned):
    first, second = torch.npu.Stream(), torch.npu.Stream()
    event = torch.npu.Event()
    event.record(first)
    assert event.query()
    with held(first):
        with torch.npu.stream(first):
            torch.zeros(2, device="npu").add_(1)
        event.record(first)
        second.wait_event(event)
        event.record(second)  # the wait that was queued before keeps its own record
        assert not event.query()
    second.synchronize()
    assert event.query()


def test_streams_of_two_devices_do_not_wait_for_each_other(learned):
    stream = torch.npu.Stream(0)
    x = ready("npu:0")
    with held(stream):
        with torch.npu.stream(stream):
            x.add_(1)
        assert torch.zeros(2, device="npu:1").add_(1).tolist() == [1, 1]
        assert not stream.query()
    stream.synchronize()


def test_random_numbers_are_drawn_in_the_order_of_the_calls():
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    torch.manual_seed(3)
    drawn = []
    for step in range(8):
        with torch.npu.stream(streams[step % 2]):
            drawn.append(torch.rand(5, device="npu"))
            drawn.append(torch.nn.functional.dropout(torch.ones(5, device="npu"), 0.5))
    torch.npu.synchronize()
    torch.manual_seed(3)
    expected = []
    for _ in range(8):
        expected.append(torch.rand(5))
        expected.append(torch.nn.functional.dropout(torch.ones(5), 0.5))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(drawn, expected, strict=True))


# ------------------------------------------------------------------------------------ copies
@pytest.mark.parametrize("busy", [0, 1])
def test_a_copy_between_devices_is_queued_and_ordered_with_the_streams_of_both(learned, busy):
    source, target = ready("npu:0"), ready("npu:1")
    with held(torch.npu.current_stream(busy)):
        source.add_(1)
        target.add_(5)
        target.copy_(source)
        source.add_(1)
        target.add_(1)
        assert not torch.npu.current_stream(0).query()  # each waits for the other's part in the copy
        assert not torch.npu.current_stream(1).query()
    assert (source.tolist(), target.tolist()) == ([2, 2], [2, 2])


def test_pageable_memory_may_change_once_the_copy_has_returned():
    source = torch.arange(8.0)
    for _ in range(20):
        copy = source.to("npu")
        expected = source.clone()
        source.add_(1)
        assert torch.equal(copy.cpu(), expected)


def test_pinned_copies_are_asynchronous_and_right_after_a_synchronisation(learned):
    stream = torch.npu.Stream()
    host = torch.zeros(2).pin_memory()
    x = ready("npu").add_(1)
    host.copy_(x, non_blocking=True)  # learned
    torch.npu.synchronize()
    host.zero_()
    with held(stream):
        with torch.npu.stream(stream):
            host.copy_(x, non_blocking=True)
        assert host.tolist() == [0, 0]
    stream.synchronize()
    assert host.tolist() == [1, 1]


# ------------------------------------------------------------------------------------ errors
def test_an_error_of_a_queued_kernel_surfaces_once_with_the_operator_name(learned):
    x = ready("npu")
    bad = torch.full((1,), 7, dtype=torch.long, device="npu")
    x.index_select(0, bad)
    with pytest.raises(RuntimeError, match=r"aten::index_select failed: .*ASCEND_LAUNCH_BLOCKING=1"):
        torch.npu.synchronize()
    torch.npu.synchronize()
    assert x.add_(1).tolist() == [1, 1]


def test_an_error_stays_with_its_stream(learned):
    bad = torch.full((1,), 7, dtype=torch.long, device="npu")
    torch.npu.synchronize()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        torch.zeros(2, device="npu").index_select(0, bad)
    torch.npu.current_stream().synchronize()
    with pytest.raises(RuntimeError, match="index_select"):
        stream.synchronize()


def test_elapsed_time_needs_events_that_were_reached(learned):
    stream = torch.npu.Stream()
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    with held(stream):
        start.record(stream)
        end.record(stream)
        with pytest.raises(RuntimeError, match="must be completed"):
            start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) >= 0


# ------------------------------------------------------------------------------------ memory
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_queued_result_lies_where_its_tensor_says(reduction):
    # This kernel gives its out other memory on the way to a number.
    given, wanted = torch.rand(5, 5).npu(), torch.rand(5, 5).npu()
    for _ in range(3):  # the later calls are queued
        loss = torch.nn.functional.huber_loss(given, wanted, reduction=reduction)
    torch.npu.synchronize()
    there = (ctypes.c_float * loss.numel()).from_address(loss.data_ptr())
    expected = torch.nn.functional.huber_loss(given.cpu(), wanted.cpu(), reduction=reduction)
    assert list(there) == expected.flatten().tolist()


def test_memory_figures_are_those_of_the_host_whatever_is_queued(learned):
    before = torch.npu.memory_allocated()
    x = torch.zeros(1024, device="npu")
    for _ in range(50):
        x = x + 1
    assert torch.npu.memory_allocated() == before + 4096
    del x
    assert torch.npu.memory_allocated() == before


def test_empty_cache_leaves_what_another_thread_launches_on_and_frees_meanwhile():
    size = 12 << 20  # a segment of its own
    stream = torch.npu.Stream("npu:0")
    with torch.npu.stream(stream):
        for _ in range(2):  # the look of the calls is learned
            x = torch.ones(size, dtype=torch.uint8, device="npu:0")
            x.clone()
    stream.synchronize()
    del x
    a = torch.randn(700, 700, device="npu:1")
    a @ a
    torch.npu.synchronize(1)
    torch.npu.empty_cache()
    free = torch.npu.memory_reserved(0)
    for _ in range(40):
        a @ a
    emptying = threading.Thread(target=torch.npu.empty_cache)
    emptying.start()
    time.sleep(0.05)  # it has waited for npu:0, and waits for npu:1 now
    with held(stream), torch.npu.stream(stream):
        x = torch.ones(size, dtype=torch.uint8, device="npu:0")
        y = x.clone()
        del x
        torch.npu.synchronize(1)
        emptying.join(0.5)
        assert torch.npu.memory_reserved(0) >= free + 2 * size
    emptying.join(60)
    assert bool((y == 1).all())
    del y
    torch.npu.synchronize(0)
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved(0) <= free


def test_results_that_the_host_has_dropped_do_not_pile_up():
    x = torch.zeros(16, 1024, 1024, device="npu")  # 64 MiB
    torch.npu.synchronize()
    torch.npu.reset_peak_memory_stats()
    for _ in range(60):
        x = x + 1
    assert x[0, 0, 0].item() == 60
    assert torch.npu.max_memory_allocated() < 10 * x.untyped_storage().nbytes()


def test_numbers_that_say_how_long_a_result_is_are_looked_at():
    out = torch.empty(5, dtype=torch.int64, device="npu")
    torch.arange(5, out=out)
    torch.arange(5, out=out)
    with pytest.warns(UserWarning, match="resized"):
        torch.arange(7, out=out)
    assert out.tolist() == list(range(7))
    assert torch.arange(3, device="npu").tolist() == [0, 1, 2]


# ------------------------------------------------------------------------------------ modes, in processes of their own
@pytest.mark.parametrize("variable", [{"TASK_QUEUE_ENABLE": "0"}, {"ASCEND_LAUNCH_BLOCKING": "1"}])
def test_a_blocking_launch_fails_itself(fresh, variable):
    told = fresh(
        """
        import torch
        x = torch.zeros(2, device="npu")
        for index in (0, 7):
            try:
                x.index_select(0, torch.full((1,), index, device="npu"))
            except Exception as error:
                print(type(error).__name__, "queued" in str(error))
        print(torch.npu.current_stream().query())
        """,
        **variable,
    ).passed()
    assert told.out.split() == ["IndexError", "False", "True"]


def test_the_end_of_the_process_waits_for_the_queues(fresh):
    told = fresh(
        """
        import atexit
        done = []
        atexit.register(lambda: print(done.count("aten::add_.Tensor")))  # runs after the backend's own
        import torch
        from torch_vnpu import _C
        x = torch.zeros(2, device="npu").add_(1)
        torch.npu.synchronize()
        _C.subscribe(lambda *event: done.append(event[3]), ["complete"])
        for _ in range(500):
            x.add_(1)
        """
    ).passed()
    assert told.out.strip() == "500"


def test_a_value_that_is_no_mode_is_named(fresh):
    told = fresh(
        """
        import torch
        try:
            torch.zeros(2, device="npu")
        except RuntimeError as error:
            print(error)
        """,
        TASK_QUEUE_ENABLE="maybe",
    ).passed()
    assert "TASK_QUEUE_ENABLE is 'maybe', but must be 0, 1 or 2" in told.out


# ------------------------------------------------------------------------------------ programs
STEPS = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "mm": lambda x, y: x @ y,
    "relu": lambda x, y: (x - y).relu(),
    "sum": lambda x, y: x.sum(0, keepdim=True).expand(4, 4) + y,
    "add_": lambda x, y: x.add_(y),
    "copy_": lambda x, y: x.copy_(y),
    "softmax": lambda x, y: torch.softmax(x, 1) + y,
    "max": lambda x, y: x.max(1, keepdim=True).values + y,
    "view_": lambda x, y: x.t().mul_(y[0].clone()),
    "cat": lambda x, y: torch.cat([x[:2], y[2:]]),
}
step = st.tuples(
    st.sampled_from(sorted(STEPS)), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(step, min_size=1, max_size=25), st.integers(0, 2**16))
def test_programs_on_streams_and_devices_end_as_on_cpu(program, seed):
    """Registers 0 and 1 lie on npu:0, 2 and 3 on npu:1; each step runs on one of three streams of its operand's device."""
    values = [torch.randn(4, 4, generator=torch.Generator().manual_seed(seed + index)) for index in range(4)]
    devices = ["npu:0", "npu:0", "npu:1", "npu:1"]
    on_cpu = [value.clone() for value in values]
    on_npu = [value.to(device) for value, device in zip(values, devices, strict=True)]
    streams = {device: [torch.npu.Stream(device) for _ in range(3)] for device in ("npu:0", "npu:1")}
    for device in streams:
        torch.npu.synchronize(device)
    for name, into, left, right, lane in program:
        on_cpu[into] = STEPS[name](on_cpu[left], on_cpu[right]).clone()
        device = devices[left]
        stream = streams[device][lane]
        for others in streams.values():  # all that was launched before comes before
            for other in others:
                stream.wait_stream(other)
        with torch.npu.stream(stream):
            result = STEPS[name](on_npu[left], on_npu[right].to(device)).clone()
            if devices[into] != device:
                result = result.to(devices[into])
        # A copy between devices ends on both devices' streams.
        torch.npu.current_stream(devices[into]).wait_stream(stream)
        for other in streams[devices[into]]:
            other.wait_stream(torch.npu.current_stream(devices[into]))
        on_npu[into] = result
    for device in streams:
        torch.npu.synchronize(device)
    assert [value.cpu().numpy().tobytes() for value in on_npu] == [value.numpy().tobytes() for value in on_cpu]


# ------------------------------------------------------------------------------------ what is settled at the call
@pytest.fixture
def occupied():
    """Called, it gives the current stream some milliseconds of work."""
    a = torch.ones(700, 700, device="npu")

    def work() -> None:
        for _ in range(6):
            a @ a

    work()
    return work


GROWING = {
    "resize_": lambda x: x.resize_(4096),
    "resize_as_": lambda x: x.resize_as_(torch.empty(4096, device="npu")),
    "resize_ of a view": lambda x: x[:2].resize_(4096)[:4],
    "set_": lambda x: x.set_(x.untyped_storage(), 0, (4096,), (1,)),
    "storage": lambda x: x.untyped_storage().resize_(1 << 14) and x,
}


@pytest.mark.parametrize("grow", GROWING.values(), ids=GROWING)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same stream", "another stream that is waited for"])
def test_memory_that_grows_takes_over_what_queued_kernels_write(learned, occupied, grow, elsewhere):
    x = torch.ones(4, device="npu")
    stream = torch.npu.Stream() if elsewhere else torch.npu.current_stream()
    for _ in range(2):
        torch.ones(4, device="npu").add_(1)
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        occupied()
        x.add_(1)
    torch.npu.current_stream().wait_stream(stream)
    assert grow(x)[:2].tolist() == [2, 2]
    assert x[:2].tolist() == [2, 2]


def test_the_default_dtype_at_the_call_decides(occupied):
    x = torch.ones(3, dtype=torch.int64, device="npu")
    ours = {"div": lambda: x / 3, "sqrt": lambda: x.sqrt(), "foreach": lambda: torch._foreach_div([x, x], 3)[1]}
    for call in ours.values():
        call()
    occupied()
    results = [call() for call in ours.values()]
    torch.set_default_dtype(torch.float16)
    try:
        torch.npu.synchronize()
    finally:
        torch.set_default_dtype(torch.float32)
    assert [result.cpu().tolist() for result in results] == [call().cpu().tolist() for call in ours.values()]
    assert {result.dtype for result in results} == {torch.float32}


def test_denormal_numbers_are_treated_as_the_calling_thread_does():
    x, y = torch.full((3,), 1e-38, device="npu"), torch.full((3,), 0.01, device="npu")
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    try:
        flushed = [(x * y).tolist() for _ in range(3)]
    finally:
        torch.set_flush_denormal(False)
    assert flushed == [[0.0] * 3] * 3
    assert (x * y)[0].item() > 0


def gathered(x, out):
    return torch.gather(x, 0, torch.zeros(5, dtype=torch.int64, device=x.device), out=out)


def test_a_tensor_is_changed_by_itself_in_the_queue():
    x, stream = torch.ones(4, device="npu"), torch.npu.Stream()
    for _ in range(2):
        x.add_(x)
    torch.npu.synchronize()
    with held(stream), torch.npu.stream(stream):
        x.add_(x)
        assert not stream.query()
    stream.synchronize()
    assert x.tolist() == [8] * 4


AT_THE_CALL = {
    "operands that overlap": lambda: torch.arange(5.0, device="npu")[1:].add_(torch.arange(5.0, device="npu")[:-1]),
    "an operand that is the result": lambda: gathered(x := torch.arange(5.0, device="npu"), torch.empty_like(x)),
    "a power": lambda: torch.full((3,), 2, device="npu").pow(2),
    "a number": lambda: torch.zeros(3, dtype=torch.uint8, device="npu").fill_(3),
}
REFUSED = {
    "operands that overlap": lambda x: x[1:].add_(x[:-1]),
    "an operand that is the result": lambda x: gathered(x, x),
    "a power": lambda x: x.long().pow(-1),
    "a number": lambda x: x.to(torch.uint8).fill_(300),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_error_that_no_value_decides_is_raised_by_the_call(what):
    for _ in range(2):
        AT_THE_CALL[what]()  # its look is learned
    x = torch.arange(5.0, device="npu")
    torch.npu.synchronize()
    with pytest.raises(RuntimeError) as ours:
        REFUSED[what](x)
    with pytest.raises(RuntimeError) as cpu:
        REFUSED[what](torch.arange(5.0))
    assert str(ours.value).splitlines()[0] == str(cpu.value).splitlines()[0]


def test_a_call_that_warns_warns_each_time_by_python():
    x = torch.ones(1, device="npu")
    for _ in range(3):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            x.std()
        assert len(told) == 1


def test_a_stream_that_nobody_uses_gives_its_thread_back(with_vnpu):
    with_vnpu(
        """
        import threading, time, os, torch
        def threads():
            return len(os.listdir("/proc/self/task"))
        x = torch.ones(4, device="npu")
        for _ in range(3):
            x + 1
        before = threads()
        streams = [torch.npu.Stream() for _ in range(20)]
        def use():
            for stream in streams:
                with torch.npu.stream(stream):
                    results.append(x + 1)
            torch.npu.synchronize()
        results = []
        use()
        assert threads() >= before + 20 - 5
        end = time.monotonic() + 60
        while threads() > before and time.monotonic() < end:
            time.sleep(0.1)
        assert threads() <= before
        use()  # they work again
        assert all(result.tolist() == [2] * 4 for result in results)
        """
    ).passed()
