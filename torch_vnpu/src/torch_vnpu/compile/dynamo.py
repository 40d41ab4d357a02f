"""What Dynamo needs to know of npu: its device interface, the functions that are constants while it traces, a backend."""

from typing import Any, NamedTuple

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device

from torch_vnpu import npu
from torch_vnpu.npu.device import DeviceLike

__all__ = ["CONSTANT", "GUARDED", "IN_GRAPH", "NpuInterface", "npu_backend"]

#: Functions of torch.npu whose result Dynamo takes while it traces; those that a program can change get a guard.
CONSTANT = ("is_available", "device_count", "is_bf16_supported")
GUARDED = ("current_device", "is_initialized")
#: Functions that Dynamo handles itself, by the device interface.
IN_GRAPH = ("stream",)

#: VNPU_MAX_DEVICES of the runtime's header.
MOST_DEVICES = 64


class WorkerProperties(NamedTuple):
    """What Inductor asks of a device before it compiles; starts no runtime."""

    multi_processor_count: int


class NpuInterface(DeviceInterface):
    """npu by the names that Dynamo and Inductor use for all devices."""

    device = npu.device
    Event = torch.Event
    Stream = npu.Stream

    class Worker:
        """What compile workers ask; they are forks that cannot use a device, and a virtual one needs no asking."""

        @staticmethod
        def set_device(device: int) -> None:
            npu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return npu.current_device()

        @staticmethod
        def get_device_properties(device: DeviceLike = None) -> "WorkerProperties":
            return WorkerProperties(torch.get_num_threads())

    current_device = staticmethod(npu.current_device)
    set_device = staticmethod(npu.set_device)
    device_count = staticmethod(npu.device_count)
    is_available = staticmethod(npu.is_available)
    stream = staticmethod(npu.stream)
    current_stream = staticmethod(npu.current_stream)
    set_stream = staticmethod(npu.set_stream)
    synchronize = staticmethod(npu.synchronize)
    memory_allocated = staticmethod(npu.memory_allocated)

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return NpuInterface.exchange_device(device) if device >= 0 else -1

    @staticmethod
    def exchange_device(device: int) -> int:
        before = npu.current_device()
        if device >= 0:
            npu.set_device(device)
        return before

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        npu.set_stream(npu.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return npu.current_stream(device_idx).npu_stream

    @staticmethod
    def get_compute_capability(device: DeviceLike = None) -> str:
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return npu.is_bf16_supported()


def register_interface() -> None:
    """Register the device interface for npu and for each ordinal that there may be: how many there are may still change."""
    register_interface_for_device("npu", NpuInterface)
    for index in range(MOST_DEVICES):
        register_interface_for_device(f"npu:{index}", NpuInterface)


def register_rules(trace_rules: Any) -> None:
    """Have Dynamo treat the functions above as torch's own."""
    from torch._dynamo.variables import TorchInGraphFunctionVariable

    rules = {f"torch.npu.{name}": TorchInGraphFunctionVariable for name in CONSTANT + GUARDED + IN_GRAPH}
    trace_rules.torch_name_rule_map.append(rules)
    trace_rules.get_torch_obj_rule_map.cache_clear()


def register_constants(variables: Any) -> None:
    """Have Dynamo fold them."""
    folded = {getattr(npu, name): None for name in CONSTANT + GUARDED}
    variables.constant_fold_functions.update(folded)
    variables.constant_fold_functions_need_guards.update({getattr(npu, name): None for name in GUARDED})


def register_substitutes() -> None:
    """Have Dynamo trace torch's own functions, which it knows, where torch.npu has the same."""

    @torch.compiler.substitute_in_graph(npu.current_stream, skip_signature_check=True)
    def current_stream(device: DeviceLike = None) -> torch.Stream:
        return torch.accelerator.current_stream() if device is None else torch.accelerator.current_stream(device)

    @torch.compiler.substitute_in_graph(npu.synchronize, skip_signature_check=True)
    def synchronize(device: DeviceLike = None) -> None:
        torch.accelerator.synchronize() if device is None else torch.accelerator.synchronize(device)


def npu_backend(graph: Any, inputs: Any, **options: Any) -> Any:
    """`torch.compile(backend="npu")`: what AOTAutograd makes of the graph, run by npu's own kernels. Needs no C++ compiler."""
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(graph, inputs, **options)
