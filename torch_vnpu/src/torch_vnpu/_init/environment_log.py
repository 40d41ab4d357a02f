"""`TORCH_NPU_LOGS=env`: each environment variable that Python code reads during the import, once, on stderr.

Only then is anything of `os` replaced, and only for as long as the import takes. What native code reads is not seen.
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAME = "env"
#: Variables whose values are shown; others, which may be secrets, are only said to be set.
_SHOWN = ("TORCH", "PYTORCH", "NPU_", "VNPU_", "ASCEND_", "UNPATCH_", "TASK_QUEUE_", "OMP_", "MKL_")


@contextmanager
def logged_reads() -> Iterator[None]:
    """Log the reads within, where the environment asks for it."""
    wanted = os.environ.get("TORCH_NPU_LOGS")
    if not wanted:
        yield
        return
    from torch_vnpu import logs

    settings = logs.parse(wanted, os.environ.get("TORCH_NPU_LOGS_FILTER", ""))
    if settings.levels.get(_NAME, logging.ERROR) == logging.ERROR:  # not named, or by -env
        yield
        return
    kind: Any = type(os.environ)
    read = kind.__getitem__
    seen: set[str] = set()

    def logged(self: Any, key: str) -> str:
        if self is os.environ and isinstance(key, str) and key not in seen:
            seen.add(key)
            line = _told(self, key)
            if settings.passes(line):
                print(f"[{_NAME}] {line}", file=sys.stderr)
        value: str = read(self, key)
        return value

    def _told(self: Any, key: str) -> str:
        try:
            value = read(self, key)
        except KeyError:
            return f"{key} is not set"
        return f"{key} is {value!r}" if key.startswith(_SHOWN) else f"{key} is set"

    kind.__getitem__ = logged
    try:
        yield
    finally:
        kind.__getitem__ = read
