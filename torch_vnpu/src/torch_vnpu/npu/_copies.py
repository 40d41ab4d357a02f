"""Copies of tensors between the devices of one process, under the names that `torch.nn.parallel` looks for in `torch._C`.

Each function has the signature of its counterpart in a build with CUDA. Devices are ordinals; -1 is the CPU.
"""

from collections.abc import Sequence
from itertools import chain, repeat

import torch
from torch import Tensor

__all__ = [
    "_broadcast",
    "_broadcast_coalesced",
    "_broadcast_out",
    "_gather",
    "_gather_out",
    "_scatter",
    "_scatter_out",
]


def _device(ordinal: int) -> torch.device:
    return torch.device("cpu") if ordinal < 0 else torch.device("npu", ordinal)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    # What arrives on the host is there when the call returns: nobody synchronises for it.
    return tensor.to(device, non_blocking=device.type != "cpu")


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """`tensor` on each of `devices`; on its own device it is the tensor itself."""
    return [_moved(tensor, _device(ordinal)) for ordinal in devices]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    """Copy `tensor` into each of `out`, which have its shape.

    Raises:
        RuntimeError: a shape differs.
    """
    for index, target in enumerate(out):
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"Expected all outputs to have the shape {tuple(tensor.shape)} of the broadcast tensor, but output {index} "
                f"has {tuple(target.shape)}"
            )
        if target is not tensor:
            target.copy_(tensor, non_blocking=target.device.type != "cpu")
    return list(out)


def _broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """Each of `tensors` on each device: one list a device. `buffer_size` (bytes) only matters where copies cost a launch."""
    first = devices[0] if devices else None
    for index, tensor in enumerate(tensors):
        if tensor.device != _device(first if first is not None else -1):
            raise RuntimeError(f"all tensors must be on devices[0]: {first}, but tensor {index} is on {tensor.device}")
    return [[_moved(tensor, _device(ordinal)) for tensor in tensors] for ordinal in devices]


def _chunks(tensor: Tensor, parts: int, chunk_sizes: Sequence[int] | None, dim: int) -> Sequence[Tensor]:
    if chunk_sizes is None:
        return tensor.chunk(parts, dim)
    if len(chunk_sizes) != parts:
        raise RuntimeError(f"Expected one chunk size a device, but got {len(chunk_sizes)} for {parts} devices")
    if sum(chunk_sizes) != tensor.size(dim):
        raise RuntimeError(
            f"Expected the chunk sizes {list(chunk_sizes)} to add up to the size {tensor.size(dim)} of dimension {dim}"
        )
    return tensor.split(list(chunk_sizes), dim)


def _on_stream(stream: torch.Stream | None, chunk: Tensor, device: torch.device) -> Tensor:
    if stream is None or device.type == "cpu":
        return _moved(chunk, device)
    with stream:
        return _moved(chunk, device)


def _scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
) -> tuple[Tensor, ...]:
    """Chunks of `tensor` along `dim`, one a device (fewer where the dimension is too small), each copied on the device's
    stream in `streams` (None, or left out: the current one).

    Raises:
        RuntimeError: chunk sizes that do not fit the devices or the dimension.
    """
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    chunks = _chunks(tensor, len(devices), chunk_sizes, dim)
    return tuple(
        _on_stream(stream, chunk.contiguous(), _device(ordinal))
        for chunk, ordinal, stream in zip(chunks, devices, chain(streams or (), repeat(None)), strict=False)
    )


def _scatter_out(
    tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams: Sequence[torch.Stream | None] | None = None
) -> tuple[Tensor, ...]:
    """Split `tensor` along `dim` by the sizes of `out` and copy each part there."""
    for target, part in zip(out, _chunks(tensor, len(out), [t.size(dim) for t in out], dim), strict=True):
        target.copy_(part, non_blocking=target.device.type != "cpu")
    return tuple(out)


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    """`tensors` concatenated along `dim` on the device `destination` (-1: CPU; None: the current device).

    Raises:
        RuntimeError: there is no tensor, or shapes differ in another dimension.
    """
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    device = (
        torch.device("npu", torch.accelerator.current_device_index()) if destination is None else _device(destination)
    )
    return torch.cat([_moved(tensor, device) for tensor in tensors], dim)


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    """`tensors` concatenated along `dim` into `out`."""
    return out.copy_(torch.cat([_moved(tensor, out.device) for tensor in tensors], dim))
