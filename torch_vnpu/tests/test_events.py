"""The table of listeners: what is told of the device's work, in which order, and that listeners disturb nothing."""

import gc
import threading
from collections import Counter
from contextlib import contextmanager

import pytest
import torch

from torch_vnpu import _C

KINDS = [
    "launch",
    "complete",
    "alloc",
    "free",
    "event_record",
    "event_wait",
    "event_synchronize",
    "stream_synchronize",
    "device_synchronize",
]


@contextmanager
def listening(*kinds, listener=None):
    """The events of `kinds` (all) while the context lasts: (kind, device, stream, name, pointer, bytes, sequence)."""
    seen = []
    id = _C.subscribe(listener or (lambda *event: seen.append(event)), kinds or KINDS)
    try:
        yield seen
    finally:
        _C.unsubscribe(id)


def settle():
    """Wait until all that is queued has run, and what it held is free."""
    gc.collect()
    for device in range(2):
        torch.npu.synchronize(device)


def test_a_launch_is_told_before_its_completion_with_its_number():
    x = torch.ones(4, device="npu:1")
    stream = torch.npu.Stream(1)
    settle()
    with listening("launch", "complete") as seen, torch.npu.stream(stream):
        torch.sin(torch.add(x, 1))
        settle()
    assert all(event[1:3] == (1, stream.stream_id) for event in seen)
    for kind in ("launch", "complete"):
        assert [event[3::3] for event in seen if event[0] == kind] == [("aten::add.Tensor", 1), ("aten::sin", 2)]
    for number in (1, 2):
        assert [event[0] for event in seen if event[6] == number] == ["launch", "complete"]


def test_an_operator_that_fails_completes():
    with listening("launch", "complete") as seen, pytest.raises(RuntimeError):
        torch.linalg.inv(torch.zeros(2, 2, device="npu"))
    assert Counter(event[0] for event in seen)["launch"] == Counter(event[0] for event in seen)["complete"] > 0


def test_a_device_mistake_is_no_launch():
    x, y = torch.ones(2, device="npu:0"), torch.ones(2, device="npu:1")
    with listening("launch") as seen, pytest.raises(RuntimeError):
        x + y
    assert seen == []


def test_allocations_and_frees_balance():
    settle()
    with listening("alloc", "free") as seen:
        x = torch.ones(8, device="npu")
        y = x.repeat(4).split(3)
        x.resize_(100)
        torch.cat(y, out=torch.empty(0, device="npu"))
        torch.empty(0, device="npu")
        del x, y
        gc.collect()
        settle()
    told = {kind: sorted((event[4], event[5]) for event in seen if event[0] == kind) for kind in ("alloc", "free")}
    assert told["alloc"] == told["free"]
    assert len(told["alloc"]) == 4
    assert all(size > 0 and pointer for pointer, size in told["alloc"])


def test_an_allocation_is_told_where_it_is():
    stream = torch.npu.Stream(1)
    with listening("alloc") as seen, torch.npu.stream(stream):
        x = torch.empty(8, device="npu:1")
    assert seen == [("alloc", 1, stream.stream_id, "", x.data_ptr(), 32, 0)]


def test_events_and_waits():
    first, second, event = torch.npu.Stream(), torch.npu.Stream(), torch.npu.Event()
    torch.npu.Event().wait(first)  # never recorded: nothing is told
    with torch.npu.stream(first):
        torch.ones(2, device="npu").add_(1)
    settle()
    with listening() as seen:
        event.record(first)
        second.wait_event(event)
        event.synchronize()
        first.synchronize()
        torch.npu.synchronize(1)
    handle = event.event_id
    assert seen == [
        ("event_record", 0, first.stream_id, "", handle, 0, 2),
        ("event_wait", 0, second.stream_id, "", handle, 0, 2),
        ("event_synchronize", 0, first.stream_id, "", handle, 0, 2),
        ("stream_synchronize", 0, first.stream_id, "", 0, 0, 2),
        ("device_synchronize", 1, -1, "", 0, 0, 0),
    ]


def test_only_the_kinds_that_were_named_are_told():
    with listening("free") as frees, listening("launch") as launches:
        torch.ones(4, device="npu").add_(1)
        settle()
    assert {event[0] for event in frees} == {"free"}
    assert {event[0] for event in launches} == {"launch"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_listener_that_raises_is_reported_and_stops_nothing(monkeypatch):
    import sys

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)

    def broken(*event):
        raise ValueError("broken listener")

    with listening(listener=broken), listening("complete") as seen:
        x = torch.ones(4, device="npu") + 1
        with pytest.raises(RuntimeError, match="must match"):  # the caller's own exception comes through
            x + torch.ones(3, device="npu")
    assert x.tolist() == [2] * 4
    assert {type(report.exc_value) for report in reported} == {ValueError}
    assert reported[0].object is broken
    assert "aten::add.Tensor" in [event[3] for event in seen]


