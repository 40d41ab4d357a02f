"""Loads torch_vnpu when torch is imported (the `torch.backends` entry point).

A module of its own outside the package, so that `import torch_vnpu` followed by torch's autoload never meets a package that
is half imported. An exception here would make `import torch` itself fail: it is told as a warning, once, and raised by an
explicit `import torch_vnpu`.
"""

import warnings


def autoload() -> None:
    """Import torch_vnpu; warn where that fails, and leave torch usable on CPU."""
    try:
        import torch_vnpu  # noqa: F401
    except Exception as error:
        warnings.warn(
            f"torch_vnpu was not loaded: {error} (import torch_vnpu raises this error; "
            "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading it)",
            RuntimeWarning,
            stacklevel=2,
        )
