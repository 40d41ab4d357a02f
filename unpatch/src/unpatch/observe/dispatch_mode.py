"""The dispatch modes that see every operator of a thread; imports torch, so `operators` imports it on use.

They hand each operator to a callback and change nothing: arguments, results and errors pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Called with the operator, the device that it worked on, after it ran or failed.
Sink = Callable[[Any, str], None]


def first_device(value: Any) -> str | None:
    """The device of the first tensor in `value`, looking into lists, tuples and dictionaries; None without a tensor."""
    if isinstance(value, torch.Tensor):
        return str(value.device)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    for item in value:
        device = first_device(item)
        if device is not None:
            return device
    return None


class EagerMode(TorchDispatchMode):
    """Sees every operator; Dynamo compiles no frame while it is on."""

    supports_higher_order_operators = True

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps __torch_dispatch__ so that the first operator loads Dynamo: two seconds, and torch then
        # replaces some of its own attributes.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None
        try:
            result = func(*args, **kwargs)
            return result
        finally:
            self._sink(func, first_device(result) or first_device(args) or first_device(kwargs) or "none")


class CompiledMode(EagerMode):
    """Steps aside while Dynamo traces and sees the operators that the compiled code runs, as torch's DebugMode does."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def push_on_this_thread(mode: TorchDispatchMode) -> None:
    """Put `mode` on the calling thread for the rest of the thread's life.

    Entering it the usual way would also save and restore flags that all threads share, in an order that no one
    controls; those were set by the thread that entered first.
    """
    torch._C._push_on_torch_dispatch_stack(mode)
