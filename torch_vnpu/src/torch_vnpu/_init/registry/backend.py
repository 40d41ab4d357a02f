"""The device itself: its name, `torch.npu`, and the methods that torch generates for tensors, modules and storages."""

import sys

import torch

from torch_vnpu._init.conflicts import DEVICE_NAME

#: dtypes for which no npu storage is generated: there are no quantised kernels.
UNSUPPORTED_DTYPES = (torch.quint8, torch.quint4x2, torch.quint2x4, torch.qint32, torch.qint8)


def register_backend() -> None:
    """Rename PrivateUse1 to `npu` and, next to it, register the module `torch.npu`."""
    from torch_vnpu import npu

    torch.utils.rename_privateuse1_backend(DEVICE_NAME)
    torch._register_device_module(DEVICE_NAME, npu)
    sys.modules[f"torch.{DEVICE_NAME}"] = npu
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True, unsupported_dtype=list(UNSUPPORTED_DTYPES))
