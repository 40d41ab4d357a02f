"""The channel *operators*: what each thread dispatched, in the thread's own order, with the thread's dispatch keys.

There is no order between threads that two runs would share, so none is recorded: threads are told apart by role and
device, and sorted by what they did.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from types import FrameType, TracebackType
from typing import Any

from unpatch.model import ThreadRecord
from unpatch.observe.frames import FrameCounter
from unpatch.observe.keys import hex_keys
from unpatch.observe.roles import current_role

#: One dispatched operator: name, device, raw dispatch keys.
_Entry = tuple[str, str, tuple[int, int]]


class OperatorRecorder:
    """Records the operators of the entering thread, of threads started meanwhile and of autograd's device threads.

    Threads that Python started before (those of a pool, say) are not seen. After exit `threads`, `key_sets`, `note`
    and `compiled_frames` hold the result.
    """

    def __init__(self, compiled: bool = False) -> None:
        self.threads: tuple[ThreadRecord, ...] = ()
        self.key_sets: tuple[tuple[str, str], ...] = ()  #: (included, excluded) in hex; what `ThreadRecord.keys` index
        self.note = ""  #: why operators were not recorded
        self.compiled_frames = 0  #: frames that Dynamo compiled meanwhile
        self._compiled = compiled
        self._local = threading.local()
        self._lock = threading.Lock()
        self._buffers: list[tuple[str, list[_Entry]]] = []
        self._names: dict[Any, str] = {}
        self._frames = FrameCounter()
        self._mode: Any = None

    def __enter__(self) -> OperatorRecorder:
        try:
            from unpatch.observe import dispatch_mode
        except ImportError as error:
            self.note = f"torch cannot be imported ({error}), so there are no operators to record."
            return self
        self._on_this_thread = dispatch_mode.OnThisThread
        self._main = threading.get_ident()
        self._mode = (dispatch_mode.CompiledMode if self._compiled else dispatch_mode.EagerMode)(self._record)
        self._recording = True
        self._previous_hook: Any = threading.getprofile()
        self._hook = self._enter_thread  # kept: each access to a method makes a new object, and exit compares
        self._frames.__enter__()
        self._mode.__enter__()
        threading.setprofile(self._hook)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._mode is None:
            return
        self._recording = False
        if threading.getprofile() is self._hook:
            threading.setprofile(self._previous_hook)
        self._mode.__exit__(kind, error, tb)
        self._frames.__exit__(kind, error, tb)
        self.compiled_frames = self._frames.compiled
        with self._lock:
            self.threads, self.key_sets = _collect(self._buffers)
        if self.compiled_frames and not self.threads:
            self.note = (
                f"Dynamo compiled {self.compiled_frames} frame(s) and none dispatched an operator: code that a backend"
                " generates runs outside the dispatcher."
            )

    def _enter_thread(self, frame: FrameType, event: str, arg: Any) -> None:
        """First event of a new thread: put the mode on it and give the thread back to whoever profiles it."""
        if self._recording:
            self._local.mode = self._on_this_thread(self._mode)
        sys.setprofile(self._previous_hook)
        if self._previous_hook is not None:
            self._previous_hook(frame, event, arg)

    def _record(self, operator: Any, device: str, keys: tuple[int, int]) -> None:
        if not self._recording:  # a thread that outlives the recording
            return
        name = self._names.get(operator)
        if name is None:
            name = self._names[operator] = str(operator)
        try:
            buffer = self._local.buffer
        except AttributeError:
            buffer = self._local.buffer = []
            with self._lock:
                self._buffers.append((current_role(self._main), buffer))
        buffer.append((name, device, keys))


def _collect(
    buffers: list[tuple[str, list[_Entry]]],
) -> tuple[tuple[ThreadRecord, ...], tuple[tuple[str, str], ...]]:
    """One record per thread and device, and the key sets, in orders that do not depend on when each thread ran."""
    snapshot = [(role, tuple(entries)) for role, entries in buffers]
    raw = sorted({keys for _, entries in snapshot for _, _, keys in entries})
    index = {keys: position for position, keys in enumerate(raw)}
    records = []
    for role, entries in snapshot:
        by_device: dict[str, list[_Entry]] = defaultdict(list)
        for entry in entries:
            by_device[entry[1]].append(entry)
        for device, own in by_device.items():
            operators = tuple(name for name, _, _ in own)
            records.append(ThreadRecord(role, device, operators, tuple(index[keys] for _, _, keys in own)))
    records.sort(key=lambda record: (record.role, record.device, record.operators, record.keys))
    return tuple(records), tuple(hex_keys(keys) for keys in raw)


def record_operators(compiled: bool = False) -> OperatorRecorder:
    """A context manager that records the operators dispatched inside it.

    `compiled`: for workloads that use torch.compile, which an ordinary recorder would make run eagerly (and fail under
    `fullgraph=True`); the operators are then those that the compiled code dispatches.
    """
    return OperatorRecorder(compiled)
