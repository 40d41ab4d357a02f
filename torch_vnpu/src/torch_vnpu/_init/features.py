"""Stage 5: what the environment switches on."""

import builtins
import os
import sys
import warnings

from torch_vnpu.errors import ErrCode, pta_error

_TRUE = ("1", "true", "yes", "on")
_TRANSFER = "TORCH_TRANSFER_TO_NPU"
_QUEUE = "TASK_QUEUE_ENABLE"


def enable_optional_features() -> None:
    """Switch on, each where the environment asks for it:

    - the stream check, by TORCH_NPU_SANITIZER set to a true value (1, true, yes, on; that is warn) or a mode (raise, warn,
      collect), with the file of suppressions that TORCH_NPU_SANITIZER_SUPPRESSIONS names;
    - the kernel check, by ASCEND_OPP_DEBUG_PATH, the directory of its debug kernels;
    - the watch on gradients, by NPU_ASD_ENABLE=1;
    - tasks that run before the call returns, in an interactive session, unless TASK_QUEUE_ENABLE says otherwise;
    - CUDA's names redirected to npu, by TORCH_TRANSFER_TO_NPU=1.

    Raises:
        ValueError: TORCH_TRANSFER_TO_NPU or NPU_ASD_ENABLE is neither 0 nor 1.
    """
    transfer = _is_transfer_wanted()
    watch = _is_watch_wanted()
    _check_what_is_asked()
    if watch:
        from torch_vnpu import asd

        asd.enable()
    if _QUEUE not in os.environ and is_interactive():
        _run_tasks_at_once()
    if transfer:
        from torch_vnpu.contrib import _transfer

        _transfer.activate()


def _check_what_is_asked() -> None:
    wanted = os.environ.get("TORCH_NPU_SANITIZER", "").strip().lower()
    if wanted in (*_TRUE, "raise", "warn", "collect"):
        from torch_vnpu import sanitizer

        suppress = os.environ.get("TORCH_NPU_SANITIZER_SUPPRESSIONS") or None
        sanitizer.enable_npu_sanitizer("warn" if wanted in _TRUE else wanted, suppress=suppress)  # type: ignore[arg-type]
    debug_path = os.environ.get("ASCEND_OPP_DEBUG_PATH", "").strip()
    if debug_path:
        from torch_vnpu.sanitizer import kernel_check

        kernel_check.enable_kernel_check(debug_path)


def is_interactive() -> bool:
    """Whether somebody types the statements of this process: at Python's prompt, after `python -i`, or in IPython."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or hasattr(builtins, "__IPYTHON__")


def _run_tasks_at_once() -> None:
    # Child processes get it too: their errors are shown in the same session.
    os.environ[_QUEUE] = "0"
    warnings.warn(
        f"torch_vnpu: this is an interactive session, so {_QUEUE}=0 is set: each operator runs before its call returns, and "
        f"an error is raised by the line that made it. Set {_QUEUE}=1 beforehand to keep the queue",
        UserWarning,
        stacklevel=2,
    )


def _is_transfer_wanted() -> bool:
    value = os.environ.get(_TRANSFER, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{_TRANSFER} must be 0 or 1, not {value!r}: 1 makes programs written for CUDA run on npu")
    return value == "1"


def _is_watch_wanted() -> bool:
    value = os.environ.get("NPU_ASD_ENABLE", "").strip() or "0"
    if value not in ("0", "1"):
        raise ValueError(f"NPU_ASD_ENABLE is '{value}', but must be 0 or 1" + pta_error(ErrCode.VALUE))
    return value == "1"
