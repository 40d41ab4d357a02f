"""What `torch.npu` is: devices, streams, memory, random numbers and mixed precision of the virtual NPU."""

import torch

from torch_vnpu.npu import _parity, amp, comm, memory, random, streams
from torch_vnpu.npu._lazy import init, is_initialized

# torch looks these up by name: the first starts the runtime at the first use, the second guards seeding in forked children.
from torch_vnpu.npu._lazy import init as _lazy_init
from torch_vnpu.npu._lazy import is_in_bad_fork as _is_in_bad_fork
from torch_vnpu.npu._npurt import NpuError, check_error
from torch_vnpu.npu.amp import get_amp_supported_dtype
from torch_vnpu.npu.device import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_name,
    get_device_properties,
    get_gencode_flags,
    get_sync_debug_mode,
    ipc_collect,
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    is_tf32_supported,
    npurt,
    set_device,
    set_sync_debug_mode,
    synchronize,
)
from torch_vnpu.npu.memory import (
    device_memory_used,
    empty_cache,
    empty_host_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
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
from torch_vnpu.npu.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)
from torch_vnpu.npu.tensor_types import TENSOR_TYPES as _TENSOR_TYPES

OutOfMemoryError = torch.OutOfMemoryError
AcceleratorError = torch.AcceleratorError
has_half = True
has_magma = False
_REFUSALS = _parity.refusals()


def __getattr__(name: str) -> bool:
    # torch.utils.checkpoint looks for this before it keeps the state of the generators.
    if name == "_initialized":
        return is_initialized()
    reason = _parity.absence(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + (f": {reason}" if reason else ""))


globals().update(_TENSOR_TYPES | _REFUSALS)

__all__ = [
    "_is_in_bad_fork",
    "_lazy_init",
    "AcceleratorError",
    "DeviceProperties",
    "Event",
    "ExternalStream",
    "NpuError",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "can_device_access_peer",
    "check_error",
    "comm",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "empty_host_cache",
    "get_allocator_backend",
    "get_amp_supported_dtype",
    "get_arch_list",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "has_half",
    "has_magma",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "npurt",
    "random",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "streams",
    "synchronize",
    *_TENSOR_TYPES,
    *_REFUSALS,
]
