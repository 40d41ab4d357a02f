"""What the operators channel records, of which threads, and that it disturbs nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_in_torch_dispatch_mode

from unpatch.model import ThreadRecord
from unpatch.observe.keys import current_keys
from unpatch.observe.operators import OperatorRecorder, record_operators


def run_in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def by_role(recorder: OperatorRecorder, role: str) -> list[ThreadRecord]:
    return [record for record in recorder.threads if record.role == role]


def test_operators_in_the_order_of_the_thread() -> None:
    x = torch.ones(3)
    with record_operators() as recorder:
        (x + 1).mul(2)
    (record,) = recorder.threads
    assert (record.role, record.device) == ("main", "cpu")
    assert record.operators == ("aten.add.Tensor", "aten.mul.Tensor")
    assert len(record.keys) == 2
    assert recorder.note == ""


def test_devices_are_told_apart_by_output_then_input_then_none() -> None:
    x = torch.ones(3)
    with record_operators() as recorder:
        torch.empty(2, device="meta").add(1)
        torch.split(x, 1)  # outputs in a list
        x.sum().item()  # no tensor among the outputs
        torch._foreach_add_([x], 1)  # no output, inputs in a list
        torch.ops.aten.equal(x, x)
    operators = {record.device: record.operators for record in recorder.threads}
    assert operators["meta"] == ("aten.empty.memory_format", "aten.add.Tensor")
    assert operators["cpu"] == (
        "aten.split.Tensor",
        "aten.sum.default",
        "aten._local_scalar_dense.default",
        "aten._foreach_add_.Scalar",
        "aten.equal.default",
    )


def test_backward_on_cpu_runs_on_the_thread_that_calls_it() -> None:
    x = torch.ones(3, requires_grad=True)
    with record_operators() as recorder:
        run_in_thread(lambda: (x * x).sum().backward())
    (record,) = recorder.threads
    assert record.role == "worker"
    assert record.operators.count("aten.mul.Tensor") == 3  # forward, and two of the backward


class Deep(torch.autograd.Function):
    """A backward that calls another: below some depth autograd goes on in a thread of its own."""

    @staticmethod
    def forward(ctx, x, depth):  # type: ignore[no-untyped-def]
        ctx.depth = depth
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.depth:
            with torch.enable_grad():
                Deep.apply(torch.ones(1, requires_grad=True), ctx.depth - 1).backward()
        else:
            gradient.cos()
        return gradient, None


def test_threads_of_autograd_are_backward() -> None:
    with record_operators() as recorder:
        Deep.apply(torch.ones(1, requires_grad=True), 70).backward()
    assert [record for record in by_role(recorder, "backward") if "aten.cos.default" in record.operators]
    assert not by_role(recorder, "worker")


def test_threads_started_meanwhile_and_by_them() -> None:
    x = torch.ones(3)

    def outer() -> None:
        x.sin()
        run_in_thread(x.cos)

    before = threading.Event()
    release = threading.Event()

    def earlier() -> None:
        before.set()
        release.wait()
        x.tan()

    started_before = threading.Thread(target=earlier)
    started_before.start()
    before.wait()
    with record_operators() as recorder:
        run_in_thread(outer)
        release.set()
        started_before.join()
    assert [record.operators for record in by_role(recorder, "worker")] == [
        ("aten.cos.default",),
        ("aten.sin.default",),
    ]


def test_the_order_of_threads_does_not_show() -> None:
    x = torch.ones(3)

    def record(first: Callable[[], object], second: Callable[[], object]) -> OperatorRecorder:
        with record_operators() as recorder:
            with torch.inference_mode():
                x + 1
            run_in_thread(first)
            run_in_thread(second)
        return recorder

    one, other = record(x.sin, x.cos), record(x.cos, x.sin)
    assert one.threads == other.threads
    assert one.key_sets == other.key_sets == tuple(sorted(one.key_sets, key=lambda pair: [int(v, 16) for v in pair]))
    assert len(one.key_sets) == 2


def test_keys_are_those_of_the_thread_at_the_operator() -> None:
    x = torch.ones(3)
    key = torch._C.DispatchKey.AutogradFunctionality  # type: ignore[attr-defined]

    def keys_of(excluded: bool) -> tuple[str, str]:
        with record_operators() as recorder:
            if excluded:
                with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):  # type: ignore[attr-defined]
                    x + 1
            else:
                x + 1
        (index,) = recorder.threads[0].keys
        return recorder.key_sets[index]

    assert keys_of(True)[1] != keys_of(False)[1]


def test_current_keys_are_by_value() -> None:
    before = current_keys()
    with torch.inference_mode():
        inside = current_keys()
    assert inside != before == current_keys()
    assert all(value.startswith("0x") for value in (*before, *inside))


def test_errors_pass_through_and_everything_is_put_back() -> None:
    def theirs(frame: object, event: str, arg: object) -> None:
        pass

    threading.setprofile(theirs)
    recorder = record_operators()

    def fail() -> None:
        with recorder:
            torch.ones(2) + torch.ones(3)

    try:
        with pytest.raises(RuntimeError, match="must match the size"):
            fail()
        assert threading.getprofile() is theirs
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert not is_in_torch_dispatch_mode()
    assert recorder.threads[0].operators[-1] == "aten.add.Tensor"  # the one that failed


def test_a_hook_for_new_threads_stays_in_force() -> None:
    events = []

    def theirs(frame: object, event: str, arg: object) -> None:
        events.append(event)

    threading.setprofile(theirs)
    in_force = []
    try:
        with record_operators() as recorder:
            run_in_thread(lambda: in_force.append(sys.getprofile()) or torch.ones(2))
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    assert in_force == [theirs]
    assert {"call", "return"} <= set(events)
    assert by_role(recorder, "worker")


def test_a_thread_that_outlives_the_recording() -> None:
    x, go, stop = torch.ones(3), threading.Event(), threading.Event()

    def work() -> None:
        x.sin()
        go.set()
        stop.wait()
        x.cos()

    thread = threading.Thread(target=work)
    with record_operators() as recorder:
        thread.start()
        go.wait()
    stop.set()
    thread.join()
    assert [record.operators for record in recorder.threads] == [("aten.sin.default",)]
    assert not is_in_torch_dispatch_mode()


def test_nothing_is_kept_of_a_thread_that_ended() -> None:
    with record_operators() as recorder:
        run_in_thread(lambda: torch.ones(3))
    mode = weakref.ref(recorder._mode)
    del recorder
    gc.collect()
    assert mode() is None


def test_other_modes_and_recorders_go_on() -> None:
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(func))
            return func(*args, **kwargs or {})

    x = torch.ones(3)
    with Mode(), record_operators() as outer, record_operators() as inner:
        x + 1
    assert seen == ["aten.add.Tensor"]
    assert outer.threads[0].operators == inner.threads[0].operators == ("aten.add.Tensor",)


def test_higher_order_operators_are_allowed() -> None:
    x = torch.ones(3, requires_grad=True)
    with record_operators(compiled=True) as recorder:
        y = torch.compile(
            lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
            backend="eager",
            fullgraph=True,
        )(x)
    assert torch.equal(y, x.sin())
    assert "cond" in recorder.threads[0].operators


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code(backend: str) -> None:
    torch._dynamo.reset()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * 2).sum()

    x = torch.ones(3, requires_grad=True)
    with record_operators(compiled=True) as recorder:
        torch.compile(f, fullgraph=True, backend=backend)(x).backward()
    assert recorder.compiled_frames == 1
    (record,) = recorder.threads
    assert record.operators[:3] == ("aten.sin.default", "aten.mul.Tensor", "aten.sum.default")
    assert "aten.cos.default" in record.operators
    assert torch.equal(x.grad, 2 * x.detach().cos())


def test_compiled_code_that_dispatches_nothing_is_noted() -> None:
    torch._dynamo.reset()

    def generated(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
        return lambda *args: args

    x = torch.ones(3)
    with record_operators(compiled=True) as recorder:
        torch.compile(lambda x: x.sin(), backend=generated)(x)
    assert recorder.threads == ()
    assert recorder.compiled_frames == 1
    assert "1 frame(s)" in recorder.note


def test_recording_loads_no_compiler_and_nothing_without_torch() -> None:
    work = (
        "import sys; from unpatch.observe.operators import record_operators\n"
        "{before}\n"
        "with record_operators() as recorder: {body}\n"
        "print('torch._dynamo' in sys.modules, len(recorder.threads), recorder.note)"
    )

    def run(before: str, body: str) -> str:
        script = work.format(before=before, body=body)
        return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert run("import torch", "torch.ones(2)") == "False 1 \n"
    assert run("sys.modules['torch'] = None", "pass").startswith("False 0 torch cannot be imported")


def test_without_compiled_no_frame_is_compiled() -> None:
    torch._dynamo.reset()
    with record_operators() as recorder:
        torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(3))
    assert recorder.compiled_frames == 0
    assert "aten.sin.default" in recorder.threads[0].operators
