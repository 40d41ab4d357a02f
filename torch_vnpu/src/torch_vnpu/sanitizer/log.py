"""A log of all that the detector is told, one JSON object a line, and its replay without a device."""

import json
import os
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from torch_vnpu import _C
from torch_vnpu.sanitizer.findings import Finding
from unpatch.files import written_whole

FORMAT = "torch_vnpu.sanitizer.log"
VERSION = 2

#: Events of memory and of order; a dispatch mode tells accesses by itself.
ORDER = (
    "alloc",
    "free",
    "record_stream",
    "event_record",
    "event_wait",
    "event_synchronize",
    "stream_synchronize",
    "device_synchronize",
)
KINDS = (*ORDER, "access", "host_access")


class LogError(ValueError):
    """A file that is no log of the sanitizer, with the line that is wrong."""


def feed(detector: _C.Detector, event: tuple[Any, ...], stack: int = 0) -> None:
    """Tell `detector` of an event as the table of listeners has it. Raises LogError for an unknown kind."""
    kind, device, stream, name, pointer, size, _sequence, *access = event
    match kind:
        case "alloc":
            detector.alloc(pointer, size, device, stream, stack)
        case "free":
            detector.free(pointer, device, stream, stack)
        case "record_stream":
            detector.record_stream(pointer, device, stream)
        case "event_record":
            detector.event_record(pointer, device, stream)
        case "event_wait":
            detector.event_wait(pointer, device, stream)
        case "event_synchronize":
            detector.event_synchronize(pointer)
        case "stream_synchronize":
            detector.stream_synchronize(device, stream)
        case "device_synchronize":
            detector.device_synchronize(device)
        case "access":
            detector.launch(device, stream, name, [_operand(one) for one in access[0]], access[1], stack)
        case "host_access":
            detector.host_access(name, [_operand(one) for one in access[0]], stack)
        case _:
            raise LogError(f"unknown kind of event: {kind!r}")


def _operand(given: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, list) else part for part in given)


class Recorder:
    """Writes the log of a context, or from `start` to `stop`. The file is there when that ends, also by an exception.

    Both raise OSError where it cannot be written.
    """

    def __init__(self, path: str | Path, *, stack_depth: int = 32) -> None:
        self.path = Path(path)
        self._stacks = _C.Detector(stack_depth + 1)  # the innermost frame is our own
        self._known: set[int] = set()
        self._lock = threading.Lock()
        self._whole = written_whole(self.path)
        self._file: IO[bytes] | None = None
        self._listener = -1
        self._events = 0
        self._process = os.getpid()
        self._error: OSError | None = None

    def start(self) -> "Recorder":
        self._file = self._whole.__enter__()
        self._write({"format": FORMAT, "version": VERSION})
        self._listener = _C.subscribe(self._note, KINDS)
        return self

    def stop(self) -> None:
        """Listen no more, and put the file in its place."""
        _C.unsubscribe(self._listener)
        try:
            with ExitStack() as ending:
                ending.push(self._whole)  # is told of an exception, and leaves no half log then
                with self._lock:
                    self._write({"events": self._events})
                    self._file = None
                if self._error is not None:
                    raise self._error
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def __enter__(self) -> "Recorder":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write(self, item: object) -> None:
        assert self._file is not None
        if self._error is not None:
            return
        try:
            self._file.write(json.dumps(item, separators=(",", ":")).encode() + b"\n")
            self._file.flush()  # a forked child must not inherit something to write
        except OSError as error:  # a full disk is nothing that the program should fail of; `stop` raises it
            self._error = error

    def _note(self, *event: Any) -> None:
        if os.getpid() != self._process:  # a forked child
            return
        stack = self._stacks.capture()
        with self._lock:
            if self._file is None:
                return
            if stack and stack not in self._known:
                self._known.add(stack)
                self._write({"stack": stack, "frames": self._stacks.frames(stack)})
            self._write({"event": event, "at": stack})
            self._events += 1


def replay(path: str | Path) -> list[Finding]:
    """The findings of a recorded log. Raises OSError, and LogError where the file is no log, or not all of one."""
    detector = _C.Detector(0)
    stacks: dict[int, list[tuple[str, str, int]]] = {}
    events, number, ended = 0, 0, False
    with Path(path).open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                item = json.loads(line)
                if number == 1:
                    _check_header(item)
                elif ended:
                    raise LogError("there is something after the end of the log")
                elif "stack" in item:
                    stacks[item["stack"]] = [(str(file), str(name), int(at)) for file, name, at in item["frames"]]
                elif "events" in item:
                    ended = True
                    if item["events"] != events:
                        raise LogError(f"of {item['events']} events there are {events}")
                else:
                    feed(detector, tuple(item["event"]), item["at"])
                    events += 1
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                reason = error if isinstance(error, LogError) else _reason(error, line)
                raise LogError(f"{path}:{number}: no log of the npu sanitizer: {reason}") from error
    if not ended:
        what = "the end is missing, it was cut off" if number else "the file is empty"
        raise LogError(f"{path}: no log of the npu sanitizer: {what}")
    detector.finish()
    return [Finding.of(raw, lambda stack: stacks.get(stack, [])) for raw in detector.take()]


def _reason(error: Exception, line: str) -> str:
    if isinstance(error, json.JSONDecodeError | RecursionError):
        return "the line is no JSON" if line.endswith("\n") else "the line is no JSON, it was cut off"
    return "the line is neither an event nor a stack"


def _check_header(item: Any) -> None:
    if not isinstance(item, dict) or item.get("format") != FORMAT:
        raise LogError(f'the first line must be {{"format": "{FORMAT}", …}}')
    if item.get("version") != VERSION:
        raise LogError(f"version {item.get('version')!r} is not known, only {VERSION}")
