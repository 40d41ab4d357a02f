"""How `torch.npu` differs from `torch.cuda`, name by name: the one table behind the refusals of `torch.npu`, the words of its
AttributeErrors, and docs/npu-api.md.

A public name of torch.cuda that is in no table here exists under its own name and does the same.
"""

from collections.abc import Callable
from typing import Any, NoReturn

_NO_SENSOR = "a virtual device has no sensors and no driver that could tell"
_NO_GRAPHS = "kernels are functions of the host, and a sequence of them cannot be captured and replayed"
_NO_POOLS = "the allocator has a pool for each stream; there are none of the user's own, and it cannot be exchanged"
_NO_HANDLES = "kernels call the host's libraries, which have no handles"
_TENSOR_TYPE = "a name for `Tensor.type` and `isinstance`; calling it is refused"
_TYPED_STORAGE = "typed storages are deprecated in torch; `torch.UntypedStorage(size, device='npu')` is there"

#: torch.cuda's name -> torch.npu's, where the name itself says CUDA.
RENAMED: dict[str, str] = {
    "CUDAGraph": "NPUGraph",
    "CUDAPluggableAllocator": "NPUPluggableAllocator",
    "CudaError": "NpuError",
    "cudart": "npurt",
    "list_gpu_processes": "list_npu_processes",
}

#: Names of torch.cuda (dotted where they are in one of its modules) that exist here and do something else: what.
DIFFERS: dict[str, str] = {
    **{f"{kind}Tensor": _TENSOR_TYPE for kind in (
        "BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short",
    )},
    "CudaError": "its `code` is one of `npurt().npuError`",
    "Event": "makes a `torch.Event`; sharing it between processes is refused; `external` is for graphs and has no effect",
    "Stream": "`priority` is kept and has no effect; the handle is `npu_stream`",
    "ExternalStream": "takes handles of `npurt().npuStreamCreate` and checks them; `device` may be left out",
    "get_stream_from_external": "checks the handle; `device` may be left out",
    "can_device_access_peer": "always true of two devices: all memory is the host's",
    "check_error": "raises `NpuError`; the codes are those of `npurt().npuError`",
    "cudart": "has `npuHostRegister`, `npuHostUnregister`, `npuStreamCreate`, `npuStreamDestroy`, `npuMemGetInfo`, "
    "`npuGetErrorString`, `npuError`, and nothing else",
    "default_generators": "a sequence that is as long as there are devices, from the import on",
    "device_memory_used": "bytes of this process, which has the device for itself",
    "empty_cache": "waits for the queues of all devices first",
    "get_allocator_backend": "always `native`",
    "get_arch_list": "always empty: no kernel is compiled for an architecture",
    "get_device_properties": "has `name`, `total_memory`, `multi_processor_count` (intra-op threads of a kernel) and "
    "`is_integrated`; what a virtual device does not have, such as `major` or `uuid`, is absent",
    "get_gencode_flags": "always empty, as `get_arch_list` is",
    "get_rng_state": "the state is that of a Mersenne twister, as on CPU",
    "set_rng_state": "takes states of a Mersenne twister, as on CPU",
    "get_sync_debug_mode": "always 0",
    "has_magma": "false: MAGMA is a library for CUDA",
    "host_memory_stats": "without times and buckets; `active` is what tensors have, `allocated` what is pinned",
    "ipc_collect": "does nothing: the operating system frees shared memory when the last process lets go of it",
    "is_bf16_supported": "always true",
    "is_current_stream_capturing": "always false: there are no graphs",
    "is_tf32_supported": "always false: float32 is computed as float32",
    "manual_seed": "seeds at once, before the first use too",
    "memory": "has what works; names that are refused are `torch.npu`'s alone",
    "memory_cached": "deprecated there and here; the same as `memory_reserved`",
    "max_memory_cached": "deprecated there and here; the same as `max_memory_reserved`",
    "memory_snapshot": "segments and blocks; no stacks, no history of allocations, nothing of what a host kernel made itself",
    "memory_summary": "a table of its own with the figures that there are",
    "set_per_process_memory_fraction": "enforced for every allocation, also of results that a kernel brings",
    "set_sync_debug_mode": "takes 0 (`default`) alone; `warn` and `error` are refused, since copies to the host wait unseen",
    "amp.GradScaler": "is no deprecated alias: `torch.amp.GradScaler('npu')` under a short name",
    "amp.autocast": "is no deprecated alias: `torch.autocast('npu')` under a short name; bfloat16 and float16",
    "amp.custom_fwd": "is no deprecated alias",
    "amp.custom_bwd": "is no deprecated alias",
    "comm.broadcast_coalesced": "copies tensor by tensor: `buffer_size` has no effect",
    "comm.reduce_add_coalesced": "adds tensor by tensor: `buffer_size` has no effect",
}  # fmt: skip

