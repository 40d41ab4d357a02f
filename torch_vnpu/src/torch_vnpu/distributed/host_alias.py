"""CPU tensors over the bytes of npu tensors, for libraries that know only the CPU: nothing is copied."""

import ctypes
from typing import Any

import torch

__all__ = ["host_alias", "wait_for_writers"]


def host_alias(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor with the bytes, dtype, shape and strides of `tensor`, whose storage it keeps alive.

    Who uses it sees to the order: `wait_for_writers` before, and nothing queued on the tensor until it is done. A tensor on
    CPU is returned as it is.

    Raises:
        RuntimeError: the tensor is on neither npu nor CPU, or it is sparse.
    """
    if tensor.device.type == "cpu":
        return tensor
    if tensor.device.type != "npu" or tensor.layout != torch.strided:
        raise RuntimeError(
            f"expected a dense tensor on npu or CPU, but got one on '{tensor.device}' with layout {tensor.layout}"
        )
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = storage  # the CPU tensor keeps `memory`, and `memory` keeps the storage
    whole = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    alias = torch.empty(0, dtype=tensor.dtype)
    alias.set_(whole, tensor.storage_offset(), tensor.shape, tensor.stride())
    return alias


def wait_for_writers(value: Any) -> None:
    """Let the host wait for the current streams of all devices whose tensors are in `value`, a tensor or nested lists.

    Raises:
        RuntimeError: a kernel queued there has failed.
    """
    for index in sorted(set(_devices(value))):
        torch.accelerator.current_stream(index).synchronize()


def _devices(value: Any) -> list[int]:
    if isinstance(value, torch.Tensor):
        return [value.device.index] if value.device.type == "npu" else []
    if isinstance(value, list | tuple):
        return [index for element in value for index in _devices(element)]
    return []
