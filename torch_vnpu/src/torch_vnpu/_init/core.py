"""Stage 2: the native library, its kernels, the operators and the logs. From here on the device type is this backend's."""

import importlib
import importlib.util
import os

_NATIVE = ("torch_vnpu._C",)


def load_core_modules() -> None:
    """Load the native children, register the kernels and operators, and start the logs that TORCH_NPU_LOGS names.

    Raises:
        ImportError: native modules are missing (all are named) or cannot be loaded.
        ValueError: TORCH_NPU_LOGS or TORCH_NPU_LOGS_FILTER cannot be read.
    """
    missing = [name for name in _NATIVE if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"torch_vnpu is not complete: {', '.join(missing)} is missing; build and install it again "
            "(make setup in a checkout)"
        )
    for name in _NATIVE:
        importlib.import_module(name)
    from torch_vnpu import _C, ops

    _C.register_kernels()
    ops.register_operators()
    if wanted := os.environ.get("TORCH_NPU_LOGS"):
        from torch_vnpu import logs

        logs.start(logs.parse(wanted, os.environ.get("TORCH_NPU_LOGS_FILTER", "")))
