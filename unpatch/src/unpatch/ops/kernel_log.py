"""The log that an npu prints of its kernels, of one run out of several.

A backend writes it to `sys.stderr` line by line as things happen (TORCH_NPU_LOGS); only what it writes is held back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

_BEGINNINGS = ("[op_plugin] ", "[dispatch] ")  #: of the lines of the logs


class _Held:
    """A stream that drops the lines of the logs while it is shut."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.shut = True

    def write(self, text: str) -> int:
        if self.shut and text.startswith(_BEGINNINGS):
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def hold_back(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """From now on hold the log back, but for what `device` does inside of a context manager that the returned one makes.

    To the end of the process: a backend may run kernels of its own when it starts and when it ends.
    """
    held = _Held(sys.stderr)
    sys.stderr = held  # what else is asked of it, it passes on

    def settle() -> None:
        if device.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(device)

    @contextmanager
    def shown() -> Iterator[None]:
        settle()
        held.shut = False
        try:
            yield
            settle()
        finally:
            held.shut = True

    return shown
