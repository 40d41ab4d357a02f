"""DLPack: torch compares the device's type with the name that it had before it was renamed."""

from enum import IntEnum
from typing import Any

import torch

from torch_vnpu._init.patches import patch
from unpatch.patches import NotAppliedError, Origin, original


def torch_knows_it() -> bool:
    """torch's own Tensor.__dlpack_device__ takes tensors of a renamed backend"""
    try:
        own = original(dlpack_device)
    except NotAppliedError:
        own = torch.Tensor.__dlpack_device__
    try:
        own(torch.empty(0, device="npu"))
    except (RuntimeError, ValueError):
        return False
    return True


@patch(
    "torch.Tensor.__dlpack_device__",
    id="dlpack-device",
    group="api",
    title="Tensor.__dlpack_device__ knows npu",
    reason=(
        "torch 2.13 looks for a device of type 'privateuse1', which no tensor has once the backend is renamed, and refuses. "
        "DLPack's code for such devices is kDLExtDev, which torch takes when it imports."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=torch_knows_it,
    risk="torch.from_dlpack of an npu tensor raises ValueError without it.",
    fingerprints={"torch.Tensor.__dlpack_device__": "source:630038780d0a"},
)
def dlpack_device(self: Any) -> tuple[IntEnum, int]:
    if isinstance(self, torch.Tensor) and self.device.type == "npu":
        from torch.utils.dlpack import DLDeviceType

        return DLDeviceType.kDLExtDev, self.device.index
    return original(dlpack_device)(self)
