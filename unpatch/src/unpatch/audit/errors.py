"""What can go wrong with an audit."""

from __future__ import annotations

from unpatch.errors import UnpatchError


class AuditError(UnpatchError):
    """The audit cannot be made: its target is nowhere, a document cannot be read, an id names nothing."""
