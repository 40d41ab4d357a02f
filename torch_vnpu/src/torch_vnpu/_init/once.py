"""Runs the initialisation once per process. Most of it cannot be undone, so a failure is final: the next import raises the
same error again, instead of trying on top of what a first try left behind.
"""

import os
from collections.abc import Callable

from torch_vnpu._init import environment_log

_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
_failure: BaseException | None = None
_done = False


def import_torch() -> None:
    """Import torch without its autoload of backends, which would import this package again. Child processes do autoload."""
    before = os.environ.get(_AUTOLOAD)
    os.environ[_AUTOLOAD] = "0"
    try:
        import torch  # noqa: F401
    finally:
        if before is None:
            del os.environ[_AUTOLOAD]
        else:
            os.environ[_AUTOLOAD] = before


def run(initialise: Callable[[], None]) -> None:
    """Run `initialise`, or raise again what an earlier run raised.

    Args:
        initialise: the stages, in order.

    Raises:
        Whatever a stage raises, the same object at each later import.
    """
    global _failure, _done
    if _done:
        return
    if _failure is not None:
        raise _failure
    try:
        with environment_log.logged_reads():
            import_torch()
            initialise()
    except Exception as error:
        _failure = error
        raise
    _done = True
