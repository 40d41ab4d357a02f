"""A stream that does not get on while a test looks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torch_vnpu import _C


@contextmanager
def held(stream: torch.Stream) -> Iterator[None]:
    """What is queued on `stream` from here on waits until the context ends; kernels on other streams run."""
    release, reached = threading.Event(), threading.Event()

    def hold(kind, device, stream_id, *_):
        if (device, stream_id) == (stream.device_index, stream.stream_id) and not reached.is_set():
            reached.set()
            release.wait(60)

    with torch.npu.stream(stream):
        warm = torch.zeros(2, device=stream.device)
        warm.add_(1)  # the look of the call is learned
    stream.synchronize()
    id = _C.subscribe(hold, ["complete"])
    try:
        with torch.npu.stream(stream):
            warm.add_(1)
        assert reached.wait(60)
        yield
    finally:
        release.set()
        _C.unsubscribe(id)
