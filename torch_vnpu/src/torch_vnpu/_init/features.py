"""Stage 5: what the environment switches on."""

import os

_TRUE = ("1", "true", "yes", "on")


def enable_optional_features() -> None:
    """What these variables say:

    - TORCH_NPU_SANITIZER: the stream check, for a true value (1, true, yes, on), or a mode (raise, warn, collect); true means
      warn. TORCH_NPU_SANITIZER_SUPPRESSIONS names a file of suppressions.
    - ASCEND_OPP_DEBUG_PATH: the kernel check, with its debug kernels in that directory.
    """
    wanted = os.environ.get("TORCH_NPU_SANITIZER", "").strip().lower()
    if wanted in (*_TRUE, "raise", "warn", "collect"):
        from torch_vnpu import sanitizer

        suppress = os.environ.get("TORCH_NPU_SANITIZER_SUPPRESSIONS") or None
        sanitizer.enable_npu_sanitizer("warn" if wanted in _TRUE else wanted, suppress=suppress)  # type: ignore[arg-type]
    debug_path = os.environ.get("ASCEND_OPP_DEBUG_PATH", "").strip()
    if debug_path:
        from torch_vnpu.sanitizer import kernel_check

        kernel_check.enable_kernel_check(debug_path)
