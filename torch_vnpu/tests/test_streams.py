"""Streams and events: identity, what is current in which thread, waiting, timing, misuse."""

import threading

import pytest
import torch

from torch_vnpu import _C


def _ids(stream):
    return stream.device_index, stream.stream_id


def test_the_default_stream_is_number_0_of_each_device_and_current():
    for index in range(2):
        assert _ids(torch.npu.default_stream(index)) == (index, 0)
        assert (
            torch.npu.current_stream(index)
            == torch.npu.default_stream(index)
            == torch.accelerator.current_stream(index)
        )


def test_new_streams_have_ids_of_their_own_on_their_device():
    first, second, other = torch.npu.Stream(), torch.npu.Stream(), torch.npu.Stream(device=1)
    assert len({_ids(s) for s in (first, second, other, torch.npu.default_stream())}) == 4
    assert (first.device_index, other.device_index) == (0, 1)
    assert first != second
    assert repr(other) == f"torch.npu.Stream(device='npu:1', stream_id={other.stream_id})"
    with torch.npu.device(1):
        assert torch.npu.Stream().device_index == 1


def test_a_stream_is_known_by_its_ids():
    stream = torch.npu.Stream(1, priority=-1)
    again = torch.npu.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert again == stream
    assert hash(again) == hash(stream)
    assert len({again, stream}) == 1
    assert isinstance(stream, torch.Stream)
    assert stream.native_handle == again.native_handle


def test_a_context_makes_a_stream_and_its_device_current_and_restores_both():
    stream = torch.npu.Stream(1)
    with torch.npu.stream(stream):
        assert torch.npu.current_device() == 1
        assert torch.npu.current_stream() == stream
        with torch.npu.stream(None):
            assert torch.npu.current_stream() == stream
        with torch.npu.stream(stream):
            assert torch.npu.current_stream() == stream
        assert torch.npu.current_stream() == stream
    assert torch.npu.current_device() == 0
    assert torch.npu.current_stream(1) == torch.npu.default_stream(1)
    with pytest.raises(ZeroDivisionError), stream:
        1 / 0  # noqa: B018
    assert torch.npu.current_stream(1) == torch.npu.default_stream(1)


def test_each_device_and_each_thread_has_its_own_current_stream():
    zero, one = torch.npu.Stream(0), torch.npu.Stream(1)
    torch.npu.set_stream(one)
    torch.npu.set_stream(zero)
    assert torch.npu.current_stream(0) == zero
    assert torch.npu.current_stream(1) == one
    seen = []

    def work() -> None:
        seen.extend(torch.npu.current_stream(index).stream_id for index in (0, 1))
        torch.npu.set_stream(torch.npu.Stream(1))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 0]
    assert torch.npu.current_stream(1) == one


def test_set_stream_takes_the_device_along_and_none_changes_nothing():
    torch.npu.set_stream(torch.npu.Stream(1))
    assert torch.npu.current_device() == 1
    before = torch.npu.current_stream()
    torch.npu.set_stream(None)
    assert torch.npu.current_stream() == before


def test_a_stream_of_another_kind_or_an_unknown_id_is_refused():
    with pytest.raises(ValueError, match="stream of an npu device"):
        torch.npu.set_stream(torch.Stream("cpu"))
    kind = torch.npu.current_stream().device_type
    unknown = torch.npu.Stream(stream_id=10**6, device_index=0, device_type=kind)
    for use in (unknown.query, unknown.synchronize, unknown.record_event, lambda: torch.npu.set_stream(unknown)):
        with pytest.raises(RuntimeError, match="invalid handle"):
            use()


def test_work_on_a_stream_is_complete_when_it_is_asked():
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        x = torch.ones(8, device="npu") * 2
    assert stream.query()
    stream.synchronize()
    torch.npu.current_stream().wait_stream(stream)
    x.record_stream(torch.npu.current_stream())
    assert x.sum().item() == 16


def test_backward_runs_on_the_streams_of_the_forward():
    stream, seen = torch.npu.Stream(), []
    x = torch.ones(2, device="npu", requires_grad=True)
    stream.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(stream):
        y = x.exp()
    torch.npu.current_stream().wait_stream(stream)
    id = _C.subscribe(lambda kind, device, stream, name, *_: seen.append((name, stream)), ["launch"])
    try:
        y.sum().backward()
    finally:
        _C.unsubscribe(id)
    assert ("aten::mul.Tensor", stream.stream_id) in seen  # the backward of exp


@pytest.mark.parametrize("make", [torch.npu.Event, lambda **kw: torch.Event("npu", **kw)], ids=["torch.npu", "torch"])
def test_events_record_wait_and_tell_the_time(make):
    start, end = make(enable_timing=True), make(enable_timing=True)
    stream = torch.npu.Stream()
    start.record()
    with torch.npu.stream(stream):
        stream.wait_event(start)
        torch.ones(4, device="npu").add_(1)
        end.record()
    torch.npu.current_stream().wait_event(end)
    start.wait(stream)
    end.synchronize()
    assert start.query()
    assert end.query()
    assert isinstance(start.elapsed_time(end), float)
    assert start.elapsed_time(end) == -end.elapsed_time(start)
    assert start.elapsed_time(start) == 0


def test_streams_record_events():
    stream = torch.npu.Stream(1)
    given = torch.npu.Event(enable_timing=True)
    assert stream.record_event(given) is given
    assert given.device == torch.device("npu:1")
    made = stream.record_event()
    assert isinstance(made, torch.npu.Event)
    made.synchronize()
    torch.accelerator.current_stream(0).wait_event(made)  # of the other device


def test_what_an_event_is():
    event = torch.npu.Event()
    assert isinstance(event, torch.npu.Event)
    assert isinstance(event, torch.Event)
    assert not isinstance(torch.Event("cpu"), torch.npu.Event)
    assert not isinstance(torch.npu.Stream(), torch.npu.Event)
    assert issubclass(torch.npu.Event, torch.Event)


def test_an_event_never_recorded_is_complete_and_stops_nobody():
    event = torch.npu.Event()
    assert event.query()
    event.synchronize()
    event.wait()
    torch.npu.current_stream().wait_event(event)


def test_an_event_may_be_recorded_again_but_not_on_another_device():
    event = torch.npu.Event(enable_timing=True)
    start = torch.npu.Event(enable_timing=True)
    start.record()
    event.record()
    first = start.elapsed_time(event)
    event.record(torch.npu.Stream())
    assert start.elapsed_time(event) >= first
    with pytest.raises((RuntimeError, ValueError), match="device"):
        event.record(torch.npu.Stream(1))


def test_misused_timing_is_refused():
    def recorded(device=0, **settings):
        event = torch.npu.Event(**settings)
        event.record(torch.npu.current_stream(device))
        return event

    timed = recorded(enable_timing=True)
    with pytest.raises(ValueError, match="enable_timing"):
        timed.elapsed_time(recorded())
    with pytest.raises(ValueError, match="recorded"):
        timed.elapsed_time(torch.npu.Event(enable_timing=True))
    with pytest.raises((ValueError, RuntimeError), match="device"):
        timed.elapsed_time(recorded(1, enable_timing=True))
