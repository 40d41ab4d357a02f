"""Runs a target and finds out about its operators.

It runs three times, the same way: once to warm up, once under the recorder, which sees what reaches a backend, and once under
torch's profiler, which sees the operators around those and the kernels of a device. Both know each thread's order, by which
they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from unpatch.observe.calls import OperatorCall, record_ops, stacks_end_at
from unpatch.ops import path
from unpatch.ops.model import Listing, Operator

#: Of an operator: those around it, and the device kernels that it launched.
_Around = tuple[tuple[str, ...], tuple[str, ...]]


def collect(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    target: str,
    device: str,
    backward: bool = True,
    stacks: bool = False,
    graphs: bool = False,
) -> Listing:
    """Run `function(*arguments)`, and the backward pass of its outputs where there is one. What it raises passes.

    Args:
        function: a module or a function, on the device.
        arguments: tensors on the device, or anything else.
        target, device: what the listing says.
        backward: run the backward pass, too.
        stacks: say where each operator was called.
        graphs: have AOTAutograd make the graphs (seconds).
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
    with stacks_end_at(run.__code__), record_ops(stacks) as recorded:
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
    """Find each call among the profiler's operators: the next of its name that is not inside of the one before."""
    events = [
        event
        for event in profiler.function_events
        if event.device_type == torch.autograd.DeviceType.CPU and not event.is_async
    ]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    main = next((event.thread for event in events if event.name.startswith("aten::")), None)
    rows = {"main": [event for event in events if event.thread == main]}
    others = [event for event in events if event.thread != main]
    position: dict[str, int] = {}
    result: list[_Around] = []
    for call in calls:
        role = "main" if call.thread == "main" else "other"
        row = rows["main"] if role == "main" else others or rows["main"]
        name, at = call.name.partition(".")[0], position.get(role, 0)
        found = next((index for index in range(at, len(row)) if row[index].name == name), None)
        if found is None or call.depth:
            result.append(((), ()))
            continue
        event = row[found]
        after = found + 1
        while after < len(row) and row[after].time_range.end <= event.time_range.end:
            after += 1
        position[role] = after
        within = []
        parent = event.cpu_parent
        while parent is not None:
            if "::" in parent.name and not parent.name.startswith(("autograd::", "torch::autograd")):
                within.append(parent.name)
            parent = parent.cpu_parent
        inside = [kernel.name for one in row[found:after] for kernel in one.kernels]
        result.append((tuple(reversed(within)), tuple(dict.fromkeys(inside))))
    return result


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
    from torch._functorch.aot_autograd import aot_function, aot_module

    graphs: dict[str, str] = {}

    def keep(which: str) -> Callable[[Any, Any], Any]:
        def compile(module: Any, inputs: Any) -> Any:
            graphs[which] = str(module.graph)
            return module.forward

        return compile

    aot = aot_module if isinstance(function, torch.nn.Module) else aot_function
    result = aot(function, fw_compiler=keep("forward"), bw_compiler=keep("backward"))(*arguments)
    roots = [tensor for tensor in _tensors(result) if tensor.requires_grad]
    if backward and roots:
        torch.autograd.backward(roots, list(map(torch.ones_like, roots)))
    _forget_gradients(function, arguments)
    return graphs
