"""The kernel check: every operator tells that it starts, with its Python stack, and is waited for before the next.

The last line that a process printed before it died names the culprit. Real toolkits load kernels that check themselves from a
debug directory; the virtual device has none, so its directory only says which processes use it.
"""

import atexit
import fcntl
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch_vnpu import _C

_DIRECTORY = "npu_debug_kernels"

_enabled: "_KernelCheck | None" = None


class _KernelCheck:
    def __init__(self, path: Path) -> None:
        self.root = path
        self.directory = path / _DIRECTORY
        self.pid = os.getpid()
        self.numbers = itertools.count(1)
        self.listener = -1
        self.blocking: str | None = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / f".{_DIRECTORY}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def prepare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self.directory.mkdir(exist_ok=True)
            (self.directory / str(self.pid)).touch()

    def clean(self) -> None:
        if os.getpid() != self.pid:  # a forked child leaves it to its parent
            return
        with self._locked():
            (self.directory / str(self.pid)).unlink(missing_ok=True)
            users = [int(entry.name) for entry in self.directory.iterdir()] if self.directory.is_dir() else []
            if not any(_alive(pid) for pid in users):
                shutil.rmtree(self.directory, ignore_errors=True)

    def tell(self, kind: str, device: int, stream: int, name: str, *_: Any) -> None:
        caller = sys._getframe(0).f_back  # none on a thread of the autograd engine
        where = f"stream {stream} of npu:{device}" if stream else f"the default stream of npu:{device}"
        lines = [f"[npu kernel check] {next(self.numbers)}: {name} starts on {where}"]
        if caller is None:
            lines.append("    (no Python frames on this thread)")
        else:
            frames = traceback.extract_stack(caller)
            lines += [f"    {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
        # One write: lines of several threads do not mix, and nothing is left in a buffer when the process dies.
        os.write(2, ("\n".join(lines) + "\n").encode(errors="backslashreplace"))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def enable_kernel_check(path: str | Path) -> None:
    """Check the kernels of this process from now on; the debug directory is made below `path`. Idempotent.

    Launches block from then on, whatever TASK_QUEUE_ENABLE says, so it has to be called before the runtime starts. Raises
    RuntimeError where that has happened, and OSError where the directory cannot be made.
    """
    global _enabled
    if _enabled is not None:
        return
    if _C.is_initialized():
        raise RuntimeError(
            "the kernel check has to be enabled before the runtime starts: set ASCEND_OPP_DEBUG_PATH before npu is used"
        )
    check = _KernelCheck(Path(path))
    check.prepare()
    check.blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING")
    os.environ["ASCEND_LAUNCH_BLOCKING"] = "1"  # the runtime reads it when it starts
    check.listener = _C.subscribe(check.tell, ["launch"])
    atexit.register(disable_kernel_check)
    _enabled = check


def disable_kernel_check() -> None:
    """Tell of no more kernels, and clean the debug directory. Launches go on blocking. Idempotent."""
    global _enabled
    if _enabled is None:
        return
    check, _enabled = _enabled, None
    atexit.unregister(disable_kernel_check)
    _C.unsubscribe(check.listener)
    if check.blocking is None:
        os.environ.pop("ASCEND_LAUNCH_BLOCKING", None)
    else:
        os.environ["ASCEND_LAUNCH_BLOCKING"] = check.blocking
    check.clean()
