"""What `torch.npu` is: devices, streams, memory, random numbers and mixed precision of the virtual NPU."""

import torch

from torch_vnpu.npu import amp
from torch_vnpu.npu._lazy import init, is_initialized

# torch looks these up by name: the first starts the runtime at the first use, the second guards seeding in forked children.
from torch_vnpu.npu._lazy import init as _lazy_init
from torch_vnpu.npu._lazy import is_in_bad_fork as _is_in_bad_fork
from torch_vnpu.npu.amp import get_amp_supported_dtype
from torch_vnpu.npu.device import (
    DeviceProperties,
    current_device,
    device,
    device_count,
    device_of,
    get_device_name,
    get_device_properties,
    is_available,
    is_bf16_supported,
    set_device,
    synchronize,
)
from torch_vnpu.npu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from torch_vnpu.npu.random import (
    default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_vnpu.npu.streams import Event, Stream, current_stream, default_stream, set_stream, stream
from torch_vnpu.npu.tensor_types import TENSOR_TYPES as _TENSOR_TYPES

OutOfMemoryError = torch.OutOfMemoryError


def __getattr__(name: str) -> bool:
    # torch.utils.checkpoint looks for this before it keeps the state of the generators.
    if name == "_initialized":
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


globals().update(_TENSOR_TYPES)

__all__ = [
    "_is_in_bad_fork",
    "_lazy_init",
    "DeviceProperties",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    *_TENSOR_TYPES,
]
