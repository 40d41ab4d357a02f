"""What a trial's child process watches, one module per channel: context managers and functions with plain results.

Nothing here compares or judges. torch is imported only where a channel needs it, so that studies of packages without
torch can use the others.
"""

from unpatch.errors import UnpatchError


class ObservationError(UnpatchError):
    """Something could not be observed; the message says what, and what to do."""
