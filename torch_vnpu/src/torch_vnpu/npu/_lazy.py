"""When the runtime starts: at the first real use or at `torch.npu.init()`, never at import. What may be said before, such as
a seed, is queued until then.
"""

import threading
from collections.abc import Callable

import torch

from torch_vnpu import _C

_lock = threading.RLock()
_queue: list[Callable[[], None]] = []
_initialised = False
_initialising = False


def is_initialized() -> bool:
    """Whether the runtime has been started in this process (and not in a parent that was forked)."""
    return _initialised and not is_in_bad_fork()


def is_in_bad_fork() -> bool:
    """Whether this process was forked from one whose runtime was running: it cannot use npu."""
    return _C.is_in_bad_fork()


def init() -> None:
    """Start the runtime: fix the number of devices and their capacity, and do what was queued. Idempotent.

    Raises:
        RuntimeError: an environment variable cannot be read, the process is a fork of one with a running runtime, or a
            `backward()` ran in this process before torch_vnpu was imported.
    """
    global _initialised, _initialising
    if is_initialized() or _initialising:
        return
    with _lock:
        if is_initialized():
            return
        _C.init()
        _initialising = True
        try:
            _check_autograd_knows_the_device()
            while _queue:
                _queue.pop(0)()
            _initialised = True
        finally:
            _initialising = False


def call_when_initialised(action: Callable[[], None]) -> None:
    """Do `action` now, or as soon as the runtime starts."""
    with _lock:
        if not is_initialized():
            _queue.append(action)
            return
    action()


def _check_autograd_knows_the_device() -> None:
    # The engine counts the devices at the first backward() of the process. If that was before this backend registered, every
    # later backward() on npu fails inside the engine; the smallest one shows it, before the user's work does.
    if _C.device_count() == 0:
        return
    from torch.utils._python_dispatch import _disable_current_modes

    try:
        # Whoever records operators at this moment records the user's, not these.
        with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
            torch.zeros((), device="npu:0", requires_grad=True).neg().backward()
    except RuntimeError as error:
        raise RuntimeError(
            "npu cannot be used in this process: a backward() ran before torch_vnpu was imported, and torch's autograd engine "
            "counts the devices only once. Import torch_vnpu before the first backward()"
        ) from error
