"""Feeds a detector with operators as the dispatcher sees them, for backends that have no event table of their own.

What orders them comes through callbacks: those of PyTorch's own trace of accelerators (`connect_gpu_trace`), or the npu's events.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from torch_vnpu import _C
from torch_vnpu.sanitizer.stream_check import StreamCheckMode, _by_alias, _copies_the_shape, _makes_no_values, _tensors

#: As the native detector takes it: argument, base, storage bytes, device, offset, itemsize, sizes, strides, written.
Operand = tuple[str, int, int, int, int, int, tuple[int, ...], tuple[int, ...], bool]


class Kernel(NamedTuple):
    """One operator that touched memory."""

    name: str
    device: int
    stream: int
    operands: tuple[Operand, ...]
    waits: bool


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
        self.detector.launch(
            kernel.device, kernel.stream, kernel.name, kernel.operands, kernel.waits, self.detector.capture()
        )
        for finding in self.detector.take():
            self.report(finding)

    def describe(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """The kernel that `func` launched, or None where it touched nothing of the device."""
        schema = func._schema
        touched = list(self._touched(schema, args, kwargs, result))
        device = next((t.device.index for _, t, _ in touched if t.device.type == self.device_type), None)
        if device is None:
            return None
        copy = schema.name == "aten::copy_" and any(tensor.is_cpu for _, tensor, _ in touched)
        operands = tuple(
            _operand(name, tensor, written)
            for name, tensor, written in touched
            if tensor.numel() and (tensor.device.type == self.device_type or (copy and tensor.is_pinned()))
        )
        waits = self._waits(func, args, kwargs, touched)
        if not operands and not waits:
            return None
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        return Kernel(name, device, self.current_stream(device), operands, waits)

    def _touched(self, schema: Any, args: Any, kwargs: Any, result: Any) -> Iterator[tuple[str, torch.Tensor, bool]]:
        results = result if len(schema.returns) > 1 else (result,)
        named = [*zip(schema.arguments, args, strict=False)]
        named += [(argument, kwargs[argument.name]) for argument in schema.arguments if argument.name in kwargs]
        views = [_by_alias(returned)[1] for returned in schema.returns]
        if views and all(views) and not schema.is_mutable:
            return
        for index, (argument, value) in enumerate(named):
            if index == 0 and _copies_the_shape(schema):
                continue
            for tensor in _tensors(value):
                yield argument.name, tensor, _by_alias(argument)[0]
        for returned, value in zip(schema.returns, results, strict=False):
            if returned.alias_info is None and not _makes_no_values(schema):
                for tensor in _tensors(value):
                    yield "return", tensor, True

    @staticmethod
    def _waits(func: Any, args: Any, kwargs: Any, touched: list[tuple[str, torch.Tensor, bool]]) -> bool:
        schema = func._schema
        if schema.name == "aten::copy_":
            host = [(tensor, written) for _, tensor, written in touched if tensor.is_cpu]
            non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            return bool(host) and (not non_blocking or any(written and not t.is_pinned() for t, written in host))
        if any("Tensor" not in str(returned.type) for returned in schema.returns):
            return True
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
        return bool(tags) and schema.name != "aten::index"


class NpuDispatchCapture:
    """The dispatch mode on the calling thread, and the npu's events for what orders its operators."""

    _KINDS = (
        "alloc",
        "free",
        "record_stream",
        "event_record",
        "event_wait",
        "event_synchronize",
        "stream_synchronize",
        "device_synchronize",
        "host_access",
    )

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
        from torch_vnpu.sanitizer.log import feed

        self._listener = _C.subscribe(
            lambda *event: feed(self._detector, event, self._detector.capture()), self._KINDS
        )
        self._mode.__enter__()

    def stop(self) -> None:
        if self._listener is not None:
            self._mode.__exit__(None, None, None)
            _C.unsubscribe(self._listener)
            self._listener = None


def connect_gpu_trace(detector: _C.Detector, trace: Any, current_device: Callable[[], int]) -> None:
    """Feed `detector` from a backend's callbacks, as PyTorch's `_gpu_trace` modules have them; they stay for the process.

    `trace` has register_callback_for_event_record, …event_wait, …memory_allocation, …memory_deallocation,
    …device_synchronization, …stream_synchronization and …event_synchronization. Their streams are handles of the current
    device. They do not say for which stream memory is allocated, so a use after free is not judged.
    """
    trace.register_callback_for_event_record(lambda event, stream: detector.event_record(event, current_device(), stream))
    trace.register_callback_for_event_wait(lambda event, stream: detector.event_wait(event, current_device(), stream))
    trace.register_callback_for_memory_allocation(lambda pointer: detector.alloc(pointer, 1, -1, -1))
    trace.register_callback_for_memory_deallocation(lambda pointer: detector.free(pointer, -1, -1))
    trace.register_callback_for_device_synchronization(lambda: detector.device_synchronize(current_device()))
    trace.register_callback_for_stream_synchronization(
        lambda stream: detector.stream_synchronize(current_device(), stream)
    )
    trace.register_callback_for_event_synchronization(lambda event: detector.event_synchronize(event))
