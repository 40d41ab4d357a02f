"""Ranges of NVTX, which programs for CUDA mark for their vendor's profiler, are ranges of torch's own."""

import itertools
import threading
from typing import Any

from torch.profiler import record_function

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager


class Ranges:
    """The functions of NVTX that `torch.cuda.nvtx` calls. Nested ranges are a thread's own, the others have a number."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._open: dict[int, Any] = {}
        self._numbers = itertools.count()

    def rangePushA(self, message: str) -> int:  # noqa: N802  (NVTX's name, as below)
        """Open a range; its depth, from 0."""
        stack = self._thread.__dict__.setdefault("stack", [])
        stack.append(_begin(message))
        return len(stack) - 1

    def rangePop(self) -> int:  # noqa: N802
        """Close the innermost range; its depth, or -1 where none is open."""
        stack = self._thread.__dict__.get("stack")
        if not stack:
            return -1
        stack.pop().__exit__(None, None, None)
        return len(stack)

    def rangeStartA(self, message: str) -> int:  # noqa: N802
        """Open a range that need not nest; its number."""
        number = next(self._numbers)
        self._open[number] = _begin(message)
        return number

    def rangeEnd(self, number: int) -> None:  # noqa: N802
        """Close the range of that number."""
        self._open.pop(number).__exit__(None, None, None)

    def deviceRangeStart(self, message: str, stream: int) -> int:  # noqa: N802
        """The same, on the host: what a device does has no ranges."""
        return self.rangeStartA(message)

    def deviceRangeEnd(self, number: int, stream: int) -> None:  # noqa: N802
        """Close a range of `deviceRangeStart`."""
        self.rangeEnd(number)

    def markA(self, message: str) -> None:  # noqa: N802
        """A range without length."""
        _begin(message).__exit__(None, None, None)


def _begin(message: str) -> Any:
    entered = record_function(message)
    entered.__enter__()
    return entered


manager.declare(
    id="nvtx",
    group="profiler",
    title="Ranges of NVTX are ranges of torch.profiler",
    reason="torch without CUDA has no NVTX, and its functions fail where a program only marks what it does.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
).replace("torch.cuda.nvtx._nvtx", Ranges())