def test_an_exception_on_its_way_survives_the_frees_that_it_causes():
    def tensors():
        yield torch.ones(4, device="npu")
        raise KeyError("on its way")

    with listening("free") as seen:
        settle()
        with pytest.raises(KeyError, match="on its way"):
            list(tensors())  # the list, and the tensor in it, go while the exception is set
        settle()
    assert len(seen) == 1


def test_after_unsubscribing_nothing_is_told():
    seen = []
    id = _C.subscribe(lambda *event: seen.append(event), KINDS)
    assert _C.listening()
    _C.unsubscribe(id)
    torch.ones(2, device="npu")
    assert seen == []
    with pytest.raises(ValueError, match=f"no listener has the id {id}"):
        _C.unsubscribe(id)


def test_a_listener_may_withdraw_itself():
    seen = []

    def once(*event):
        seen.append(event)
        _C.unsubscribe(id)

    id = _C.subscribe(once, ["launch"])
    torch.ones(2, device="npu").add_(1).add_(1)
    assert len(seen) == 1


def test_a_listener_is_let_go_when_it_is_withdrawn():
    import weakref

    class Listener:
        def __call__(self, *event):
            pass

    listener = Listener()
    seen = weakref.ref(listener)
    id = _C.subscribe(listener, ["launch"])
    del listener
    gc.collect()
    assert seen() is not None
    _C.unsubscribe(id)
    gc.collect()
    assert seen() is None


def test_a_listener_may_use_the_device():
    results = []

    def sum_up(*event):
        if not results:
            results.append(None)
            results[0] = torch.ones(3, device="npu").sum().item()

    for kind in ("launch", "complete"):
        results.clear()
        with listening(kind, listener=sum_up):
            torch.zeros(2, device="npu").add_(1)
            settle()
        assert results == [3]


def test_events_come_on_the_thread_where_they_happen():
    threads = {kind: set() for kind in ("launch", "complete", "alloc", "free")}
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(20):
            torch.ones(4, device="npu").add_(1)

    def note(*event):
        threads[event[0]].add(threading.get_ident())
        counts[event[0]] += 1

    counts = Counter()
    with listening("launch", "complete", "alloc", "free", listener=note):
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        idents = {worker.ident for worker in workers}
        for worker in workers:
            worker.join()
        settle()
    assert threads["launch"] == threads["alloc"] == idents
    assert threads["complete"]  # on the queue's thread, where there is one
    assert threads["free"]
    assert counts["launch"] == counts["complete"] == 4 * 20 * 2
    assert counts["alloc"] == counts["free"] >= 4 * 20  # and what the kernels needed for themselves


def test_listeners_come_and_go_while_others_work():
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            torch.ones(4, device="npu").add_(1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(200):
            _C.unsubscribe(_C.subscribe(lambda *event: None, KINDS))
    finally:
        stop.set()
        worker.join()


def test_the_table_has_an_end():
    ids = []

    def fill() -> None:
        for _ in range(1000):
            ids.append(_C.subscribe(lambda *event: None, ["launch"]))

    try:
        with pytest.raises(RuntimeError, match="table of listeners is full"):
            fill()
        assert len(ids) >= 8
        torch.ones(2, device="npu")
    finally:
        for id in ids:
            _C.unsubscribe(id)
    with listening("launch") as seen:
        torch.ones(2, device="npu")
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("listener", "kinds", "error", "words"),
    [
        (print, ["lunch"], ValueError, "unknown kind of event: 'lunch'"),
        (print, [], ValueError, "no kind of event was named"),
        (print, [3], RuntimeError, None),
        (None, ["launch"], TypeError, None),
    ],
)
def test_mistakes_in_subscribing(listener, kinds, error, words):
    before = _C.listening()
    with pytest.raises(error, match=words):
        _C.subscribe(listener, kinds)
    assert _C.listening() == before


@pytest.mark.parametrize("id", [-1, 10**6])
def test_an_id_that_nobody_has(id):
    with pytest.raises(ValueError, match="no listener has the id"):
        _C.unsubscribe(id)
