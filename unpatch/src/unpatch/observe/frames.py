"""How many frames Dynamo compiled, without loading Dynamo: it is asked from the moment something else loads it.

Dynamo's own counters do not count frames of `fullgraph=True`, and `torch._dynamo.reset()` clears others; its bytecode
hooks see every frame and survive a reset.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

import wrapt

_DYNAMO = "torch._dynamo.convert_frame"
_active: list[FrameCounter] = []
_watching = False


class FrameCounter:
    """Counts compiled frames between enter and exit, in all threads."""

    def __init__(self) -> None:
        self.compiled = 0  #: frames that Dynamo compiled
        self.attempted = False  #: whether Dynamo tried to, with success or not

    def __enter__(self) -> FrameCounter:
        _watch()
        self._before = _attempts()
        _active.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _active.remove(self)
        failed_compiling = kind is not None and kind.__module__.startswith("torch._dynamo")
        self.attempted = self.compiled > 0 or failed_compiling or _attempts() != self._before


def _attempts() -> int:
    """Dynamo's count of frames it began to compile (a reset starts it again); 0 while Dynamo is not loaded."""
    return getattr(sys.modules.get(_DYNAMO), "FRAME_COUNTER", 0)


def _watch() -> None:
    global _watching
    if not _watching:
        _watching = True
        wrapt.register_post_import_hook(lambda module: module.register_bytecode_hook(_compiled), _DYNAMO)


def _compiled(code: Any, new_code: Any) -> None:
    for counter in list(_active):
        counter.compiled += 1
