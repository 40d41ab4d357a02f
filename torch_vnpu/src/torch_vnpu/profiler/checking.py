"""What is wrong with a chrome trace, by the rules of those who read it.

The rules: JSON; slices of one lane nest (a viewer drops or moves those that do not), and those of a device's lane, which runs
one thing at a time, do not even nest; each flow has one start and one finish, not before it; a correlation is on one call;
numbers keep their nanoseconds as doubles; begins have their ends. Sources: Chrome's "Trace Event Format" and what Perfetto
documents about its import of JSON.
"""

from __future__ import annotations

import heapq
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_vnpu.profiler import fields
from torch_vnpu.profiler.fields import FieldError, Lane
from torch_vnpu.profiler.reading import Reader, TraceError, opened, text

DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
RUNTIME = frozenset(
    {"privateuse1_runtime", "privateuse1_driver", "cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime"}
)
_SHOWN = 3
#: Microseconds; from here on a double does not keep nanoseconds.
_PRECISE = 2**53 / 1000
_WITH_TIME = frozenset("XBEbensftiICN")


@dataclass
class Problem:
    """A kind of mistake: how often, and the first few with their bytes. A note is known of torch, and no failure."""

    kind: str
    note: bool = False
    count: int = 0
    examples: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Report:
    """What `check` found out. A trace that readers can be trusted with has no problems but notes."""

    events: int = 0
    slices: int = 0
    flows: int = 0
    bytes: int = 0
    problems: dict[str, Problem] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return not all(problem.note for problem in self.problems.values())

    def add(self, kind: str, byte: int, message: str, note: bool = False) -> None:
        """Count a problem; the first ones are kept."""
        problem = self.problems.setdefault(kind, Problem(kind, note))
        problem.count += 1
        if len(problem.examples) < _SHOWN:
            problem.examples.append((byte, message))


