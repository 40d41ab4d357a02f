"""Line tracers for chosen code objects, which leave every other tracer as they found it.

A tracer belongs to one thread and to the patches that the thread is inside of. It is put in place where a replacement
is entered, so it works in threads that Python did not start (autograd's), which process-wide tracers never see.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

#: A trace function or None. Its exact type is circular: it returns the next one.
TraceFunction = Any
#: Called with a patch and a code object that was entered; returns where to put the lines that run (line numbers; for
#: crowded code, offsets of instructions), or None to look away.
Entered = Callable[[str, CodeType], set[int] | None]


@dataclass(frozen=True)
class Inside:
    """A call of a replacement that has not returned yet."""

    patch: str
    tracer: Tracer
    previous: TraceFunction


class Watch:
    """Which code objects belong to which patches. `crowded`: those to be traced instruction by instruction."""

    def __init__(self, entered: Entered) -> None:
        self.entered = entered
        self.owners: dict[int, frozenset[str]] = {}
        self.crowded: set[int] = set()
        self._codes: list[CodeType] = []  # keeps the identities above from being used again
        self._inside: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._hook: TraceFunction = None
        self._previous_hook: TraceFunction = None

    def add(self, patch: str, code: CodeType, crowded: bool) -> None:
        self._codes.append(code)
        self.owners[id(code)] = self.owners.get(id(code), frozenset()) | {patch}
        if crowded:
            self.crowded.add(id(code))

    def enter(self, patch: str) -> Inside:
        """Trace `patch` in the calling thread, and in threads started meanwhile, until `leave`."""
        previous = sys.gettrace()
        if isinstance(previous, Tracer) and previous.watch is self:  # a replacement that calls another, or itself
            tracer = Tracer(self, previous.patches | {patch}, previous.previous)
        else:
            tracer = Tracer(self, frozenset({patch}), previous)
        self._hook_threads(patch)
        sys.settrace(tracer)
        return Inside(patch, tracer, previous)

    def leave(self, inside: Inside) -> None:
        if sys.gettrace() is inside.tracer:  # else the replacement set one of its own
            sys.settrace(inside.previous)
        self._unhook_threads(inside.patch)

    def _hook_threads(self, patch: str) -> None:
        # Threads may be inside at the same time: the first puts the hook in place, the last takes it away.
        with self._lock:
            if not self._inside.total():
                self._previous_hook = threading.gettrace()
                self._hook = self._enter_thread
                threading.settrace(self._hook)
            self._inside[patch] += 1

    def _unhook_threads(self, patch: str) -> None:
        with self._lock:
            self._inside[patch] -= 1
            if not self._inside.total() and threading.gettrace() is self._hook:
                threading.settrace(self._previous_hook)

    def _enter_thread(self, frame: FrameType, event: str, arg: Any) -> Any:
        with self._lock:
            patches = frozenset(patch for patch, count in self._inside.items() if count)
        tracer = Tracer(self, patches, self._previous_hook)
        sys.settrace(tracer)
        return tracer(frame, event, arg)


class Tracer:
    """A trace function that records lines of watched code and hands every event on to the tracer it replaced."""

    def __init__(self, watch: Watch, patches: frozenset[str], previous: TraceFunction) -> None:
        self.watch = watch
        self.patches = patches
        self.previous = previous

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        theirs = None
        if self.previous is not None:
            theirs = self.previous(frame, event, arg)
            if sys.gettrace() is not self:  # native tracers (coverage's) put themselves back in place
                sys.settrace(self)
        owners = self.watch.owners.get(id(frame.f_code))
        if owners is None:
            return theirs
        entered = [self.watch.entered(patch, frame.f_code) for patch in owners & self.patches]
        sinks = [sink for sink in entered if sink is not None]
        if not sinks:
            return theirs
        crowded = id(frame.f_code) in self.watch.crowded
        frame.f_trace_opcodes = frame.f_trace_opcodes or crowded
        return _local(sinks, crowded, theirs)


def _local(sinks: list[set[int]], crowded: bool, theirs: TraceFunction) -> TraceFunction:
    mine = "opcode" if crowded else "line"

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal theirs
        if event == mine:
            for sink in sinks:
                sink.add(frame.f_lasti if crowded else frame.f_lineno)
        if theirs is not None and not (crowded and event == "opcode"):
            theirs = theirs(frame, event, arg) or theirs
        return trace

    return trace
