"""Runs a target and finds out about its operators.

It runs three times, the same way: once to warm up, once under the recorder, which sees what reaches a backend, and once under
torch's profiler, which sees the operators around those and the kernels of a device. Both know each thread's order, by which
they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from unpatch.observe.calls import OperatorCall, record_ops, stacks_end_at
from unpatch.ops import path
from unpatch.ops.align import align
from unpatch.ops.model import Listing, Operator

#: Of an operator: those around it, and the device kernels that it launched.
_Around = tuple[tuple[str, ...], tuple[str, ...]]
#: How the profiler calls the backward pass of a node, before its name.
_EVALUATED = "autograd::engine::evaluate_function: "


def collect(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    target: str,
    device: str,
    backward: bool = True,
    stacks: bool = False,
    graphs: bool = False,
    around_recording: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Listing:
    """Run `function(*arguments)`, and the backward pass of its outputs where there is one. What it raises passes.

    Args:
        function: a module or a function, on the device.
        arguments: tensors on the device, or anything else.
        target, device: what the listing says.
        backward: run the backward pass, too.
        stacks: say where each operator was called.
        graphs: have AOTAutograd make the graphs (seconds).
        around_recording: makes what is entered for the recorded run only.
    """

    def run() -> Any:
        result = function(*arguments)
        roots = [tensor for tensor in _tensors(result) if tensor.requires_grad]
        if backward and roots:
            torch.autograd.backward(roots, list(map(torch.ones_like, roots)))
        return result

    kind = device.partition(":")[0]
    autocast = kind != "meta" and torch.is_autocast_enabled(kind)
    _forget_gradients(function, arguments)
    run()  # what happens the first time only: lazy buffers, caches
    _forget_gradients(function, arguments)
    with around_recording(), stacks_end_at(run.__code__), record_ops(stacks) as recorded:
        result = run()
        nodes = _nodes(result)
    _forget_gradients(function, arguments)
    # torch.profiler.profile would load Inductor: two seconds.
    used = kind if kind not in ("cpu", "meta") else None
    with torch.autograd.profiler.profile(use_device=used, use_kineto=True) as profiler:
        run()
    _forget_gradients(function, arguments)
    around = _around(recorded.calls, profiler)
    operators, seen = [], set()
    for call, (within, kernels) in zip(recorded.calls, around, strict=True):
        # Saving a tensor is a call after the operator's own, with no node of its own.
        own = nodes.get(call.sequence, "") if call.sequence not in seen else ""
        seen.add(call.sequence)
        operators.append(
            Operator(
                call,
                tuple(name for name in within if name != call.name.partition(".")[0]),
                path.path(call.name, call.device, bool(own), autocast),
                kernels,
                own or call.node,
                _decomposition(call.name),
            )
        )
    made = _graphs(function, arguments, backward) if graphs else {}
    return Listing(target, device, str(torch.__version__), tuple(operators), made)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _forget_gradients(function: Any, arguments: tuple[Any, ...]) -> None:
    """Each run must begin as the first: a gradient that is there is added to."""
    parameters = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
    for tensor in (*parameters, *_tensors(arguments)):
        if tensor.is_leaf:
            tensor.grad = None


def _nodes(result: Any) -> dict[int, str]:
    """The autograd graph behind a result: names by sequence number."""
    names: dict[int, str] = {}
    due = [tensor.grad_fn for tensor in _tensors(result) if tensor.grad_fn is not None]
    while due:
        node = due.pop()
        if node is None or node._sequence_nr() in names or node.name() == "struct torch::autograd::AccumulateGrad":
            continue
        names[node._sequence_nr()] = node.name()
        due += [next for next, _ in node.next_functions]
    return names


def _around(calls: list[OperatorCall], profiler: Any) -> list[_Around]:
    """Find each call among the profiler's operators."""
    seen = [
        event
        for event in profiler.function_events
        if event.device_type == torch.autograd.DeviceType.CPU and not event.is_async
    ]
    seen.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    main = next((event.thread for event in seen if event.name.startswith("aten::")), None)
    on_main = [event for event in seen if event.thread == main]
    others = [event for event in seen if event.thread != main]
    result: list[_Around] = [((), ())] * len(calls)
    for is_main, row in ((True, on_main), (False, others or on_main)):
        # What is called inside of a recorded call has no event of its own.
        chosen = [at for at, call in enumerate(calls) if (call.thread == "main") is is_main and not call.depth]
        names = [_key(calls[at].name.partition(".")[0], calls[at].node) for at in chosen]
        after = _after(row)
        events = [_key(event.name, _node(event)) for event in row]
        for at, index in zip(chosen, align(names, events, after), strict=True):
            if index is not None:
                inside = [kernel.name for event in row[index : after[index]] for kernel in event.kernels]
                result[at] = (_within(row[index]), tuple(dict.fromkeys(inside)))
    return result


def _after(row: list[Any]) -> list[int]:
    """Of each event of a thread, the index of the first one that begins when it has ended."""
    after = [len(row)] * len(row)
    running: list[int] = []
    for index, event in enumerate(row):
        while running and row[running[-1]].time_range.end < event.time_range.end:
            after[running.pop()] = index
        running.append(index)
    return after


def _parents(event: Any) -> Iterator[str]:
    """The names of what is around an event, the innermost first."""
    while (event := event.cpu_parent) is not None:
        yield event.name


def _node(event: Any) -> str:
    """The autograd node whose turn it is in the backward pass that an event is in; empty elsewhere."""
    return next((name.removeprefix(_EVALUATED) for name in _parents(event) if name.startswith(_EVALUATED)), "")


def _key(name: str, node: str) -> tuple[str, str]:
    """By what a call and its event are told to be the same."""
    # Autograd adds to a gradient in place if nobody else holds it, and a recorder does.
    return name.removesuffix("_") if node else name, node


def _within(event: Any) -> tuple[str, ...]:
    """The operators around an event, the outermost first."""
    names = [name for name in _parents(event) if "::" in name]
    return tuple(reversed([name for name in names if not name.startswith(("autograd::", "torch::autograd"))]))


def _decomposition(name: str) -> str:
    from torch._decomp import decomposition_table

    base, _, overload = name.partition("::")[2].partition(".")
    namespace = getattr(torch.ops, name.partition("::")[0])
    function = decomposition_table.get(getattr(getattr(namespace, base), overload or "default"))
    if function is None:
        return ""
    function = getattr(function, "__wrapped__", function)
    return f"{function.__module__}.{function.__name__}" if hasattr(function, "__name__") else str(function)


def _graphs(function: Any, arguments: tuple[Any, ...], backward: bool) -> dict[str, str]:
    from torch._functorch.aot_autograd import aot_function, aot_module, make_boxed_func

    graphs: dict[str, str] = {}

    def keep(which: str) -> Callable[[Any, Any], Any]:
        def compile(module: Any, inputs: Any) -> Any:
            graphs[which] = str(module.graph)
            return make_boxed_func(module.forward)

        return compile

    aot = aot_module if isinstance(function, torch.nn.Module) else aot_function
    result = aot(function, fw_compiler=keep("forward"), bw_compiler=keep("backward"))(*arguments)
    roots = [tensor for tensor in _tensors(result) if tensor.requires_grad]
    if backward and roots:
        torch.autograd.backward(roots, list(map(torch.ones_like, roots)))
    _forget_gradients(function, arguments)
    return graphs
