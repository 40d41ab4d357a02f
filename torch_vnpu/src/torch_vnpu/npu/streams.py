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


class _NpuEvents(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "npu"


class Event(torch.Event, metaclass=_NpuEvents):
    """A mark in a stream. `enable_timing` is needed for `elapsed_time` (milliseconds).

    What is made is a `torch.Event`: torch's own methods refuse another class where they take an event.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        _lazy.init()
        return torch.Event("npu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def _as_npu(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: DeviceLike = None) -> Stream:
    """The calling thread's stream on `device`."""
    _lazy.init()
    return _as_npu(torch.accelerator.current_stream(device_index(device)))


def default_stream(device: DeviceLike = None) -> Stream:
    """The stream of `device` that is current where no other was set."""
    current = current_stream(device)
    return Stream(stream_id=0, device_index=current.device_index, device_type=current.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` current in this thread, and its device too; None changes nothing.

    Raises:
        ValueError: it is a stream of another kind of device.
    """
    if stream is not None:
        if stream.device.type != "npu":
            raise ValueError(f"expected a stream of an npu device, but got one of '{stream.device}'")
        torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> AbstractContextManager[Any]:
    """Context in which `stream` is current; None changes nothing."""
    return nullcontext() if stream is None else stream
