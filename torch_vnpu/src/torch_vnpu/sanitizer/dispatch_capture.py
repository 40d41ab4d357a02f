"""Feeds a detector with operators as the dispatcher sees them, for backends that have no event table of their own.

Their order comes through callbacks: those of PyTorch's own trace of accelerators (`connect_gpu_trace`), or the npu's events.
It sees the thread that starts it, and its backward passes. A copy between devices is taken to order the streams of both.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from torch_vnpu import _C
from torch_vnpu.sanitizer.findings import tell_each
from torch_vnpu.sanitizer.log import ORDER, feed
from torch_vnpu.sanitizer.stream_check import StreamCheckMode, by_alias, copies_the_shape, makes_no_values, tensors

#: As the native detector takes it: argument, base, storage bytes, device, offset, itemsize, sizes, strides, written.
Operand = tuple[str, int, int, int, int, int, tuple[int, ...], tuple[int, ...], bool]


#: Operators that look at no values, beyond those that copy a shape; and those that copy between devices.
_TOUCH_NOTHING = {"aten::record_stream", "aten::is_set_to", "aten::is_same_size", "aten::resize_", "aten::set_"}
_COPIES = {"aten::copy_", "aten::_to_copy"}


class Kernel(NamedTuple):
    """One operator that touched memory; `device` is None where the host did."""

    name: str
    device: int | None
    stream: int
    operands: tuple[Operand, ...]
    waits: bool
    others: tuple[tuple[int, int], ...] = ()  # the streams of other devices that take part in a copy


def _operand(name: str, tensor: torch.Tensor, written: bool) -> Operand:
    storage = tensor.untyped_storage()
    itemsize = tensor.element_size()
    return (
        name,
        storage.data_ptr(),
        storage.nbytes(),
        -1 if tensor.device.type == "cpu" else tensor.device.index,
        tensor.storage_offset() * itemsize,
        itemsize,
        tuple(tensor.shape),
        tuple(tensor.stride()),
        written,
    )


class DispatchCapture(StreamCheckMode):
    """Hands every operator on devices of `device_type` that touches memory to `detector`, then what was found to `report`.

    `current_stream(index)` tells the id of a device's current stream.
    """

    def __init__(
        self,
        detector: _C.Detector,
        report: Callable[[tuple[Any, ...]], None],
        device_type: str,
        current_stream: Callable[[int], int],
    ) -> None:
        super().__init__(self._feed)
        self.detector = detector
        self.report = report
        self.device_type = device_type
        self.current_stream = current_stream

    def _feed(self, kernel: Any) -> None:
        stack = self.detector.capture()
        if kernel.device is None:
            self.detector.host_access(kernel.name, kernel.operands, stack)
        else:
            here = (kernel.device, kernel.stream)
            for other in kernel.others:
                self._order(other, here)
            self.detector.launch(*here, kernel.name, kernel.operands, kernel.waits, stack)
            for other in kernel.others:
                self._order(here, other)
        self.tell()

    def _order(self, earlier: tuple[int, int], later: tuple[int, int]) -> None:
        self.detector.event_record(id(self), *earlier)
        self.detector.event_wait(id(self), *later)

    def tell(self) -> None:
        """Hand what was found to `report`."""
        tell_each(self.detector.take(), self.report)

    def describe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """The kernel that `func` launched, or None where it touched nothing of the device."""
        schema = func._schema
        if schema.name in _TOUCH_NOTHING:
            return None
        touched = list(self._touched(schema, args, kwargs, result))
        on_device = [tensor for _, tensor, _ in touched if tensor.device.type == self.device_type]
        pinned = [one for one in touched if one[1].is_cpu and one[1].is_pinned()]
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if not on_device:
            return Kernel(name, None, 0, tuple(_operand(*one) for one in pinned), False) if pinned else None
        counted = [one for one in touched if one[1].device.type == self.device_type]
        if schema.name in _COPIES:
            counted += pinned
        operands = tuple(_operand(*one) for one in counted if one[1].numel())
        waits = self._waits(func, args, kwargs, touched)
        if not operands and not waits:
            return None
        # A copy runs where its target is.
        device = (on_device[-1] if schema.name == "aten::_to_copy" else on_device[0]).device.index
        others = {tensor.device.index for tensor in on_device} - {device} if schema.name in _COPIES else ()
        streams = tuple((index, self.current_stream(index)) for index in sorted(others))
        return Kernel(name, device, self.current_stream(device), operands, waits, streams)

    def _touched(self, schema: Any, args: Any, kwargs: Any, result: Any) -> Iterator[tuple[str, torch.Tensor, bool]]:
        results = result if len(schema.returns) > 1 else (result,)
        named = [*zip(schema.arguments, args, strict=False)]
        named += [(argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs]
        views = [by_alias(returned)[1] for returned in schema.returns]
        if views and all(views) and not schema.is_mutable:
            return
        for index, (argument, value) in enumerate(named):
            if index == 0 and copies_the_shape(schema):
                continue
            for tensor in tensors(value):
                yield argument.name, tensor, by_alias(argument)[0]
        for returned, value in zip(schema.returns, results, strict=False):
            if returned.alias_info is None and not makes_no_values(schema):
                for tensor in tensors(value):
                    yield "return", tensor, True

    @staticmethod
    def _waits(func: Any, args: Any, kwargs: Any, touched: list[tuple[str, torch.Tensor, bool]]) -> bool:
        schema = func._schema
        if schema.name in _COPIES:
            host = [(tensor, written) for _, tensor, written in touched if tensor.is_cpu]
            third = args[2] if schema.name == "aten::copy_" and len(args) > 2 else False
            non_blocking = kwargs.get("non_blocking", third)
            return bool(host) and (not non_blocking or any(written and not t.is_pinned() for t, written in host))
        if any("Tensor" not in str(returned.type) for returned in schema.returns):
            return True
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
        return bool(tags) and schema.name != "aten::index"


class NpuDispatchCapture:
    """The dispatch mode on the calling thread, and the npu's events for what orders its operators."""

    def __init__(self, detector: _C.Detector, report: Callable[[tuple[Any, ...]], None]) -> None:
        self._detector = detector
        self._mode = DispatchCapture(
            detector, report, "npu", lambda index: torch.accelerator.current_stream(index).stream_id
        )
        self._listener: int | None = None

    @property
    def active(self) -> bool:
        return self._listener is not None

    def start(self) -> None:
        def order(*event: Any) -> None:
            feed(self._detector, event, self._detector.capture())
            if event[0] == "device_synchronize":
                self._mode.tell()

        self._listener = _C.subscribe(order, ORDER)
        self._mode.__enter__()

    def stop(self) -> None:
        if self._listener is not None:
            self._mode.__exit__(None, None, None)
            _C.unsubscribe(self._listener)
            self._listener = None
            self._mode.tell()


def connect_gpu_trace(detector: _C.Detector, trace: Any, current_device: Callable[[], int]) -> None:
    """Feed `detector` from a backend's callbacks, as PyTorch's `_gpu_trace` modules have them; they stay for the process.

    `trace` has register_callback_for_event_record, …event_wait, …memory_allocation, …memory_deallocation,
    …device_synchronization, …stream_synchronization and …event_synchronization. Their streams are handles of the current
    device. They do not say for which stream memory is allocated, so a use after free is not judged.
    """
    trace.register_callback_for_event_record(
        lambda event, stream: detector.event_record(event, current_device(), stream)
    )
    trace.register_callback_for_event_wait(lambda event, stream: detector.event_wait(event, current_device(), stream))
    trace.register_callback_for_memory_allocation(lambda pointer: detector.alloc(pointer, 1, -1, -1))
    trace.register_callback_for_memory_deallocation(lambda pointer: detector.free(pointer, -1, -1))
    trace.register_callback_for_device_synchronization(lambda: detector.device_synchronize(current_device()))
    trace.register_callback_for_stream_synchronization(
        lambda stream: detector.stream_synchronize(current_device(), stream)
    )
    trace.register_callback_for_event_synchronization(lambda event: detector.event_synchronize(event))
