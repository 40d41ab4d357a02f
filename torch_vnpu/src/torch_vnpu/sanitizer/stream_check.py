"""The stream check's view of the operators: which tensors each one reads and writes, on which device and stream.

A TorchDispatchMode hands the accesses to a checker. Which accesses race is the checker's business.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Access(NamedTuple):
    """One operand or result of an operator.

    `pointer` is the address of the tensor's first element; `bytes` is of its storage. `metadata_only`: the operator looks at
    (or makes) sizes, strides and dtype, and touches no value.
    """

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


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from tensors(element)


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
        schema = func._schema
        named = list(zip(schema.arguments, args, strict=False))
        named += [(argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs]
        touched: list[tuple[str, torch.Tensor, bool, bool]] = []
        for argument, value in named:
            written, viewed = by_alias(argument)
            metadata_only = viewed or (copies_the_shape(schema) and argument.name == schema.arguments[0].name)
            touched += [(argument.name, tensor, written, metadata_only) for tensor in tensors(value)]
        for returned, value in zip(schema.returns, result if len(schema.returns) > 1 else (result,), strict=False):
            metadata_only = by_alias(returned)[1] or makes_no_values(schema)
            touched += [("return", tensor, not metadata_only, metadata_only) for tensor in tensors(value)]
        accesses = tuple(
            Access(name, tensor.data_ptr(), tensor.untyped_storage().nbytes(), written, metadata_only)
            for name, tensor, written, metadata_only in touched
            if tensor.device.type == "npu"
        )
        device = next((tensor.device for _, tensor, _, _ in touched if tensor.device.type == "npu"), None)
        if device is None:
            return None
        return Launch(str(func), device, torch.accelerator.current_stream(device.index).stream_id, accesses)


def by_alias(argument: Any) -> tuple[bool, bool]:
    """Whether the operator writes the argument (or return), and whether it is the base of a view (or the view)."""
    alias = argument.alias_info
    return (False, False) if alias is None else (alias.is_write, not alias.is_write)


def _aten_name(schema: Any) -> str:
    library, _, name = schema.name.partition("::")
    return name if library == "aten" else ""


def copies_the_shape(schema: Any) -> bool:
    name = _aten_name(schema)
    return name.startswith("new_") or name.endswith("_like")


def makes_no_values(schema: Any) -> bool:
    return _aten_name(schema).removeprefix("new_").startswith("empty")
