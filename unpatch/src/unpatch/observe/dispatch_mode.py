"""The dispatch modes that see every operator of a thread; imports torch, so `operators` imports it on use.

They hand each operator to a callback and change nothing: arguments, results and errors pass through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import wrapt
from torch.utils._python_dispatch import TorchDispatchMode

from unpatch.observe.keys import raw_keys

#: Called after an operator ran or failed: the operator, the device that it worked on, the caller's raw dispatch keys.
Sink = Callable[[Any, str, tuple[int, int]], None]


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
        # replaces some of its own attributes. `_keep_out` does the same once something else has loaded it.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = None
        try:
            result = func(*args, **kwargs)
            return result
        finally:
            device = first_device(result) or first_device(args) or first_device(kwargs) or "none"
            self._sink(func, device, _caller_keys())


class CompiledMode(EagerMode):
    """Steps aside while Dynamo traces and sees the operators that the compiled code runs, as torch's DebugMode does."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


def _keep_out(dynamo: Any) -> None:
    """Dynamo, once loaded, must not take our own frames for the workload's."""
    EagerMode.__torch_dispatch__ = dynamo.disable(EagerMode.__torch_dispatch__)  # type: ignore[method-assign]


wrapt.register_post_import_hook(_keep_out, "torch._dynamo")


def _caller_keys() -> tuple[int, int]:
    """The keys of the thread when it called the operator.

    Inside a mode the thread's keys are always the same few: what dispatching took off on the way here.
    """
    try:
        with torch._C._RestorePythonTLSSnapshot():
            return raw_keys()
    except RuntimeError:  # no snapshot: a higher-order operator, which Python dispatches itself
        return raw_keys()


class OnThisThread:
    """Keeps `mode` on the calling thread for as long as this object lives: put it where the thread's end drops it.

    Entering the mode the usual way would also save and restore flags that all threads share, in an order that no one
    controls; those were set by the thread that entered first. And left to itself, the mode would be let go by native
    code when Python already holds the thread for finished.
    """

    def __init__(self, mode: TorchDispatchMode) -> None:
        self._mode = mode
        self._thread = threading.get_ident()
        torch._C._push_on_torch_dispatch_stack(mode)

    def __del__(self) -> None:
        depth = torch._C._len_torch_dispatch_stack() if threading.get_ident() == self._thread else 0
        if depth and torch._C._get_dispatch_stack_at(depth - 1) is self._mode:
            torch._C._pop_torch_dispatch_stack(None)
