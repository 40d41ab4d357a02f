"""The stream check's view of the operators: what each one touches, how, on which device, stream and thread."""

import threading

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from torch_vnpu import sanitizer
from torch_vnpu.sanitizer.stream_check import StreamCheckMode


def launches(work):
    """What `work` launches, with its result."""
    seen = []
    with StreamCheckMode(seen.append):
        result = work()
    return seen, result


def described(launch):
    """(argument, written, metadata only) of each access."""
    return [(access.argument, access.written, access.metadata_only) for access in launch.accesses]


READ, WRITTEN, SHAPE = (False, False), (True, False), (False, True)


@pytest.mark.parametrize(
    ("work", "operator", "accesses"),
    [
        (lambda x: x + x.t(), "aten.add.Tensor", {"self": READ, "other": READ, "return": WRITTEN}),
        (lambda x: x.add_(1), "aten.add_.Tensor", {"self": WRITTEN, "return": WRITTEN}),
        (lambda x: torch.mul(x, 2, out=x), "aten.mul.out", {"self": READ, "out": WRITTEN, "return": WRITTEN}),
        (lambda x: x.copy_(torch.ones(2, 2)), "aten.copy_.default", {"self": WRITTEN, "return": WRITTEN}),
        (lambda x: x.t(), "aten.t.default", {"self": SHAPE, "return": SHAPE}),
        (lambda x: x.view(4), "aten.view.default", {"self": SHAPE, "return": SHAPE}),
        (lambda x: x[0], "aten.select.int", {"self": SHAPE, "return": SHAPE}),
        (lambda x: x.split(1), "aten.split.Tensor", {"self": SHAPE, "return": SHAPE}),
        (lambda x: torch.empty_like(x), "aten.empty_like.default", {"self": SHAPE, "return": SHAPE}),
        (lambda x: torch.zeros_like(x), "aten.zeros_like.default", {"self": SHAPE, "return": WRITTEN}),
        (lambda x: x.new_full((3,), 2), "aten.new_full.default", {"self": SHAPE, "return": WRITTEN}),
        (lambda x: x.new_empty(3), "aten.new_empty.default", {"self": SHAPE, "return": SHAPE}),
        (lambda x: torch.empty(3, device="npu"), "aten.empty.memory_format", {"return": SHAPE}),
        (lambda x: torch.cat([x, x]), "aten.cat.default", {"tensors": READ, "return": WRITTEN}),
        (lambda x: torch._foreach_add_([x, x], 1), "aten._foreach_add_.Scalar", {"self": WRITTEN}),
        (lambda x: x.sort(), "aten.sort.default", {"self": READ, "return": WRITTEN}),
        (lambda x: x.cpu(), "aten._to_copy.default", {"self": READ}),
        (lambda x: x.item() if x.numel() == 1 else x[:1, 0].item(), "aten._local_scalar_dense.default", {"self": READ}),
        (lambda x: x[x > 0], "aten.index.Tensor", {"self": READ, "indices": READ, "return": WRITTEN}),
        (
            lambda x: torch.addmm(input=x, mat1=x, mat2=x),
            "aten.addmm.default",
            {"self": READ, "mat1": READ, "mat2": READ, "return": WRITTEN},
        ),
    ],
)
def test_what_an_operator_touches(work, operator, accesses):
    x = torch.ones(2, 2, device="npu")
    launch = next(launch for launch in launches(lambda: work(x))[0] if launch.operator == operator)
    assert {argument: (written, metadata) for argument, written, metadata in described(launch)} == accesses


def test_operators_of_other_libraries_are_not_taken_for_factories():
    with torch.library._scoped_library("vnpu_test_mode", "DEF") as library:
        library.define("renew_like(Tensor x) -> Tensor")
        library.impl("renew_like", lambda x: x + 1, "CPU")
        seen, _ = launches(lambda: torch.ops.vnpu_test_mode.renew_like(torch.ones(2, device="npu")))
    assert described(seen[-1]) == [("x", *READ), ("return", *WRITTEN)]


def test_pointers_and_sizes_are_those_of_the_tensors():
    base = torch.ones(10, device="npu")
    view = base[4:6]
    (launch,), result = launches(lambda: view + 1)
    read, made = launch.accesses
    assert (read.pointer, read.bytes) == (base.data_ptr() + 16, 40)
    assert (made.pointer, made.bytes) == (result.data_ptr(), 8)


def test_device_and_stream_are_those_of_the_launch():
    stream = torch.npu.Stream(1)
    x = torch.ones(2, device="npu:1")
    torch.npu.synchronize(1)
    with torch.npu.stream(stream):
        (on_stream,), _ = launches(lambda: x + 1)
    (on_default,), _ = launches(lambda: x + 1)
    assert (on_stream.device, on_stream.stream) == (torch.device("npu:1"), stream.stream_id)
    assert (on_default.device, on_default.stream) == (torch.device("npu:1"), 0)


def test_what_touches_no_npu_is_not_told():
    assert launches(lambda: (torch.ones(2) + 1).sum())[0] == []


def test_backward_is_seen_on_its_own_thread_and_stream():
    x = torch.ones(2, device="npu:1", requires_grad=True)
    stream, seen = torch.npu.Stream(1), []
    torch.npu.synchronize(1)
    mode = StreamCheckMode(lambda launch: seen.append((launch, threading.get_ident())))
    with mode, torch.npu.stream(stream):
        x.exp().sum().backward()
    backward = [launch for launch, thread in seen if thread != threading.get_ident()]
    assert "aten.mul.Tensor" in [launch.operator for launch in backward]
    assert {(launch.device, launch.stream) for launch in backward} == {(torch.device("npu:1"), stream.stream_id)}


def test_a_mode_without_a_checker_changes_nothing():
    x = torch.arange(4.0, device="npu")
    with StreamCheckMode():
        y = (x * 2).sum()
    assert y.item() == 12


def test_an_exception_of_the_checker_reaches_the_caller():
    def refuse(launch):
        raise RuntimeError(f"race in {launch.operator}")

    with StreamCheckMode(refuse), pytest.raises(RuntimeError, match=r"race in aten\.ones"):
        torch.ones(2, device="npu")


def test_enabling_and_disabling_are_idempotent():
    before = _get_current_dispatch_mode_stack()
    x = torch.ones(1, device="npu")
    try:
        mode = sanitizer.enable_npu_sanitizer(capture="dispatch")
        assert sanitizer.enable_npu_sanitizer() is mode
        *below, top = _get_current_dispatch_mode_stack()
        assert below == before
        assert isinstance(top, StreamCheckMode)
        before_add = mode.statistics["events"]
        x.add_(x)  # allocates nothing, so that only the operator can be seen
        assert mode.statistics["events"] > before_add
    finally:
        sanitizer.disable_npu_sanitizer()
    sanitizer.disable_npu_sanitizer()
    assert _get_current_dispatch_mode_stack() == before
    assert sanitizer.enable_npu_sanitizer() is not mode
    sanitizer.disable_npu_sanitizer()
