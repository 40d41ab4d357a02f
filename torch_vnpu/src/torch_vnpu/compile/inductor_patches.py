"""The patches that Inductor needs for npu. Applied when Inductor loads, not at import."""

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from torch_vnpu._init.patches import manager, patch
from unpatch.patches import NotAppliedError, Origin, original


def _own_source(ours: Callable[..., Any], target: str) -> str:
    """The source of what a patch has replaced, or would."""
    try:
        return inspect.getsource(original(ours))
    except NotAppliedError:
        return inspect.getsource(pkgutil.resolve_name(target))


def loops_are_ordered_by_backend() -> bool:
    """BaseSchedulerNode.is_cpu asks for the backend of a device, not for its name"""
    return '"cpu"' not in _own_source(is_cpu, "torch._inductor.scheduler:BaseSchedulerNode.is_cpu")


def backends_are_looked_up() -> bool:
    """Inductor takes the backend of a device from what was registered for it"""
    return "config.cpu_backend" not in _own_source(backend_in_utils, "torch._inductor.utils:get_current_backend")


@patch(
    "torch._inductor.scheduler.BaseSchedulerNode.is_cpu",
    id="inductor-cpu-loops",
    group="inductor",
    title="Inductor orders the loops of npu kernels as those of CPU",
    reason=(
        "The scheduler asks a node's device, by the name 'cpu', whether the C++ backend makes its kernel, and reorders the "
        "loops of all others in ways that this backend does not support."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=loops_are_ordered_by_backend,
    fingerprints={"torch._inductor.scheduler.BaseSchedulerNode.is_cpu": "source:1853bfcfad2e"},
    risk="A fused kernel of the C++ backend for npu may come out wrong, or fail to compile, without it.",
)
def is_cpu(self: Any) -> bool:
    device = self.get_device()
    return bool(original(is_cpu)(self)) or (device is not None and device.type == "npu")


_backend = manager.declare(
    id="inductor-cpu-backend",
    group="inductor",
    title="Inductor knows that the kernels of npu are made by its C++ backend",
    reason=(
        "The dtypes of a kernel's intermediate values are tracked by rules of the backend, and which one that is follows from "
        "the name of the device: every unknown name counts as Triton, whose rules the C++ backend's values do not have."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=backends_are_looked_up,
    fingerprints={
        "torch._inductor.utils.get_current_backend": "source:7c63e03e4b2f",
        "torch._inductor.codegen.common.get_current_backend": "source:7c63e03e4b2f",
    },
    risk="Compiling index arithmetic, random numbers and float16 reductions on npu fails without it.",
)


def _device_type(device_type: str | None) -> str:
    from torch._inductor.virtualized import V

    wanted = device_type or V.graph.get_current_device_or_throw().type
    return "cpu" if wanted == "npu" else wanted


# Two names of one function: the second module has imported it by name.
@_backend.replace("torch._inductor.utils.get_current_backend")
def backend_in_utils(device_type: str | None = None) -> str:
    return str(original(backend_in_utils)(_device_type(device_type)))


@_backend.replace("torch._inductor.codegen.common.get_current_backend")
def backend_in_common(device_type: str | None = None) -> str:
    return str(original(backend_in_common)(_device_type(device_type)))
