"""The stream check's view of the operators: which tensors each one reads and writes, on which device and stream.

A TorchDispatchMode hands the accesses to a checker. Which accesses race is the checker's business.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Access(NamedTuple):
    """One operand of an operator. `pointer` is the address of the tensor's first element; `bytes` is of its storage."""

    argument: str
    pointer: int
    bytes: int
    written: bool
    metadata_only: bool


class Launch(NamedTuple):
    """One operator as it was dispatched: its name, the stream it runs on and what it touches."""

    operator: str
    device: torch.device
    stream: int
    accesses: tuple[Access, ...]


#: Takes each launch, on the thread that dispatches it.
Checker = Callable[[Launch], None]

# Operators that look at the shape and dtype of their first argument, never at its values.
_METADATA_ONLY = ("new_", "_like")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)


class StreamCheckMode(TorchDispatchMode):
    """Hands every operator on npu to `checker`; without one, operators pass through."""

    def __init__(self, checker: Checker | None = None) -> None:
        super().__init__()
        self.checker = checker

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.checker is not None:
            launch = self.describe(func, args, kwargs, result)
            if launch is not None:
                self.checker(launch)
        return result

    def describe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Launch | None:
        """What `func` touched, or None where no operand is on npu."""
        name = str(func)
        metadata_only = any(mark in func._schema.name for mark in _METADATA_ONLY)
        accesses: list[Access] = []
        device: torch.device | None = None
        named = [(argument, args[i]) for i, argument in enumerate(func._schema.arguments[: len(args)])]
        named += [(argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs]
        for argument, value in named:
            written = bool(argument.alias_info and argument.alias_info.is_write)
            for tensor in _tensors(value):
                if tensor.device.type == "npu":
                    device = device or tensor.device
                    accesses.append(_access(argument.name, tensor, written, metadata_only))
        for tensor in _tensors(result):
            if tensor.device.type == "npu":
                device = device or tensor.device
                accesses.append(_access("return", tensor, True, False))
        if device is None:
            return None
        return Launch(name, device, torch.accelerator.current_stream(device.index).stream_id, tuple(accesses))


def _access(argument: str, tensor: torch.Tensor, written: bool, metadata_only: bool) -> Access:
    size = tensor.untyped_storage().nbytes()
    return Access(argument, tensor.data_ptr(), size, written, metadata_only)
