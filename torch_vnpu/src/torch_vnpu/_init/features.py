"""Stage 5: what the environment switches on."""

import os

_TRUE = ("1", "true", "yes", "on")


def enable_optional_features() -> None:
    """The sanitizer, where TORCH_NPU_SANITIZER is set to a true value (1, true, yes, on)."""
    if os.environ.get("TORCH_NPU_SANITIZER", "").strip().lower() in _TRUE:
        from torch_vnpu import sanitizer

        sanitizer.enable_npu_sanitizer()
