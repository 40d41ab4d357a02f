"""Process groups for npu. torch takes the first registered one for the default where none is named, so the order counts."""

from datetime import timedelta
from functools import partial
from typing import Any

#: In the order in which they are registered.
BACKENDS = ("hccl", "lccl")


def register_distributed() -> None:
    """Register `hccl`, then `lccl`, for npu; torch may have been built without distributed. Their code loads at first use."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    for name in BACKENDS:
        dist.Backend.register_backend(name, partial(_create, name), devices=["npu"])


def _create(name: str, store: Any, rank: int, world_size: int, timeout: timedelta) -> Any:
    from torch_vnpu.distributed.process_group import HostProcessGroup

    return HostProcessGroup(name, store, rank, world_size, timeout)
