"""The environment variables that this package reads, what each is for, and the reader of those that have few values."""

import os
from collections.abc import Mapping
from typing import TypeVar

from torch_vnpu.errors import ErrCode, pta_error

T = TypeVar("T")

VARIABLES: dict[str, str] = {
    "ASCEND_HOME_PATH": "where CANN is installed; not set: the virtual runtime",
    "ASCEND_LAUNCH_BLOCKING": "1: every task runs before its call returns",
    "ASCEND_OPP_DEBUG_PATH": "a folder for debug kernels: launches block, and each operator's start is printed",
    "ASCEND_OPP_PATH": "where CANN's operators are installed",
    "ASCEND_RT_VISIBLE_DEVICES": "which devices there are for this process, such as 0,1",
    "NPU_ASD_ENABLE": "1: gradients are watched for silent data corruption",
    "TASK_QUEUE_ENABLE": "0: tasks run before their call returns; 1 (default): they are queued",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "torch's own; 0: `import torch` does not load this backend",
    "TORCH_NPU_COMPACT_ERROR_OUTPUT": "1: messages without error codes",
    "TORCH_NPU_LOGS": "what is logged, such as op_plugin,+dispatch",
    "TORCH_NPU_LOGS_FILTER": "which lines of the logs are kept (+text) or dropped (-text)",
    "TORCH_NPU_SANITIZER": "1, or raise, warn, collect: the sanitizer is on from the import on",
    "TORCH_NPU_SANITIZER_SUPPRESSIONS": "a file that names findings which are not reported",
    "TORCH_TRANSFER_TO_NPU": "1: programs for CUDA run on npu",
    "UNPATCH_DISABLE": "patches or groups of patches that are not applied, separated by commas",
    "VNPU_DEVICES": "how many devices the virtual machine has (2)",
    "VNPU_MEMORY": "how large the memory of each is (8G)",
}


def choice(name: str, choices: Mapping[str, T], default: T) -> T:
    """What the variable's value stands for, spaces around it and its case aside; `default` where it is not set.

    Raises:
        ValueError: it is none of the choices.
    """
    value = os.environ.get(name)
    if value is None:
        return default
    word = value.strip().lower()
    if word not in choices:
        *most, last = filter(None, choices)
        raise ValueError(
            f"{name} is {value!r}, but must be {', '.join(most)} or {last}: {VARIABLES[name]}"
            + pta_error(ErrCode.VALUE)
        )
    return choices[word]


def flag(name: str) -> bool:
    """Whether the variable is 1; it may be 0, or not set.

    Raises:
        ValueError: it is neither.
    """
    return choice(name, {"0": False, "1": True}, False)
