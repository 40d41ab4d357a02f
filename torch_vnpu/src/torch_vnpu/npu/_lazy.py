"""When the runtime starts: at the first real use or at `torch.npu.init()`, never at import."""

import threading

from torch_vnpu import _C

_lock = threading.Lock()
_ready = False
_refusal: RuntimeError | None = None


def is_initialized() -> bool:
    """Whether the runtime has been started in this process (and not in a parent that was forked)."""
    return _refusal is None and _C.is_initialized()


def is_in_bad_fork() -> bool:
    """Whether this process was forked from one whose runtime was running: it cannot use npu."""
    return _C.is_in_bad_fork()


def init() -> None:
    """Start the runtime: fix the number of devices and their capacity. Idempotent.

    Raises:
        RuntimeError: an environment variable cannot be read, the process is a fork of one with a running runtime, or a
            `backward()` ran in this process before torch_vnpu was imported.
    """
    global _ready
    if _ready and not is_in_bad_fork():
        return
    _C.init()
    with _lock:
        if not _ready:
            _check_autograd_knows_the_device()
            _ready = True


def _check_autograd_knows_the_device() -> None:
    # The engine counts the devices at the first backward() of the process. If that was before this backend registered, every
    # later backward() on npu fails inside the engine; the smallest one shows it, before the user's work does.
    global _refusal
    try:
        if _refusal is None:
            _C.await_autograd_threads()
    except RuntimeError as error:
        _refusal = error
    if _refusal is not None:
        raise RuntimeError(
            "npu cannot be used in this process: a backward() ran before torch_vnpu was imported, and torch's autograd engine "
            "counts the devices only once. Import torch_vnpu before the first backward()"
        ) from _refusal
