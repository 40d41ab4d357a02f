"""What `torch_vnpu` shows beside `npu`: names, and submodules, that are in `dir()` and load when they are used."""

from importlib import import_module
from typing import Any

from torch_vnpu import ops

#: Where each name is.
_LAZY = {
    "HiFloat8Tensor": "torch_vnpu._hifloat8",
    "erase_stream": "torch_vnpu.npu.streams",
    "matmul_checksum": "torch_vnpu.asd.checksum",
}
#: Submodules. Not in `__all__`: by `from torch_vnpu import *` a program would get a `compile` that is not Python's.
_SUBMODULES = ("_afd", "asd", "compat", "compile", "contrib", "distributed", "logs", "profiler", "sanitizer")
#: Dtypes of eight and four bits under the names that programs look for here; those that this torch has.
_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2")


def names() -> list[str]:
    """All names but those of the submodules."""
    import torch

    return sorted([*_LAZY, *ops.SCHEMAS, "hifloat8", *(name for name in _DTYPES if hasattr(torch, name))])


def shown() -> list[str]:
    """All names, those of the public submodules too."""
    return [*names(), *(name for name in _SUBMODULES if not name.startswith("_"))]


def attribute(name: str) -> Any:
    """The object of that name: a lazy one, an operator of `torch.ops.npu`, a dtype, or a submodule.

    Raises:
        AttributeError: there is none.
    """
    import torch

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in ops.SCHEMAS:
        return getattr(torch.ops.npu, name)
    if name == "hifloat8":
        return import_module("torch_vnpu._hifloat8").hifloat8
    if name in _DTYPES and hasattr(torch, name):
        return getattr(torch, name)
    if name in _SUBMODULES:
        return import_module(f"torch_vnpu.{name}")
    raise AttributeError(f"module 'torch_vnpu' has no attribute {name!r}")
