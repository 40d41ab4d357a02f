"""Tensors on npu that are sent to another process: both processes have the same memory, as with CPU tensors.

A storage that is pickled by multiprocessing moves into shared memory first; what is sent is the file descriptor.
"""

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

Reduced = tuple[Callable[..., torch.UntypedStorage], tuple[Any, ...]]


def register_sharing() -> None:
    """Tell multiprocessing how a storage on npu is sent; other storages go torch's own way."""
    ForkingPickler.register(torch.UntypedStorage, reduce_untyped_storage)


def reduce_untyped_storage(storage: torch.UntypedStorage) -> Reduced:
    """What multiprocessing sends for `storage`."""
    if storage.device.type != "npu":
        return reduce_storage(storage)
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
