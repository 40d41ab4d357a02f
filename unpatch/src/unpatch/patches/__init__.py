"""Declare monkey patches, apply them in a fixed order, revert them in any.

Meant to be imported while the patched library itself is being imported: the standard library only, and quickly;
packaging is imported when a patch states versions. `unpatch.patches.describe`, which makes records of patches, and
`unpatch.patches.check`, which finds out what has drifted, are therefore imported apart.
"""

from __future__ import annotations

from unpatch.patches.declare import Fingerprint, Origin, Patch, RemoveWhen, Write
from unpatch.patches.errors import (
    AlreadyAppliedError,
    AlreadyDeclaredError,
    ApplyFailedError,
    DriftedError,
    ForeignWriteError,
    HalfOfPairError,
    InvalidConditionError,
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
from unpatch.patches.manager import Pair, PatchManager, State, managers
from unpatch.patches.stack import original

__all__ = [
    "AlreadyAppliedError",
    "AlreadyDeclaredError",
    "ApplyFailedError",
    "DriftedError",
    "Fingerprint",
    "ForeignWriteError",
    "HalfOfPairError",
    "InvalidConditionError",
    "NoOriginalError",
    "NotAppliedError",
    "NotRevertibleError",
    "Origin",
    "Pair",
    "Patch",
    "PatchError",
    "PatchManager",
    "PatchModuleError",
    "RemoveWhen",
    "State",
    "TargetExistsError",
    "TargetNotFoundError",
    "UnknownPatchError",
    "Write",
    "WriteRefusedError",
    "managers",
    "original",
]
