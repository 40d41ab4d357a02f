"""Device memory: figures in bytes, under the names of `torch.cuda.memory`."""

from typing import Any

import torch

from torch_vnpu.npu import _lazy
from torch_vnpu.npu.device import DeviceLike, device_index


def _index(device: DeviceLike) -> int:
    _lazy.init()
    return device_index(device)


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors occupy on `device` now."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that `memory_allocated` has been since the start or `reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds. Nothing is cached, so this is what is allocated."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most that `memory_reserved` has been."""
    return torch.accelerator.max_memory_reserved(_index(device))


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """All figures of the allocator, by the keys of torch.accelerator.memory_stats."""
    return torch.accelerator.memory_stats(_index(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start measuring peaks anew."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Start counting allocations and frees anew."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Bytes free and bytes in all (VNPU_MEMORY) on `device`."""
    free, total = torch.accelerator.get_memory_info(_index(device))
    return free, total


def empty_cache() -> None:
    """Give unused memory back. Nothing is cached, so there is none; the call is legal."""
    torch.accelerator.empty_cache()
