"""torch.profiler on npu: every launch is in the trace, once, where and when it was, with a flow from its operator."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import pairwise

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

from torch_vnpu import _C

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
#: A trace has nanoseconds as decimals of microseconds: as floats they are right to less than one.
NS = 0.001


@contextmanager
def launches():
    """Counts what the device was given meanwhile."""
    seen = []
    id = _C.subscribe(lambda *event: seen.append(event), ["launch"])
    try:
        yield seen
    finally:
        for device in range(torch.npu.device_count()):
            torch.npu.synchronize(device)
        _C.unsubscribe(id)


@pytest.fixture
def exported(tmp_path):
    def export(profiler):
        file = tmp_path / "trace.json"
        profiler.export_chrome_trace(str(file))
        return json.loads(file.read_bytes())["traceEvents"]

    return export


def slices(events, *categories):
    return [event for event in events if event["ph"] == "X" and event["cat"] in categories]


def check(events, launched):
    """What holds for any trace: `launched` launches, each a call, a flow and a slice of the device."""
    calls = {event["args"]["correlation"]: event for event in slices(events, "privateuse1_runtime")}
    runs = {event["args"]["correlation"]: event for event in slices(events, *DEVICE)}
    assert len(calls) == len(slices(events, "privateuse1_runtime")) == launched
    assert len(runs) == len(slices(events, *DEVICE)) == launched
    assert calls.keys() == runs.keys()
    flows = defaultdict(list)
    for event in events:
        if event.get("cat") == "ac2g":
            flows[event["id"]].append(event)
    assert flows.keys() == runs.keys()
    for number, flow in flows.items():
        start, finish = sorted(flow, key=lambda event: event["ph"], reverse=True)
        assert (start["ph"], finish["ph"]) == ("s", "f")
        for end, there in ((start, calls[number]), (finish, runs[number])):
            assert [end[field] for field in ("pid", "tid", "ts")] == [there[field] for field in ("pid", "tid", "ts")]
        assert start["ts"] <= finish["ts"]
        assert calls[number]["args"].get("External id") == runs[number]["args"].get("External id")
    lanes = defaultdict(list)
    for event in runs.values():
        lanes[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        assert (event["args"]["device"], event["args"]["stream"]) == (event["pid"], event["tid"])
    for lane in lanes.values():
        lane.sort()
        assert all(end <= start + NS for (_, end), (start, _) in pairwise(lane))


def step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


@pytest.fixture
def training():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).npu()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 16, device="npu")
    step(model, optimizer, x)
    return lambda: step(model, optimizer, x)


def test_every_launch_of_a_training_step_is_in_the_trace(training, exported):
    with launches() as seen:
        with profile(activities=BOTH) as profiler:
            training()
    events = exported(profiler)
    check(events, len(seen))
    assert len(seen) > 20
    operators = {event["args"]["External id"]: event for event in slices(events, "cpu_op")}
    for event in slices(events, *DEVICE):
        operator = operators[event["args"]["External id"]]  # each from an operator: 100 %
        assert operator["ts"] <= event["ts"]
    names = Counter(event["name"] for event in slices(events, "kernel"))
    assert names["npu::addmm"] == 2
    # Forward on this thread, backward on the device's own.
    assert len({event["tid"] for event in slices(events, "privateuse1_runtime")}) == 2


def test_a_call_lies_in_its_operator_and_a_kernel_after_its_call(exported):
    x = torch.ones(4, device="npu")
    with profile(activities=BOTH) as profiler:
        with record_function("mine"):
            x + 1
        torch.npu.synchronize()
    events = exported(profiler)
    (mine,) = slices(events, "user_annotation")
    (add,) = (event for event in slices(events, "cpu_op") if event["name"] == "aten::add")
    (call,) = slices(events, "privateuse1_runtime")
    for inner, outer in ((call, add), (add, mine)):
        assert outer["ts"] <= inner["ts"]
        assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + NS


def test_nothing_is_lost_at_either_end(exported):
    x = torch.randn(256, 256, device="npu")
    for _ in range(20):
        x @ x  # under way when the profiler starts: not its business
    with launches() as seen:
        with profile(activities=BOTH) as profiler:
            for _ in range(50):
                x @ x  # under way when it stops
    check(exported(profiler), len(seen))
    assert len(seen) == 50


def test_copies_and_memsets_are_their_own_kinds(exported):
    host, other = torch.ones(1024), torch.empty(1024, device="npu:1")
    x, y = torch.empty(1024, device="npu"), torch.empty(1024, device="npu")
    with profile(activities=BOTH) as profiler:
        x.copy_(host)
        y.copy_(x)
        other.copy_(x)
        x.cpu()
        y.zero_()
        y.fill_(2)
    events = exported(profiler)
    copies = slices(events, "gpu_memcpy")
    assert sorted(event["name"] for event in copies) == ["Memcpy DtoD", "Memcpy DtoH", "Memcpy HtoD", "Memcpy PtoP"]
    assert {event["args"]["bytes"] for event in copies} == {4096}
    assert all(event["args"]["memory bandwidth (GB/s)"] > 0 for event in copies)
    assert [event["name"] for event in slices(events, "gpu_memset")] == [
        "Memset (aten::zero_)",
        "Memset (aten::fill_.Scalar)",
    ]
    assert slices(events, "kernel") == []
    calls = Counter(event["name"] for event in slices(events, "privateuse1_runtime"))
    assert calls == {"npuMemcpyAsync": 4, "npuMemsetAsync": 2}


def test_devices_and_streams_have_their_lanes_below_the_cpu(exported):
    side = torch.npu.Stream()
    with launches() as seen:
        with profile(activities=BOTH) as profiler:
            torch.ones(4, device="npu:0")
            torch.ones(4, device="npu:1")
            with torch.npu.stream(side):
                torch.ones(4, device="npu:0")
    events = exported(profiler)
    check(events, len(seen))
    labels = {event["pid"]: event["args"]["labels"] for event in events if event["name"] == "process_labels"}
    order = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    assert (labels[0], labels[1]) == ("NPU 0", "NPU 1")
    (cpu,) = (process for process, label in labels.items() if label == "CPU")
    assert order[cpu] < order[0] < order[1]
    threads = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    for device, stream in ((0, 0), (1, 0), (0, side.stream_id)):
        assert threads[device, stream] == f"stream {stream}"


def test_every_cycle_of_a_schedule_is_whole(training, tmp_path):
    found = []

    def ready(profiler):
        file = tmp_path / f"{len(found)}.json"
        profiler.export_chrome_trace(str(file))
        found.append(json.loads(file.read_bytes())["traceEvents"])

    counts = []
    with profile(
        activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2, repeat=10), on_trace_ready=ready
    ) as profiler:
        for _ in range(40):
            with launches() as seen:
                training()
            counts.append(len(seen))
            profiler.step()
    assert len(found) == 10
    for cycle, events in enumerate(found):
        check(events, sum(counts[4 * cycle + 2 : 4 * cycle + 4]))
        steps = sorted(
            {event["name"] for event in slices(events, "user_annotation") if "ProfilerStep" in event["name"]}
        )
        assert steps == sorted(f"ProfilerStep#{4 * cycle + number}" for number in (2, 3))


def test_profilers_that_threads_start_and_stop_in_turn(tmp_path):
    lock, problems = threading.Lock(), []

    def work(number):
        try:
            for turn in range(4):
                file = tmp_path / f"{number}-{turn}.json"
                with lock:  # torch has one profiler at a time
                    x = torch.ones(8, device=f"npu:{number % 2}")
                    with launches() as seen, profile(activities=BOTH) as profiler:
                        for _ in range(5):
                            x.add_(1)
                    profiler.export_chrome_trace(str(file))
                check(json.loads(file.read_bytes())["traceEvents"], len(seen))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_launches_of_other_threads_are_there(exported):
    def work():
        for _ in range(20):
            torch.ones(4, device="npu:1").add_(1)

    with launches() as seen:
        with profile(activities=BOTH) as profiler:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    events = exported(profiler)
    check(events, len(seen))
    assert len({event["tid"] for event in slices(events, "privateuse1_runtime")}) == 3


@pytest.mark.parametrize("work", [lambda: None, lambda: torch.ones(2) + 1], ids=["nothing", "on the host"])
def test_without_device_activity_there_is_no_error(work, exported):
    with profile(activities=BOTH) as profiler:
        work()
    events = exported(profiler)
    check(events, 0)
    assert "NPU 0" in {event["args"]["labels"] for event in events if event["name"] == "process_labels"}
    profiler.key_averages().table()


def test_an_operator_that_fails_leaves_a_whole_trace(exported):
    singular = torch.zeros(2, 2, device="npu")
    with launches() as seen:
        with profile(activities=BOTH) as profiler:
            with pytest.raises(RuntimeError):
                torch.linalg.inv(singular)
            torch.ones(2, device="npu")
    check(exported(profiler), len(seen))


def test_averages_have_device_time_memory_and_flops():
    model = torch.nn.Linear(64, 32).npu()
    x = torch.randn(16, 64, device="npu")
    with profile(activities=BOTH, profile_memory=True, record_shapes=True, with_flops=True) as profiler:
        model(x)
    averages = {average.key: average for average in profiler.key_averages()}
    addmm, kernel = averages["aten::addmm"], averages["npu::addmm"]
    assert kernel.self_device_time_total > 0
    assert kernel.count == 1
    # The operator has its kernel's time.
    assert addmm.device_time_total == pytest.approx(kernel.self_device_time_total, abs=NS)
    assert averages["aten::linear"].device_time_total >= addmm.device_time_total
    assert addmm.flops == 2 * 16 * 64 * 32
    assert averages["aten::linear"].device_memory_usage >= 16 * 32 * 4
    head = profiler.key_averages().table(sort_by="self_device_time_total").splitlines()[1]
    for column in ("Self NPU", "NPU total", "Self CPU Mem", "NPU Mem", "Total "):
        assert column in head, head


def test_memory_is_told_where_it_is(exported):
    with profile(activities=BOTH, profile_memory=True) as profiler:
        x = torch.empty(1000, device="npu:1")
        address = x.data_ptr()
        del x
    told = [
        event["args"]
        for event in exported(profiler)
        if event["name"] == "[memory]" and event["args"]["Device Type"] == 20
    ]
    assert [(args["Bytes"], args["Device Id"], args["Addr"]) for args in told] == [
        (4000, 1, address),
        (-4000, 1, address),
    ]
    assert told[0]["Total Allocated"] - told[1]["Total Allocated"] == 4096  # of the allocator, which rounds


def test_the_other_ways_out_of_a_profiler(training, tmp_path):
    with profile(
        activities=BOTH, with_stack=True, on_trace_ready=tensorboard_trace_handler(str(tmp_path / "board"))
    ) as profiler:
        training()
    (file,) = (tmp_path / "board").glob("*.pt.trace.json")
    assert slices(json.loads(file.read_bytes())["traceEvents"], "kernel")
    profiler.export_stacks(str(tmp_path / "stacks"), "self_privateuse1_time_total")
    stacks = (tmp_path / "stacks").read_text().splitlines()
    assert all(int(line.rpartition(" ")[2]) > 0 for line in stacks)
    kernels = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1]
    assert len(kernels) == len(slices(json.loads(file.read_bytes())["traceEvents"], *DEVICE))


SYNCHRONOUS = """
import json, tempfile, torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(4, device="npu")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
    y = x + 1
with tempfile.TemporaryDirectory() as folder:
    profiler.export_chrome_trace(folder + "/trace.json")
    events = json.load(open(folder + "/trace.json"))["traceEvents"]
by = {event["cat"]: event for event in events if event["ph"] == "X" and event["cat"] in ("kernel", "privateuse1_runtime")}
call, run = by["privateuse1_runtime"], by["kernel"]
print(call["ts"] <= run["ts"], run["ts"] + run["dur"] <= call["ts"] + call["dur"])
"""


def test_without_a_queue_a_kernel_runs_in_its_call(fresh):
    assert fresh(SYNCHRONOUS, TASK_QUEUE_ENABLE="0").lines == ["True True"]
