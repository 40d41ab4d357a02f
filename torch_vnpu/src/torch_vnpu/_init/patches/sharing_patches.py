"""Tensors on npu that are sent to another process: both processes have the same memory, as with CPU tensors.

A storage that is pickled by multiprocessing moves into shared memory first; what is sent is the file descriptor.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

from torch_vnpu._init.patches import patch
from unpatch.patches import Origin, original

Reduced = tuple[Callable[..., torch.UntypedStorage], tuple[Any, ...]]


def torch_shares_it() -> bool:
    """torch's own reduce_storage takes a storage on npu"""
    try:
        reduce_storage(torch.empty(1, device="npu").untyped_storage())
    except RuntimeError:
        return False
    return True


@patch(
    "multiprocessing.reduction.ForkingPickler._extra_reducers[torch.UntypedStorage]",
    id="storage-sharing",
    group="api",
    title="multiprocessing shares storages on npu",
    reason=(
        "torch registers how multiprocessing sends a storage, and that way refuses storages that are neither on CPU nor on "
        "CUDA. Those on npu can be shared by their file descriptor, as those on CPU are."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=torch_shares_it,
    risk="Without it a tensor on npu cannot be sent to another process.",
    fingerprints={
        "multiprocessing.reduction.ForkingPickler._extra_reducers[torch.UntypedStorage]": "source:6c2f881a18a3",
    },
)
def reduce_untyped_storage(storage: torch.UntypedStorage) -> Reduced:
    """What multiprocessing sends for `storage`; other storages than those on npu go torch's own way."""
    if storage.device.type != "npu":
        reduced: Reduced = original(reduce_untyped_storage)(storage)
        return reduced
    index = storage.device.index
    if not storage.nbytes():
        return _empty, (index,)
    from torch_vnpu import _C

    return _rebuild, (_C.share_storage(storage), index)


def _empty(index: int) -> torch.UntypedStorage:
    return torch.UntypedStorage(0, device=torch.device("npu", index))


def _rebuild(shared: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    from torch_vnpu import _C

    return _C.storage_over(shared, index)
