"""`record_ops`: every operator, in order, with what went in and came out."""

from __future__ import annotations

import threading

import pytest
import torch

from unpatch.observe import record_ops


def test_operators_are_recorded_in_the_order_of_their_calls():
    x = torch.ones(2, 3)
    with record_ops() as recorded:
        torch.add(x, 1).to(torch.float64).sum(0)
    assert [call.name for call in recorded.calls] == ["aten::add.Tensor", "aten::_to_copy", "aten::sum.dim_IntList"]
    add, copy, total = recorded.calls
    assert [str(spec) for spec in add.inputs] == ["float32[2, 3]"]
    assert [str(spec) for spec in copy.outputs] == ["float64[2, 3]"]
    assert total.outputs[0].shape == (3,)
    assert {call.device for call in recorded.calls} == {"cpu"}
    assert {(call.thread, call.depth, call.node) for call in recorded.calls} == {("main", 0, "")}


def test_lists_and_keywords_are_looked_into():
    with record_ops() as recorded:
        torch.cat([torch.ones(1), torch.ones(2)], out=torch.empty(3))
    assert [spec.shape for spec in recorded.calls[-1].inputs] == [(1,), (2,), (3,)]


def test_a_backward_pass_tells_its_nodes():
    x = torch.ones(3, requires_grad=True)
    with record_ops() as recorded:
        (x.exp() * 2).sum().backward()
    backward = [(call.name, call.node) for call in recorded.calls if call.node]
    assert ("aten::expand", "SumBackward0") in backward
    assert ("aten::mul.Tensor", "MulBackward0") in backward
    assert ("aten::mul.Tensor", "ExpBackward0") in backward


def test_an_operator_that_fails_is_recorded_and_its_error_passes():
    with record_ops() as recorded, pytest.raises(RuntimeError, match="shapes"):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    (call,) = [call for call in recorded.calls if call.name == "aten::mm"]
    assert call.outputs == ()


def test_recordings_nest_and_end():
    x = torch.ones(2)
    with record_ops() as outer:
        x.sin()
        with record_ops() as inner:
            x.cos()
        x.tan()
    x.exp()
    assert [call.name for call in inner.calls] == ["aten::cos"]
    assert [call.name for call in outer.calls] == ["aten::sin", "aten::cos", "aten::tan"]


def test_another_thread_is_not_the_entering_one():
    with record_ops() as recorded:
        thread = threading.Thread(target=lambda: torch.ones(2).sin())
        thread.start()
        thread.join()
    assert recorded.calls == []


def test_a_stack_ends_where_the_call_was_made():
    def work():
        return torch.ones(2)

    with record_ops(stacks=True) as recorded:
        work()
    assert recorded.calls[0].stack[0].startswith(f"{__file__}:")
    assert recorded.calls[0].stack[0].endswith(".work")


def test_what_is_compiled_is_seen_through_the_compiled_mode():
    function = torch.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)
    x = torch.ones(3)
    with record_ops(compiled=True) as recorded:
        y = function(x)
    assert torch.equal(y, x.sin() + 1)
    assert [call.name for call in recorded.calls] == ["aten::sin", "aten::add.Tensor"]
