"""Global state of torch that lies outside of Python: defaults, modes left on, and the dispatcher's kernels.

Read only where torch is already imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

#: The rest of a line of the dispatcher's dump: `CPU: registered at …`.
_KERNEL = re.compile(r"^(\w+(?:\[alias\])?): (.+?)(?: :: .*)?$", re.MULTILINE)


def states() -> dict[str, Callable[[], Any]]:
    """Names of global states of torch, with functions that read them."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    native = torch._C
    return {
        "torch.get_default_dtype()": lambda: str(torch.get_default_dtype()),
        "torch.get_default_device()": lambda: str(torch.get_default_device()),
        "torch.is_grad_enabled()": torch.is_grad_enabled,
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
        "torch.is_anomaly_enabled()": torch.is_anomaly_enabled,
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
        "torch dispatch modes left on": native._len_torch_dispatch_stack,
        "torch function modes left on": native._len_torch_function_stack,
    }


def kernels() -> dict[tuple[str, str], str]:
    """(operator, dispatch key) -> where its kernel was registered, of all operators; empty without torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    native = torch._C
    return {
        (name, key): where
        for name in native._dispatch_get_all_op_names()
        for key, where in _KERNEL.findall(native._dispatch_dump(name))
    }