#: Names that exist to be called and raise NotImplementedError: why.
REFUSED: dict[str, str] = {
    "CUDAGraph": _NO_GRAPHS,
    "graph": _NO_GRAPHS,
    "graph_pool_handle": _NO_GRAPHS,
    "make_graphed_callables": _NO_GRAPHS,
    "CUDAPluggableAllocator": _NO_POOLS,
    "MemPool": _NO_POOLS,
    "change_current_allocator": _NO_POOLS,
    "use_mem_pool": _NO_POOLS,
    "caching_allocator_alloc": "memory that belongs to no tensor cannot be had: its bytes would be the host's own",
    "caching_allocator_delete": "memory that belongs to no tensor cannot be had, nor freed",
    "clock_rate": _NO_SENSOR,
    "memory_usage": f"{_NO_SENSOR}; device_memory_used() tells the bytes in use",
    "power_draw": _NO_SENSOR,
    "temperature": _NO_SENSOR,
    "utilization": _NO_SENSOR,
    "current_blas_handle": _NO_HANDLES,
    "current_solver_handle": _NO_HANDLES,
    "get_device_capability": "a virtual device has no compute capability; ask for what you need, such as is_bf16_supported()",
    "list_gpu_processes": "a virtual device exists in one process, which sees no other",
}

#: Names that do not exist here: why.
ABSENT: dict[str, str] = {
    **{f"{kind}Storage": _TYPED_STORAGE for kind in (
        "BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float", "Half", "Int", "Long", "Short",
    )},
    "DeferredCudaCallError": "no call is put off until the first use, so none can fail then",
    "GreenContext": "a virtual device has no multiprocessors that could be divided up",
    "caching_allocator_disabled": "caching cannot be switched off; `empty_cache()` gives back what is unused",
    "caching_allocator_enable": "caching cannot be switched off; `empty_cache()` gives back what is unused",
    "cudaStatus": "`npurt().npuError` has all codes",
    "gds": "storage that reads into device memory by itself needs hardware",
    "graphs": _NO_GRAPHS,
    "green_contexts": "a virtual device has no multiprocessors that could be divided up",
    "jiterator": "there is no compiler from CUDA source to kernels of the host",
    "nccl": "one process has all devices; `torch.npu.comm` copies between them",
    "nvtx": "there is no vendor's profiler to send ranges to; `torch.profiler.record_function` marks them for torch's",
    "profiler": "there is no vendor's profiler to switch; `torch.profiler` is torch's",
    "sparse": "sparse tensors are not supported; torch.cuda's module is only their old tensor types",
    "tunable": "there is one kernel for each operator, PyTorch's own for CPU, so there is nothing to choose",
    "amp.amp_definitely_not_available": "`torch.npu.is_available()` answers it",
}  # fmt: skip


def npu_name(cuda_name: str) -> str:
    """The name here of a name of torch.cuda, dotted where that is."""
    return RENAMED.get(cuda_name, cuda_name)


def absence(name: str) -> str | None:
    """Why torch.npu has no `name`, a name of torch.cuda; None where there is nothing to say."""
    return ABSENT.get(name)


def refusals() -> dict[str, Callable[..., NoReturn]]:
    """A function for each name that is refused, by its name here."""
    return {npu_name(name): _refusal(npu_name(name), reason) for name, reason in REFUSED.items()}


def _refusal(name: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any, **settings: Any) -> NoReturn:
        raise NotImplementedError(f"torch.npu.{name} is not supported: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__ = "torch.npu"
    refuse.__doc__ = f"Refused: {reason}.\n\nRaises:\n    NotImplementedError: always."
    return refuse
