"""What a trial's child process watches, one module per channel: context managers and functions with plain results.

Nothing here compares or judges. torch is imported only where a channel needs it, so that studies of packages without
torch can use the others.
"""

from typing import TYPE_CHECKING, Any

from unpatch.errors import UnpatchError

if TYPE_CHECKING:
    from unpatch.observe.calls import record_ops

__all__ = ["ObservationError", "record_ops"]


class ObservationError(UnpatchError):
    """Something could not be observed; the message says what, and what to do."""


def __getattr__(name: str) -> Any:
    if name == "record_ops":  # not needed by those who record for studies
        from unpatch.observe.calls import record_ops

        return record_ops
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
