"""Records every operator call with what went in and came out: a context manager for people, as `operators` is for studies.

Below autograd and composite kernels: what is recorded is what reaches a backend.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import msgspec

from unpatch.observe.roles import current_role

_WRAPPER = os.path.join("torch", "_dynamo", "eval_frame.py")


class TensorSpec(msgspec.Struct, frozen=True):
    """A tensor of a call, without its data."""

    shape: tuple[int, ...]
    dtype: str  #: as `float32`
    device: str

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class OperatorCall(msgspec.Struct, frozen=True):
    """One operator that was dispatched, in the order of its thread."""

    name: str  #: as `aten::add.Tensor`
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]  #: none where it failed
    device: str
    thread: str  #: the thread's role
    depth: int  #: operators around it that are recorded too
    sequence: int  #: of the latest autograd node that was made when it was called; -1 in a backward pass
    node: str  #: the autograd node whose backward pass calls it; empty elsewhere
    stack: tuple[str, ...] = ()  #: frames, the innermost first, if asked for


class Recorder:
    """The calls of one recording, in the order in which they began; grows while it is on."""

    def __init__(self, stacks: bool) -> None:
        self.calls: list[OperatorCall] = []
        self._stacks = stacks
        self._main = threading.get_ident()
        self._local = threading.local()

    def run(self, operator: Any, args: Any, kwargs: Any) -> Any:
        """Call the operator and record it, whether it fails or not."""
        import torch

        depth = getattr(self._local, "depth", 0)
        self._local.depth = depth + 1
        at = len(self.calls)
        inputs = _specs((args, kwargs))
        stack = _stack() if self._stacks else ()
        node = torch._C._current_autograd_node()
        name = operator._schema.name if hasattr(operator, "_schema") else str(operator)
        overload = getattr(operator, "_overloadname", "default")
        call = OperatorCall(
            name if overload == "default" else f"{name}.{overload}",
            inputs,
            (),
            _device(inputs),
            current_role(self._main),
            depth,
            -1 if node is not None else torch.autograd._get_sequence_nr() - 1,
            node.name() if node is not None else "",
            stack,
        )
        self.calls.append(call)
        try:
            result = operator(*args, **kwargs)
        finally:
            self._local.depth = depth
        outputs = _specs(result)
        if self.calls[at] is not call:  # another thread came between
            at = next(index for index in range(at, len(self.calls)) if self.calls[index] is call)
        self.calls[at] = msgspec.structs.replace(call, outputs=outputs, device=_device(outputs + inputs))
        return result


@contextmanager
def record_ops(stacks: bool = False, compiled: bool = False) -> Iterator[Recorder]:
    """Record what the entering thread dispatches, and the backward passes that it starts; may be nested.

    Args:
        stacks: record where each call was made, too: several times slower.
        compiled: for workloads that use torch.compile; recorded is what compiled code dispatches, and what a compiler
            turned into kernels of its own cannot be seen. Without it, torch.compile runs eagerly meanwhile.

    Raises:
        ImportError: there is no torch.
    """
    from unpatch.observe import dispatch_mode

    recorder = Recorder(stacks)

    class Mode(dispatch_mode.CompiledMode if compiled else dispatch_mode.EagerMode):  # type: ignore[misc]  # chosen late
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return recorder.run(func, args, kwargs or {})

    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        Mode.__torch_dispatch__ = dynamo.disable(Mode.__torch_dispatch__)  # type: ignore[method-assign]
    with Mode(lambda *seen: None):
        yield recorder


def _specs(value: Any) -> tuple[TensorSpec, ...]:
    import torch

    if isinstance(value, torch.Tensor):
        return (TensorSpec(tuple(map(int, value.shape)), str(value.dtype).removeprefix("torch."), str(value.device)),)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return ()
    return tuple(spec for item in value for spec in _specs(item))


def _device(specs: tuple[TensorSpec, ...]) -> str:
    return specs[0].device if specs else "none"


#: Set by who runs a workload: the code whose frames and those around it are no part of it.
_outermost: CodeType | None = None


@contextmanager
def stacks_end_at(code: CodeType) -> Iterator[None]:
    """Leave out of recorded stacks what called `code`, and itself."""
    global _outermost
    before, _outermost = _outermost, code
    try:
        yield
    finally:
        _outermost = before


def _stack() -> tuple[str, ...]:
    frame: FrameType | None = sys._getframe(2)
    frames = []
    while frame is not None:
        code = frame.f_code
        if code is _outermost:
            break
        # Nor Dynamo's wrapper, by which it is kept out of the mode once it is loaded.
        if code.co_filename != __file__ and not code.co_filename.endswith(_WRAPPER):
            frames.append(f"{code.co_filename}:{frame.f_lineno} {code.co_qualname}")
        frame = frame.f_back
    return tuple(frames)
