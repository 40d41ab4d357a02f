"""Devices: how many there are, which is current, what they are called and what they can do."""

from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import torch

from torch_vnpu import _C
from torch_vnpu.npu import _lazy

#: What the functions below take for a device: an ordinal, a device, its name, or None for the current one.
DeviceLike: TypeAlias = int | str | torch.device | None


class DeviceProperties(NamedTuple):
    """What is true of a device, by the names that CUDA's properties have.

    `total_memory` is in bytes; `multi_processor_count` is how many intra-op threads a kernel may use; `is_integrated`
    says that the device's memory is the host's.
    """

    name: str
    total_memory: int
    multi_processor_count: int
    is_integrated: bool = True


def device_index(device: DeviceLike = None, *, optional: bool = True) -> int:
    """The ordinal that `device` names.

    Raises:
        ValueError: it names no npu device, or it is None and `optional` is False.
    """
    if device is None:
        if not optional:
            raise ValueError("a device is needed: an ordinal, such as 0, or a device, such as 'npu:0'")
        return _C.current_device()
    if isinstance(device, bool) or not isinstance(device, int | str | torch.device):
        raise ValueError(f"a device is an ordinal or such as 'npu:0', not {device!r}")
    if isinstance(device, int):
        return _C.current_device() if device < 0 else device
    parsed = torch.device(device)
    if parsed.type != "npu":
        raise ValueError(f"expected an npu device, but got '{parsed}'")
    return _C.current_device() if parsed.index is None else parsed.index


def is_available() -> bool:
    """Whether there is a device. Starts nothing."""
    return device_count() > 0


def device_count() -> int:
    """Number of devices: VNPU_DEVICES (2), limited by ASCEND_RT_VISIBLE_DEVICES. Starts nothing."""
    return _C.device_count()


def current_device() -> int:
    """Ordinal of the calling thread's device."""
    _lazy.init()
    return _C.current_device()


def set_device(device: DeviceLike) -> None:
    """Make `device` the calling thread's device; a negative ordinal changes nothing.

    Raises:
        RuntimeError: there is no such device.
    """
    _lazy.init()
    torch.accelerator.set_device_index(device_index(device, optional=False))


def synchronize(device: DeviceLike = None) -> None:
    """Wait for all work on `device` (None: the current one)."""
    _lazy.init()
    torch.accelerator.synchronize(device_index(device))


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """What is true of `device`; there is no more, such as a compute capability or a PCI address."""
    _lazy.init()
    index = device_index(device)
    _, total = torch.accelerator.get_memory_info(index)
    return DeviceProperties("Virtual NPU", total, torch.get_num_threads())


def get_device_name(device: DeviceLike = None) -> str:
    """The name of `device`."""
    return get_device_properties(device).name


def existing_device(device: DeviceLike = None) -> int:
    """The ordinal that `device` names, of a device that is there. Starts the runtime.

    Raises:
        RuntimeError: there is no such device.
    """
    _lazy.init()
    index = device_index(device)
    torch.accelerator.current_stream(index)  # which is there if the device is
    return index


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether `device` can read the memory of `peer_device`: always where they are two, since all memory is the host's.

    Raises:
        RuntimeError: one of them is not there.
    """
    return existing_device(device) != existing_device(peer_device)


def get_arch_list() -> list[str]:
    """Empty: no kernel is compiled for an architecture, all are the host's."""
    return []


def get_gencode_flags() -> str:
    """Empty, as `get_arch_list` is."""
    return ""


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: PyTorch's CPU kernels compute in bfloat16, either way."""
    return True


def is_tf32_supported() -> bool:
    """False: float32 is computed as float32."""
    return False


def is_current_stream_capturing() -> bool:
    """False: nothing is ever captured, as there are no graphs."""
    return False


def ipc_collect() -> None:
    """Give memory back that other processes have let go of: the operating system does so by itself."""
    _lazy.init()


def get_sync_debug_mode() -> int:
    """0: waiting for the device is neither warned of nor refused."""
    return 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Take 0 ("default"), which is what holds.

    Raises:
        NotImplementedError: 1 ("warn") or 2 ("error").
        ValueError: no mode is called so.
    """
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in modes.values():
        raise ValueError(f"a mode is 0 ('default'), 1 ('warn') or 2 ('error'), not {debug_mode!r}")
    if mode != 0:
        raise NotImplementedError(
            "torch.npu cannot warn of calls that wait for the device or refuse them: copies to the host wait inside the "
            "runtime, unseen; the sanitizer's events tell which streams, events and devices a program synchronises"
        )


def npurt() -> ModuleType:
    """The runtime's own functions; starts the runtime. They are described in the module `torch_vnpu.npu._npurt`."""
    _lazy.init()
    from torch_vnpu.npu import _npurt

    return _npurt


class device:  # noqa: N801  (the name that torch.cuda has)
    """Context in which `device` is the calling thread's device; None or a negative ordinal changes nothing."""

    def __init__(self, device: Any) -> None:
        unchanged = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if unchanged else device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        _lazy.init()
        self.prev_idx = _C.current_device()
        if self.idx >= 0:
            torch.accelerator.set_device_index(self.idx)

    def __exit__(self, *exception: object) -> None:
        torch.accelerator.set_device_index(self.prev_idx)


class device_of(device):  # noqa: N801
    """Context in which the device of the tensor `obj` is current; what is not on npu changes nothing."""

    def __init__(self, obj: Any) -> None:
        on_npu = getattr(getattr(obj, "device", None), "type", None) == "npu"
        super().__init__(obj.device if on_npu else None)
