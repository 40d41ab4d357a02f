"""Commands that start processes take them along when they are told to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Meanwhile SIGTERM and SIGHUP end us by way of every `finally`, as SIGINT does: our processes have sessions of their own.

    The exit code is that of shells, 128 and the number of the signal. A signal that is handled or ignored is left alone.
    """
    taken = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
