"""Stage 5: what the environment switches on."""

import builtins
import os
import sys
import warnings
from typing import Any

from torch_vnpu._init import variables
from torch_vnpu.errors import ErrCode, pta_error

#: Values of TORCH_NPU_SANITIZER.
_MODES: dict[str, Any] = {
    **dict.fromkeys(("", "0", "false", "no", "off")),
    **dict.fromkeys(("1", "true", "yes", "on"), "warn"),
    **{mode: mode for mode in ("raise", "warn", "collect")},
}
#: Where a process that `vnpu run --sanitize` has started, by itself or others, reports; private.
REPORTS = "_VNPU_SANITIZER_REPORTS"
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
        ValueError: a variable has a value that it does not know, or names a file or folder that cannot be used.
    """
    transfer = variables.flag("TORCH_TRANSFER_TO_NPU")
    watch = variables.flag("NPU_ASD_ENABLE")
    variables.flag("TORCH_NPU_COMPACT_ERROR_OUTPUT")  # which each error reads, where it is too late to complain
    _check_streams()
    _check_kernels()
    if watch:
        from torch_vnpu import asd

        asd.enable()
    if _QUEUE not in os.environ and is_interactive():
        _run_tasks_at_once()
    if transfer:
        from torch_vnpu.contrib import _transfer

        _transfer.activate()


def _check_streams() -> None:
    mode = variables.choice("TORCH_NPU_SANITIZER", _MODES, None)
    if folder := os.environ.get(REPORTS):
        from torch_vnpu.sanitizer import children

        if children.join(folder, mode or "collect"):
            return
    if mode is None:
        return
    from torch_vnpu import sanitizer

    file = os.environ.get("TORCH_NPU_SANITIZER_SUPPRESSIONS") or None
    try:
        sanitizer.enable_npu_sanitizer(mode, suppress=file)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"TORCH_NPU_SANITIZER_SUPPRESSIONS is {file!r}, which cannot be read: {error}" + pta_error(ErrCode.VALUE)
        ) from error


def _check_kernels() -> None:
    path = os.environ.get("ASCEND_OPP_DEBUG_PATH", "").strip()
    if not path:
        return
    from torch_vnpu.sanitizer import kernel_check

    try:
        kernel_check.enable_kernel_check(path)
    except OSError as error:
        raise ValueError(
            f"ASCEND_OPP_DEBUG_PATH is {path!r}, where the folder of the kernel check cannot be made: {error.strerror}"
            + pta_error(ErrCode.VALUE)
        ) from error


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
