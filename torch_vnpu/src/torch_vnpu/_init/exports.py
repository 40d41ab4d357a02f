"""What `torch_vnpu` shows beside its submodules: names that are in `__all__` and `dir()` and load when they are used."""

from importlib import import_module
from typing import Any

from torch_vnpu import ops

#: Where each name is.
_LAZY = {
    "HiFloat8Tensor": "torch_vnpu._hifloat8",
    "erase_stream": "torch_vnpu.npu.streams",
    "matmul_checksum": "torch_vnpu.asd.checksum",
}
#: Dtypes of eight and four bits under the names that programs look for here; those that this torch has.
_DTYPES = ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2")


def names() -> list[str]:
    """All of them."""
    import torch

    return sorted([*_LAZY, *ops.SCHEMAS, "hifloat8", *(name for name in _DTYPES if hasattr(torch, name))])


def attribute(name: str) -> Any:
    """The object of that name: a lazy one, an operator of `torch.ops.npu`, or a dtype.

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
    raise AttributeError(f"module 'torch_vnpu' has no attribute {name!r}")