class _Slices:
    """The slices of one lane, 24 bytes each: start and end in nanoseconds, and the byte where the event is."""

    def __init__(self) -> None:
        self.starts, self.ends, self.bytes = array("q"), array("q"), array("q")
        self.of_device = False

    def add(self, start: int, end: int, byte: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.bytes.append(byte)

    def sorted(self) -> Iterator[tuple[int, int, int]]:
        order = sorted(range(len(self.starts)), key=lambda index: (self.starts[index], -self.ends[index]))
        return ((self.starts[index], self.ends[index], self.bytes[index]) for index in order)


def check(file: Path) -> Report:
    """Read the whole trace. Raises OSError where the file cannot be opened."""
    with opened(file) as source:
        return _Check(Reader(source)).run()


class _Check:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.report = Report()
        self.lanes: dict[tuple[Lane, bool], _Slices] = defaultdict(_Slices)  # functions of Python apart
        self.open: dict[Lane, list[int]] = defaultdict(list)  # begins: their bytes
        self.flows: dict[tuple[Any, ...], dict[str, tuple[int, int]]] = defaultdict(dict)
        self.calls: set[int] = set()

    def run(self) -> Report:
        events = False
        try:
            for item in self.reader:
                if item.key is None:
                    self.event(item.value, item.start)
                    events = True
                elif item.key == "traceEvents":
                    self.report.add("form", item.start, "traceEvents is no array")
                self.report.bytes = item.end
        except TraceError as error:
            self.report.add("json", error.byte, f"{error.reason}, in what begins at byte {error.start}")
        else:
            if not events:
                self.report.add("form", 0, "the trace has no events")
        for byte in self.reader.constants:
            self.report.add("json", byte, "NaN or Infinity, which is no JSON: viewers refuse the file")
        if "json" not in self.report.problems:  # half a trace has half of everything
            self.ends()
        return self.report

    def event(self, event: Any, byte: int) -> None:
        report = self.report
        report.events += 1
        if not isinstance(event, dict) or not isinstance(event.get("ph"), str):
            report.add("form", byte, "an event that is no object with a phase (ph)")
            return
        phase = event["ph"]
        if phase not in _WITH_TIME:
            return
        try:
            self.timed(event, phase, byte)
        except FieldError as error:
            report.add("form", byte, str(error))

    def timed(self, event: dict[str, Any], phase: str, byte: int) -> None:
        report = self.report
        start, lane = fields.time(event), fields.lane(event)
        if abs(event["ts"]) >= _PRECISE:
            report.add(
                "precision",
                byte,
                f"{event['ts']} µs: as a double it has lost its nanoseconds; times should be relative to a start",
            )
        if phase == "X":
            self.slice(event, start, lane, byte)
        elif phase == "B":
            self.open[lane].append(byte)
        elif phase == "E":
            if self.open[lane]:
                self.open[lane].pop()
            else:
                report.add("begin and end", byte, f"an end without its begin in {_lane(lane)}")
        elif phase in "sf":
            self.flow(event, phase, start, byte)

    def slice(self, event: dict[str, Any], start: int, lane: Lane, byte: int) -> None:
        duration, category = fields.duration(event), fields.word(event, "cat")
        if category in DEVICE:
            fields.name(event)  # without which a kernel is nobody's
        self.report.slices += 1
        slices = self.lanes[lane, category == "python_function"]
        # Of the decimals: the end is as exact as its parts.
        slices.add(start, start + duration, byte)
        slices.of_device |= category in DEVICE
        number = fields.correlation(event)
        if number and category in RUNTIME:
            if number in self.calls:
                self.report.add("correlation", byte, f"{_name(event)}: correlation {number} is on another call, too")
            self.calls.add(number)

    def flow(self, event: dict[str, Any], phase: str, start: int, byte: int) -> None:
        key = (fields.word(event, "cat"), fields.word(event, "name"), fields.word(event, "id"))
        ends = self.flows[key]
        if phase in ends:
            what = "starts" if phase == "s" else "finishes"
            self.report.add("flow", byte, f"the flow {text(str(key[0]))} {key[2]} {what} twice")
            return
        ends[phase] = (start, byte)
        if len(ends) == 2:
            self.report.flows += 1
            if ends["f"][0] < ends["s"][0]:
                back = (ends["s"][0] - ends["f"][0]) / 1000
                self.report.add("flow", byte, f"the flow {text(str(key[0]))} {key[2]} goes {back} µs back in time")
            del self.flows[key]

    def ends(self) -> None:
        for key, ends in self.flows.items():
            ((phase, (_, byte)),) = ends.items()
            missing = "finish" if phase == "s" else "start"
            self.report.add("flow", byte, f"the flow {text(str(key[0]))} {key[2]} has no {missing}")
        for lane, begins in self.open.items():
            for byte in begins:
                self.report.add("begin and end", byte, f"a begin without its end in {_lane(lane)}")
        for (lane, python), slices in self.lanes.items():
            for out, byte in overlapping(slices.sorted(), nested=not slices.of_device):
                self.report.add("lane", byte, f"in {_lane(lane)} a slice overlaps another by {out / 1000} µs")
            if python and (lane, False) in self.lanes:
                merged = heapq.merge(
                    slices.sorted(), self.lanes[lane, False].sorted(), key=lambda one: (one[0], -one[1])
                )
                for out, byte in overlapping(merged, nested=True):
                    message = f"in {_lane(lane)} a function of Python and another slice overlap by {out / 1000} µs"
                    self.report.add("python stack", byte, message, note=True)


def overlapping(slices: Iterable[tuple[int, int, int]], nested: bool) -> Iterator[tuple[int, int]]:
    """Of slices in order of their start (long ones first) those that do not nest, or, if not `nested`, overlap at all.

    Yields by how much, in nanoseconds, and the byte.
    """
    around: list[int] = []
    for start, end, byte in slices:
        while around and around[-1] <= start:
            around.pop()
        if around and (not nested or end > around[-1]):
            yield min(end, around[-1]) - start if end > around[-1] else end - start, byte
            around[-1] = max(around[-1], end)
        else:
            around.append(end)


def _name(event: dict[str, Any]) -> str:
    return repr(text(str(event.get("name", "")))[:60])


def _lane(lane: Lane) -> str:
    return f"process {text(str(lane[0]))}, thread {text(str(lane[1]))}"
