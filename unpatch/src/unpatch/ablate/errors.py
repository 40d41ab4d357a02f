"""The exceptions of this room. Each says in one sentence what was wrong, where, and what to do."""

from __future__ import annotations


class AblationError(Exception):
    """A study that could not be judged."""


class StoreMismatch(AblationError):
    """The finished trials of an earlier run belong to other sources, versions or options."""


class UnknownPatch(AblationError):
    """A patch was asked for that the study does not declare."""
