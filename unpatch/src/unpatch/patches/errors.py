"""What can go wrong with a patch, one exception each.

All derive from `PatchError`, so that a caller can catch the family. Arguments that are wrong in themselves (a blank id,
a target that is no path) are `ValueError` instead, raised where they are written.
"""

from __future__ import annotations


class PatchError(Exception):
    """Base of everything that declaring, applying or reverting a patch may raise."""


class TargetNotFoundError(PatchError):
    """What a patch names does not exist, or its module cannot be imported."""


class TargetExistsError(PatchError):
    """A patch adds what is already there."""


class WriteRefusedError(PatchError):
    """The target cannot be written: of an immutable type, of an instance, a metaclass objects, or it could not be undone."""


class UnknownPatchError(PatchError):
    """No patch (or group) of that name is declared."""


class AlreadyDeclaredError(PatchError):
    """The id is taken, by a patch or by a group of the same manager."""


class AlreadyAppliedError(PatchError):
    """The patch is applied, so that no write can be added to it."""


class NotAppliedError(PatchError):
    """The patch is not applied, so that there is nothing to revert and no original."""


class NoOriginalError(PatchError):
    """The replacement is applied, but not one single object lies beneath it."""


class NotRevertibleError(PatchError):
    """The patch cannot be undone: it is an opaque function, it wrote what lasts, or some of several were left."""


class ForeignWriteError(PatchError):
    """Somebody else has written the target since the patch was applied; undoing would destroy their write."""


class ApplyFailedError(PatchError):
    """An opaque patch function raised; its own exception is the cause."""


class PatchModuleError(PatchError):
    """A module that should declare patches could not be imported; the import's exception is the cause."""


class InvalidConditionError(PatchError):
    """The versions or the removal condition of a patch cannot be read, or its probe raised."""


class HalfOfPairError(PatchError):
    """Of two targets that belong together, one would be patched and the other not."""


class DriftedError(PatchError):
    """Applied strictly, and what the patch was written for is not what is there."""
