"""The exceptions of this room. Each says in one sentence what was wrong, where, and what to do."""

from __future__ import annotations

from unpatch.errors import UnpatchError


class AblationError(UnpatchError):
    """A study could not be judged."""

    exit_code = 1


class StoreMismatchError(UnpatchError):
    """The output folder holds something that this run must neither use nor overwrite."""


class UnknownPatchError(UnpatchError):
    """A patch was asked for that the study does not declare."""
