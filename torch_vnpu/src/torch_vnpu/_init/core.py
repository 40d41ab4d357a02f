"""Stage 2: the native library and its kernels. From here on the device type belongs to this backend."""

import importlib
import importlib.util

_NATIVE = ("torch_vnpu._C",)


def load_core_modules() -> None:
    """Load the native children and register the kernels.

    Raises:
        ImportError: native modules are missing (all are named) or cannot be loaded.
    """
    missing = [name for name in _NATIVE if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f"torch_vnpu is not complete: {', '.join(missing)} is missing; build and install it again "
            "(make setup in a checkout)"
        )
    for name in _NATIVE:
        importlib.import_module(name)
    from torch_vnpu import _C

    _C.register_kernels()
