"""Stage 5: what the environment switches on."""

import os

from torch_vnpu.errors import ErrCode, pta_error

_TRUE = ("1", "true", "yes", "on")


def enable_optional_features() -> None:
    """The sanitizer, where TORCH_NPU_SANITIZER is set to a true value (1, true, yes, on), and the watch on gradients, where
    NPU_ASD_ENABLE is 1.

    Raises:
        ValueError: NPU_ASD_ENABLE is neither 0 nor 1.
    """
    if os.environ.get("TORCH_NPU_SANITIZER", "").strip().lower() in _TRUE:
        from torch_vnpu import sanitizer

        sanitizer.enable_npu_sanitizer()
    watch = os.environ.get("NPU_ASD_ENABLE", "").strip() or "0"
    if watch not in ("0", "1"):
        raise ValueError(f"NPU_ASD_ENABLE is '{watch}', but must be 0 or 1" + pta_error(ErrCode.VALUE))
    if watch == "1":
        from torch_vnpu import asd

        asd.enable()
