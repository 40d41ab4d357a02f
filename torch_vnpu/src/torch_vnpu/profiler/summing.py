"""Where the time of a trace went: by kernel, by stream, in copies beside the computing, and idle, with whose fault it was.

A device is idle where none of its streams runs anything, between its first and its last slice. A gap is *host-bound* where the
slice that ends it was not yet launched when the gap began: the device had nothing to do. Otherwise the launch was there and
the gap is the queue's. All times are in microseconds.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_vnpu.profiler import fields
from torch_vnpu.profiler.checking import DEVICE, RUNTIME
from torch_vnpu.profiler.reading import Reader, opened

Span = tuple[int, int]  #: nanoseconds


@dataclass
class Kernel:
    """The slices of one name on all devices."""

    name: str
    kind: str
    count: int = 0
    total: float = 0.0
    longest: float = 0.0


@dataclass
class Stream:
    """One lane of a device."""

    device: Any
    stream: Any
    count: int
    busy: float
    idle: float  #: between its own first and last slice


@dataclass
class Gap:
    """A time in which a device ran nothing."""

    start: float  #: since the first slice of the device
    length: float
    before: str  #: the slice that ended it
    host_bound: bool | None  #: None where the trace does not say when it was launched


@dataclass
class Device:
    """What a device did between its first and last slice: `span` = compute + copy - overlap + idle."""

    device: Any
    span: float
    compute: float  #: some kernel or memset runs
    copy: float
    overlap: float  #: a copy runs beside a kernel
    idle: float
    host_bound: float
    host_bound_gaps: int
    gaps: list[Gap]  #: the longest


@dataclass
class Summary:
    """All of it; kernels and gaps by their time, longest first."""

    kernels: list[Kernel] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)


def summarise(file: Path, gaps: int = 5) -> Summary:
    """Read the trace. Raises TraceError where it cannot be read, FieldError, OSError where it cannot be opened."""
    kernels: dict[tuple[str, str], Kernel] = {}
    slices: dict[tuple[Any, Any], list[tuple[int, int, str, str, int]]] = defaultdict(list)
    calls: dict[int, int] = {}
    with opened(file) as source:
        for item in Reader(source):
            event = item.value
            if item.key is not None or not isinstance(event, dict) or event.get("ph") != "X":
                continue
            category, number = fields.word(event, "cat"), fields.correlation(event)
            if category in RUNTIME and number:
                calls[number] = fields.time(event)
            elif category in DEVICE:
                start, length, name = fields.time(event), fields.duration(event), fields.name(event)
                kernel = kernels.setdefault((name, category), Kernel(name, category))
                kernel.count += 1
                kernel.total += length / 1000
                kernel.longest = max(kernel.longest, length / 1000)
                slices[fields.lane(event)].append((start, start + length, category, kernel.name, number))
    result = Summary(sorted(kernels.values(), key=lambda kernel: (-kernel.total, kernel.name)))
    by_device: dict[Any, list[tuple[int, int, str, str, int]]] = defaultdict(list)
    for (device, stream), lane in sorted(slices.items(), key=lambda item: str(item[0])):
        busy = union((start, end) for start, end, *_ in lane)
        span = busy[-1][1] - busy[0][0]
        result.streams.append(Stream(device, stream, len(lane), _us(_length(busy)), _us(span - _length(busy))))
        by_device[device] += lane
    result.devices = [_device(device, lane, calls, gaps) for device, lane in by_device.items()]
    return result


def _device(device: Any, lane: list[tuple[int, int, str, str, int]], calls: dict[int, int], shown: int) -> Device:
    lane.sort()
    compute = union((start, end) for start, end, category, *_ in lane if category != "gpu_memcpy")
    copy = union((start, end) for start, end, category, *_ in lane if category == "gpu_memcpy")
    busy = union([*compute, *copy])
    gaps, end = [], lane[0][1]
    for start, until, _, name, number in lane:
        if start > end:
            called = calls.get(number)
            bound = None if called is None else called >= end
            gaps.append(Gap(_us(end - lane[0][0]), _us(start - end), name, bound))
        end = max(end, until)
    span = busy[-1][1] - busy[0][0]
    waits = [gap.length for gap in gaps if gap.host_bound]
    return Device(
        device,
        span=_us(span),
        compute=_us(_length(compute)),
        copy=_us(_length(copy)),
        overlap=_us(_length(compute) + _length(copy) - _length(busy)),
        idle=_us(span - _length(busy)),
        host_bound=round(sum(waits), 3),
        host_bound_gaps=len(waits),
        gaps=heapq.nlargest(shown, gaps, key=lambda gap: gap.length),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans, in order, that cover the same times."""
    covered: list[Span] = []
    for start, end in sorted(spans):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((start, end))
    return covered


def _length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
