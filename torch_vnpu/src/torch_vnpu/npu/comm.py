"""Copies and sums of tensors across the devices of one process, under the names of `torch.cuda.comm`.

They are what DataParallel is made of, and work whether or not the patches for it are applied.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from torch_vnpu.npu import _copies
from torch_vnpu.npu.device import DeviceLike, device_count, device_index

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]

#: Devices of npu as everywhere; the CPU too, as torch.device("cpu"), "cpu" or -1.
Place: TypeAlias = DeviceLike


def _ordinal(place: Place) -> int:
    if place == -1 or (isinstance(place, str | torch.device) and torch.device(place).type == "cpu"):
        return -1
    return device_index(place)


def _ordinals(places: Iterable[Place] | None) -> list[int]:
    return list(range(device_count())) if places is None else [_ordinal(place) for place in places]


def _either(first: object, out: object) -> None:
    if (first is None) == (out is None):
        raise RuntimeError("Expected exactly one of where the result goes (devices or a destination) and out")


def broadcast(
    tensor: Tensor, devices: Iterable[Place] | None = None, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """`tensor` on each of `devices`, or copied into each of `out`.

    Raises:
        RuntimeError: both or neither are given, or a shape of `out` differs.
    """
    _either(devices, out)
    if out is not None:
        return tuple(_copies._broadcast_out(tensor, out))
    return tuple(_copies._broadcast(tensor, _ordinals(devices)))


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Iterable[Place], buffer_size: int = 10485760
) -> list[list[Tensor]]:
    """Each of `tensors`, which are on the first of `devices`, on each device: one list a device. `buffer_size` (bytes) is for
    hardware whose copies cost a launch, and without effect here.
    """
    return _copies._broadcast_coalesced(tensors, _ordinals(devices), buffer_size)


def reduce_add(inputs: Sequence[Tensor], destination: Place = None) -> Tensor:
    """The sum of `inputs`, added in their order, on `destination` (None: the current device).

    Raises:
        ValueError: there is no tensor, or the shapes differ.
    """
    if not inputs:
        raise ValueError("Expected at least one tensor to add up")
    if len({tensor.shape for tensor in inputs}) > 1:
        raise ValueError(f"Expected tensors of one shape, but got {[tuple(tensor.shape) for tensor in inputs]}")
    device = _copies._device(_ordinal(destination))
    total = inputs[0].to(device, copy=len(inputs) > 1)
    for tensor in inputs[1:]:
        total.add_(tensor.to(device))
    return total


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Place = None, buffer_size: int = 10485760
) -> tuple[Tensor, ...]:
    """`reduce_add` of the first tensors of all lists, of the second ones, and so on. `buffer_size` is without effect here."""
    return tuple(reduce_add(tensors, destination) for tensors in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Iterable[Place] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Chunks of `tensor` along `dim`, one for each of `devices` (None: all of npu), or copied into `out`.

    Raises:
        RuntimeError: devices or sizes are given along with `out`, or the sizes do not fit.
    """
    if out is None:
        return _copies._scatter(tensor, _ordinals(devices), chunk_sizes, dim, streams)
    if devices is not None or chunk_sizes is not None:
        raise RuntimeError("Expected neither devices nor chunk_sizes along with out, which says both")
    return _copies._scatter_out(tensor, out, dim, streams)


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Place = None, *, out: Tensor | None = None) -> Tensor:
    """`tensors` concatenated along `dim` on `destination` (None: the current device), or in `out`.

    Raises:
        RuntimeError: a destination is given along with `out`, there is no tensor, or shapes differ in another dimension.
    """
    if out is None:
        return _copies._gather(tensors, dim, _ordinal(destination))
    if destination is not None:
        raise RuntimeError("Expected no destination along with out, which says where")
    return _copies._gather_out(tensors, out, dim)
