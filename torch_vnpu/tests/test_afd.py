"""Schedulers of attention and FFN workers: what is chosen, in which order, and that nothing is lost or done twice."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torch_vnpu
from torch_vnpu import _C
from torch_vnpu._afd import ScheduleContext, Scheduled


@pytest.mark.parametrize("device", ["npu", "cpu"])
def test_a_round_of_both_workers(device):
    context = ScheduleContext(sessions=3, micro_batches=2, device=device)
    torch.ops.npu.ffn_worker_scheduler(context.tensor, sync_group_size=2)
    assert context.for_ffn() == Scheduled(None)
    context.deliver_to_ffn(2, 1)
    torch_vnpu.ffn_worker_scheduler(context.tensor, sync_group_size=2)
    assert context.for_ffn() == Scheduled(None)
    context.deliver_to_ffn(0, 1)
    context.deliver_to_ffn(1, 1)
    torch_vnpu.ffn_worker_scheduler(context.tensor, sync_group_size=2)
    assert context.for_ffn() == Scheduled(1, (0, 1))
    torch_vnpu.ffn_worker_scheduler(context.tensor)
    assert context.for_ffn() == Scheduled(1, (2,))
    context.deliver_to_attention(1)
    torch_vnpu.attention_worker_scheduler(context.tensor)
    assert context.for_attention() == Scheduled(1)
    torch_vnpu.attention_worker_scheduler(context.tensor)
    assert context.for_attention() == Scheduled(None)


@settings(max_examples=40, deadline=None)
@given(sessions=st.integers(1, 4), micro_batches=st.integers(1, 4), group=st.integers(1, 4), data=st.data())
def test_every_delivery_is_scheduled_once_and_in_turn(sessions, micro_batches, group, data):
    group = min(group, sessions)
    context = ScheduleContext(sessions, micro_batches, "cpu")
    places = [(session, micro_batch) for session in range(sessions) for micro_batch in range(micro_batches)]
    delivered = data.draw(st.sets(st.sampled_from(places)))
    for session, micro_batch in delivered:
        context.deliver_to_ffn(session, micro_batch)
    taken, order = [], []
    while True:
        torch.ops.npu.ffn_worker_scheduler(context.tensor, sync_group_size=group)
        chosen = ScheduleContext.over(context.tensor).for_ffn()
        if chosen.micro_batch is None:
            break
        assert len(chosen.sessions) == group
        order.append(chosen.micro_batch)
        taken += [(session, chosen.micro_batch) for session in chosen.sessions]
    assert len(taken) == len(set(taken))
    assert set(taken) <= delivered
    left = delivered - set(taken)
    for micro_batch in range(micro_batches):
        assert sum(place[1] == micro_batch for place in left) < group
    # In turn: a micro-batch comes again only after each other one that was ready.
    ready = {micro_batch for micro_batch in range(micro_batches) if micro_batch in order}
    assert set(order[: len(ready)]) == ready


def test_a_scheduler_that_waits_returns_when_tokens_arrive_and_when_it_is_stopped():
    context = ScheduleContext(1, 1)
    seen, first = [], threading.Event()

    def worker():
        for _ in range(2):
            torch.ops.npu.ffn_worker_scheduler(context.tensor, execute_mode=1)
            seen.append(context.for_ffn())
            first.set()

    thread = threading.Thread(target=worker)
    thread.start()
    context.deliver_to_ffn(0, 0)
    assert first.wait(30)
    context.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [Scheduled(0, (0,)), Scheduled(None)]


def test_what_is_no_context_or_out_of_range_is_refused():
    context = ScheduleContext(2, 2, "cpu")
    for call in (torch_vnpu.attention_worker_scheduler, torch_vnpu.ffn_worker_scheduler):
        with pytest.raises(ValueError, match="holds no schedule context"):
            call(torch.zeros(20, dtype=torch.int64))
    for options in ({"sync_group_size": 3}, {"sync_group_size": 0}, {"execute_mode": 2}):
        with pytest.raises(ValueError, match="takes a sync_group_size from 1 to 2"):
            torch_vnpu.ffn_worker_scheduler(context.tensor, **options)
    with pytest.raises(IndexError, match="no session 2"):
        context.deliver_to_ffn(2, 0)
    with pytest.raises(IndexError, match="no micro-batch -1"):
        context.deliver_to_attention(-1)
    with pytest.raises(ValueError, match="not 0 and 1"):
        ScheduleContext(0, 1)


def test_the_native_module_has_no_such_name():
    assert not hasattr(_C, "_afd")
