"""The current folder as a place to import from, as `python -m` has it."""

from __future__ import annotations

import os
import sys

from unpatch.errors import UnpatchError


def import_from_here() -> None:
    """Put the current folder before all others on `sys.path`. Raises UnpatchError where it is gone."""
    try:
        here = os.getcwd()
    except OSError as error:
        raise UnpatchError(f"The current folder is gone ({error.strerror}); change to another one.") from error
    if here not in sys.path:
        sys.path.insert(0, here)
