"""Streams and events of `torch.npu`, on top of torch's own device-independent classes."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from torch_vnpu.npu import _lazy
from torch_vnpu.npu.device import DeviceLike, device_index


class Stream(torch.Stream):
    """An in-order queue of work on one device.

    Args:
        device: where the stream is; None is the current device.
        priority: lower numbers are more urgent; kept, and without effect on a virtual device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **ids: Any) -> "Stream":
        _lazy.init()
        if ids:  # stream_id, device_index and device_type of an existing stream
            return super().__new__(cls, priority=priority, **ids)
        return super().__new__(cls, device=torch.device("npu", device_index(device)), priority=priority)

    def __repr__(self) -> str:
        return f"torch.npu.Stream(device='npu:{self.device_index}', stream_id={self.stream_id})"


class Event(torch.Event):
    """A mark in a stream. `enable_timing` is needed for `elapsed_time` (milliseconds)."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        _lazy.init()
        return super().__new__(cls, "npu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)

    def __repr__(self) -> str:
        return f"torch.npu.Event(device='{self.device}')"


def _as_npu(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's stream on `device`."""
    _lazy.init()
    return _as_npu(torch.accelerator.current_stream(device_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream of `device` that is current where no other was set."""
    _lazy.init()
    kind = torch._C._autograd.DeviceType.PrivateUse1
    return Stream(stream_id=0, device_index=device_index(device), device_type=int(kind))


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` current in this thread, and its device too; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> AbstractContextManager[Any]:
    """Context in which `stream` is current; None changes nothing."""
    return nullcontext() if stream is None else stream
