"""Which part a thread plays in a case: `main`, `worker` (Python started it) or `backward` (autograd's device thread).

Threads come and go and their identifiers are used again, so nothing is remembered: the role is asked for when needed.
"""

from __future__ import annotations

import sys
import threading


def current_role(main: int) -> str:
    """The calling thread's role, where `main` is the identifier of the thread that runs the case."""
    identifier = threading.get_ident()
    if identifier == main:
        return "main"
    # current_thread() would invent a thread object for a thread that threading did not start (and logging does that);
    # on CPU, backward runs on the thread that called it, so a running graph task alone does not tell.
    for thread in threading.enumerate():
        if thread.ident == identifier and not isinstance(thread, threading._DummyThread):
            return "worker"
    torch = sys.modules.get("torch")
    return "backward" if torch is not None and torch._C._current_graph_task_id() != -1 else "worker"
