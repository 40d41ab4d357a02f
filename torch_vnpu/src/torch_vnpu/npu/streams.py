"""Streams and events of `torch.npu`, on top of torch's own device-independent classes."""

from typing import Any, NoReturn

import torch

from torch_vnpu import _C
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

    @property
    def npu_stream(self) -> int:
        """The runtime's handle of the stream, for `torch.npu.npurt()` and for `ExternalStream`."""
        return int(self.native_handle)

    def __repr__(self) -> str:
        return f"torch.npu.Stream(device='npu:{self.device_index}', stream_id={self.stream_id})"


class ExternalStream(Stream):
    """A stream that `torch.npu.npurt().npuStreamCreate` made, by its handle. Whoever made it destroys it.

    Args:
        stream_ptr: the handle.
        device: where the stream is; None asks the runtime.

    Raises:
        RuntimeError: the handle is that of no live stream.
        ValueError: the stream is on another device.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None, **ids: Any) -> "ExternalStream":
        _lazy.init()
        index, stream_id = _C.stream_ids(stream_ptr)
        if device is not None and device_index(device) != index:
            raise ValueError(f"the stream is on npu:{index}, not on {device!r}")
        kind = torch.accelerator.current_stream(index).device_type
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=kind)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """The stream of a handle; `ExternalStream` says what it raises."""
    return _as_npu(ExternalStream(data_ptr, device))


class _NpuEvents(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "npu"


class Event(torch.Event, metaclass=_NpuEvents):
    """A mark in a stream. `enable_timing` is needed for `elapsed_time` (milliseconds); `interprocess` is refused.

    `external` says what the event is while a graph is captured, as in torch.cuda; there are no graphs, so it changes nothing.
    What is made is a `torch.Event`: torch's own methods refuse another class where they take an event.
    """

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> torch.Event:
        if interprocess:
            cls.from_ipc_handle()
        _lazy.init()
        return torch.Event("npu", enable_timing=enable_timing, blocking=blocking)

    @classmethod
    def from_ipc_handle(cls, device: Any = None, handle: Any = None) -> NoReturn:
        """Refused, as `interprocess=True` and `ipc_handle()` are.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "torch.npu cannot share an event with another process: it marks a place in a stream, and a stream belongs to one "
            "process; synchronize before you tell the other one"
        )


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


class StreamContext:
    """Context in which `stream` and its device are current; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *exception: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    """`StreamContext(stream)`."""
    return StreamContext(stream)


def erase_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """Take back `tensor.record_stream(stream)`: the memory of `tensor` need no longer wait for the stream when it is freed.

    For whoever has made sure by other means that the stream is done with it, and wants the memory back at once.

    Raises:
        TypeError: it is no tensor, or no stream.
        ValueError: one of them is not of npu, or they are on different devices.
    """
    if not isinstance(tensor, torch.Tensor) or not isinstance(stream, torch.Stream):
        raise TypeError(
            f"erase_stream takes a tensor and a stream, not {type(tensor).__name__} and {type(stream).__name__}"
        )
    if tensor.device.type != "npu" or stream.device != tensor.device:
        raise ValueError(
            f"the tensor is on '{tensor.device}' and the stream on '{stream.device}': they must be on one npu"
        )
    _C.erase_stream(tensor.untyped_storage(), stream.stream_id)
