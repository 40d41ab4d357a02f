"""Declare monkey patches, apply them in a fixed order, revert them in any.

Meant to be imported while the patched library itself is being imported: the standard library only, and quickly.
`unpatch.patches.describe`, which makes records of patches, is therefore imported apart.
"""

from __future__ import annotations

from unpatch.patches.declare import Origin, Patch, Write
from unpatch.patches.errors import (
    AlreadyAppliedError,
    AlreadyDeclaredError,
    ApplyFailedError,
    ForeignWriteError,
    NoOriginalError,
    NotAppliedError,
    NotRevertibleError,
    PatchError,
    PatchModuleError,
    TargetExistsError,
    TargetNotFoundError,
    UnknownPatchError,
    WriteRefusedError,
)
from unpatch.patches.manager import PatchManager
from unpatch.patches.stack import original

__all__ = [
    "AlreadyAppliedError",
    "AlreadyDeclaredError",
    "ApplyFailedError",
    "ForeignWriteError",
    "NoOriginalError",
    "NotAppliedError",
    "NotRevertibleError",
    "Origin",
    "Patch",
    "PatchError",
    "PatchManager",
    "PatchModuleError",
    "TargetExistsError",
    "TargetNotFoundError",
    "UnknownPatchError",
    "Write",
    "WriteRefusedError",
    "original",
]
