"""Device memory and pinned host memory: figures in bytes, under the names of `torch.cuda.memory`."""

from typing import Any

import torch
from typing_extensions import deprecated

from torch_vnpu import _C
from torch_vnpu.npu import _lazy
from torch_vnpu.npu.device import DeviceLike, device_count, device_index, existing_device

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Lines of the summary: what, and whether it counts bytes.
_ROWS = (
    ("allocated memory", "allocated_bytes.all", True),
    ("reserved memory", "reserved_bytes.all", True),
    ("requested memory", "requested_bytes.all", True),
    ("inactive split", "inactive_split_bytes.all", True),
    ("allocations", "allocation.all", False),
    ("segments", "segment.all", False),
)
_COLUMNS = ("current", "peak", "allocated", "freed")


def _index(device: DeviceLike) -> int:
    _lazy.init()
    return device_index(device)


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes that tensors occupy on `device` now, in blocks of 512 bytes."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most that `memory_allocated` has been since the start or `reset_peak_memory_stats`."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes that the allocator holds: what is allocated, and what it keeps to hand out again."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most that `memory_reserved` has been."""
    return torch.accelerator.max_memory_reserved(_index(device))


@deprecated("torch.npu.memory_cached is torch.npu.memory_reserved", category=FutureWarning)
def memory_cached(device: DeviceLike = None) -> int:
    """The old name of `memory_reserved`."""
    return memory_reserved(device)


@deprecated("torch.npu.max_memory_cached is torch.npu.max_memory_reserved", category=FutureWarning)
def max_memory_cached(device: DeviceLike = None) -> int:
    """The old name of `max_memory_reserved`."""
    return max_memory_reserved(device)


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """All figures of the allocator, by the keys of `torch.cuda.memory_stats`.

    Blocks are of the small pool up to 1 MiB and of the large one beyond; what an operator of the host made itself counts as a
    segment of its own.
    """
    return torch.accelerator.memory_stats(_index(device))


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """`memory_stats`, a dictionary for each part of a key between its dots."""
    return _nested(memory_stats(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start measuring peaks anew."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Start counting allocations and frees anew."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


@deprecated(
    "torch.npu.reset_max_memory_allocated resets all peaks: say reset_peak_memory_stats", category=FutureWarning
)
def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """The old name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


@deprecated("torch.npu.reset_max_memory_cached resets all peaks: say reset_peak_memory_stats", category=FutureWarning)
def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """The old name of `reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Bytes free and bytes in all (VNPU_MEMORY) on `device`."""
    free, total = torch.accelerator.get_memory_info(_index(device))
    return free, total


def device_memory_used(device: DeviceLike = None) -> int:
    """Bytes in use on `device`. It belongs to this process, so they are what `memory_reserved` says."""
    free, total = mem_get_info(device)
    return total - free


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Let this process use at most this part of `device`'s capacity: what goes beyond it is out of memory.

    What is in use already stays; `mem_get_info` still tells the whole device.

    Raises:
        TypeError: `fraction` is no float.
        ValueError: it is not from 0 to 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"the fraction of the memory is a float, not {fraction!r}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"the fraction of the memory is from 0 to 1, not {fraction}")
    _C.set_memory_fraction(fraction, _index(device))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The part of `device`'s capacity that this process may use, to whole bytes; 1.0 where it was not limited."""
    return _C.memory_fraction(_index(device))


def get_allocator_backend() -> str:
    """`"native"`: blocks of segments, kept for each stream and handed out again (as CUDA's allocator of that name)."""
    return "native"


def empty_cache() -> None:
    """Wait for all queues and give segments in which nothing is allocated back to the devices."""
    if _C.is_initialized():
        torch.accelerator.empty_cache()


def empty_host_cache() -> None:
    """Unpin and free the pinned memory that no tensor has."""
    _C.empty_host_cache()


def memory_snapshot(mempool_id: None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The allocator's state: a dictionary for each segment of each device, by the keys of `torch.cuda.memory_snapshot`.

    Its `blocks` are in the order of their addresses and leave no gap; their `state` is `active_allocated`,
    `active_awaiting_free` (given back, but a stream that record_stream named still uses it) or `inactive`. Sizes in bytes.
    What an operator of the host made itself lies in no segment. No history is kept, so there are no traces to include.

    Raises:
        NotImplementedError: a `mempool_id` is given; there are no pools of the user's own.
    """
    if mempool_id is not None:
        raise NotImplementedError(
            "torch.npu has no memory pools of the user's own, so memory_snapshot takes no mempool_id"
        )
    return _C.memory_snapshot() if _C.is_initialized() else []


def _size(count: float, is_bytes: bool) -> str:
    if not is_bytes:
        return f"{count:.0f}"
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.2f} {_UNITS[unit]}"


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The figures of `device` as a table for people; `abbreviated` leaves out what has been allocated and freed in all."""
    index = existing_device(device)
    stats = memory_stats(index)
    free, total = mem_get_info(index)
    columns = _COLUMNS[:2] if abbreviated else _COLUMNS
    lines = [
        f"torch.npu memory of npu:{index}: {_size(free, True)} of {_size(total, True)} free, "
        f"{stats['num_ooms']} times out of memory",
        f"{'':18}" + "".join(f"{column:>14}" for column in columns),
    ]
    for title, key, is_bytes in _ROWS:
        figures = (_size(stats[f"{key}.{column}"], is_bytes) for column in columns)
        lines.append(f"{title:18}" + "".join(f"{figure:>14}" for figure in figures))
    return "\n".join(lines) + "\n"


def host_memory_stats() -> dict[str, int]:
    """Figures of pinned host memory that torch allocated, by the keys that torch.cuda has for it.

    `active` is what tensors have, in blocks whose size is a power of two; `allocated` is what is pinned, kept blocks included.
    Memory that was only registered (`npurt().npuHostRegister`) is its owner's and not counted. No times are measured.
    """
    _lazy.init()
    for index in range(device_count()):  # copies that are queued keep their memory
        torch.accelerator.synchronize(index)
    figures = _C.host_memory_stats()
    flat = {
        f"{name}.{column}": figures[whose][kind][column]
        for name, whose, kind in (
            ("active_bytes", "in_use", "bytes"),
            ("active_requests", "in_use", "blocks"),
            ("allocated_bytes", "held", "bytes"),
            ("allocations", "held", "blocks"),
        )
        for column in _COLUMNS
    }
    held = figures["held"]["blocks"]
    return flat | {"num_host_alloc": held["allocated"], "num_host_free": held["freed"]}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """`host_memory_stats`, a dictionary for each part of a key between its dots."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Start measuring peaks of pinned memory anew."""
    _C.host_memory_reset_peak()


def reset_accumulated_host_memory_stats() -> None:
    """Start counting allocations and frees of pinned memory anew."""
    _C.host_memory_reset_accumulated()
