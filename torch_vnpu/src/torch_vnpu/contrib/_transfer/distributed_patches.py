"""Process groups: NCCL is HCCL, and a mesh of CUDA devices is one of npu devices."""

from typing import Any

import torch.distributed as dist

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager, translate
from torch_vnpu.contrib._transfer.redirect import redirected

if dist.is_available():
    from torch.distributed import device_mesh, distributed_c10d

    _groups = manager.declare(
        id="nccl",
        group="distributed",
        title="The process group backend 'nccl' is 'hccl'",
        reason="A program for CUDA asks for NCCL by name; HCCL is npu's.",
        origin=ORIGIN,
        remove_when=SWITCHED_ON,
    )
    _backend_new = distributed_c10d.Backend.__new__

    def backend_new(cls: type, name: Any) -> Any:
        return _backend_new(cls, translate.backend(name))

    # Every function that takes the name of a backend makes a Backend of it.
    _groups.replace("torch.distributed.distributed_c10d.Backend.__new__", staticmethod(backend_new))

    @_groups.replace("torch.distributed.is_nccl_available")
    def is_nccl_available() -> bool:
        return hasattr(distributed_c10d.Backend, "HCCL")

    _groups.replace(
        "torch.distributed.device_mesh.DeviceMesh.__init__",
        redirected(device_mesh.DeviceMesh.__init__, "device_type", position=1),
    )
