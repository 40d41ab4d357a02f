"""Inductor on npu: its C++ kernels for the CPU, over the bytes that npu tensors have.

A generated kernel runs on the host, so the generated code waits for the current stream before it calls one. What Inductor
leaves to PyTorch (matmul, convolution, …) goes through the stream's queue as ever.
"""

from typing import Any, NoReturn

import torch
from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen

from torch_vnpu.errors import ErrCode, graph_error

__all__ = ["NpuOverrides", "NpuWrapper"]


class NpuOverrides(CpuDeviceOpOverrides):
    """Lines of generated code that choose the device; kernels take no stream."""

    def set_device(self, device_idx: int) -> str:
        return f"torch.npu.set_device({device_idx})"

    def synchronize(self) -> str:
        return "torch.npu.synchronize()"

    def device_guard(self, device_idx: int) -> str:
        return f"torch.npu.device({device_idx})"


class _CallsCpuKernels:
    def _generate_kernel_call_helper(
        self, kernel_name: str, call_args: Any, *, device: Any = None, **rest: Any
    ) -> None:
        if device is not None and device.type == "npu":
            self.writeline(f"torch.accelerator.current_stream({device.index}).synchronize()")  # type: ignore[attr-defined]
            device = torch.device("cpu")
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, **rest)  # type: ignore[misc]

    def make_allocation(self, name: str, device: torch.device, *arguments: Any, **options: Any) -> str:
        # torch names the type of the device only, and sets the ordinal by a guard, but only for the devices that it knows.
        text: str = super().make_allocation(name, device, *arguments, **options)  # type: ignore[misc]
        return text.replace("device='npu'", f"device='{device}'") if device.type == "npu" else text


class NpuWrapper(_CallsCpuKernels, PythonWrapperCodegen):
    """The Python code that calls the kernels."""

    @staticmethod
    def create(is_subgraph: bool, subgraph_name: Any, parent_wrapper: Any, partition_signatures: Any = None) -> Any:
        if is_subgraph:
            return _NpuSubgraphWrapper(subgraph_name, parent_wrapper, partition_signatures)
        return NpuWrapper()


class _NpuSubgraphWrapper(_CallsCpuKernels, SubgraphPythonWrapperCodegen):
    pass


class _RefusedWrapper:
    supports_caching = False

    @staticmethod
    def create(*_: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.compile on npu makes Python code only: cpp_wrapper and AOTInductor produce programs that call CPU functions "
            "on CPU memory. Set torch._inductor.config.cpp_wrapper = False, or move the model to CPU to export it"
            + graph_error(ErrCode.NOT_SUPPORT)
        )


def register() -> None:
    """Register the above with Inductor, and apply the patches that belong to it."""
    from torch_vnpu.compile import inductor_patches

    register_backend_for_device("npu", CppScheduling, NpuWrapper, _RefusedWrapper)
    register_device_op_overrides("npu", NpuOverrides())
    for name in ("inductor-cpu-loops", "inductor-cpu-backend"):
        inductor_patches.manager.apply(name)
