"""Devices: how many there are, which is current, and what they are called."""

from typing import Any, NamedTuple, TypeAlias

import torch

from torch_vnpu import _C
from torch_vnpu.npu import _lazy

#: What the functions below take for a device: an ordinal, a device, its name, or None for the current one.
DeviceLike: TypeAlias = int | str | torch.device | None


class DeviceProperties(NamedTuple):
    """What is known of a device. `total_memory` is in bytes."""

    name: str
    total_memory: int
    multi_processor_count: int


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
    """Name, memory in bytes and the number of intra-op threads that a kernel may use."""
    _lazy.init()
    index = device_index(device)
    _, total = torch.accelerator.get_memory_info(index)
    return DeviceProperties("Virtual NPU", total, torch.get_num_threads())


def get_device_name(device: DeviceLike = None) -> str:
    """The name of `device`."""
    return get_device_properties(device).name


def is_bf16_supported() -> bool:
    """True: PyTorch's CPU kernels compute in bfloat16."""
    return True


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
    """Context in which the device of `tensor` is current; a tensor that is not on npu changes nothing."""

    def __init__(self, tensor: Any) -> None:
        on_npu = getattr(getattr(tensor, "device", None), "type", None) == "npu"
        super().__init__(tensor.device if on_npu else None)
