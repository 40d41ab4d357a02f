"""The operators of `torch.ops.npu`, under the names that programs for Ascend devices call.

Each is made of PyTorch's own operators, so it has a gradient, works on every device and traces; nothing is fused.

The schemas are registered at import; `torch_vnpu.<name>` is the same operator.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

__all__ = ["SCHEMAS", "register_operators"]

#: Schema, and the module that has the function of the operator's name. Those of _afd load when they are called.
SCHEMAS = {
    "npu_dtype_cast": ("(Tensor self, ScalarType dtype) -> Tensor", "torch_vnpu.ops"),
    "npu_fast_gelu": ("(Tensor self) -> Tensor", "torch_vnpu.ops"),
    "npu_rms_norm": ("(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", "torch_vnpu.ops"),
    "npu_rotary_mul": ("(Tensor self, Tensor r1, Tensor r2, str rotary_mode='half') -> Tensor", "torch_vnpu.ops"),
    "npu_swiglu": ("(Tensor self, int dim=-1) -> Tensor", "torch_vnpu.ops"),
    "attention_worker_scheduler": ("(Tensor(a!) schedule_context) -> ()", "torch_vnpu._afd"),
    "ffn_worker_scheduler": (
        "(Tensor(a!) schedule_context, *, int sync_group_size=1, int execute_mode=0) -> ()",
        "torch_vnpu._afd",
    ),
}

_library: torch.library.Library | None = None  # what it registered goes when it is collected


def register_operators() -> None:
    """Register all of `SCHEMAS`. Once per process."""
    global _library
    _library = torch.library.Library("npu", "FRAGMENT")
    for name, (schema, module) in SCHEMAS.items():
        _library.define(name + schema)
        key = "CompositeImplicitAutograd" if module == __name__ else "CompositeExplicitAutograd"
        _library.impl(name, _caller(module, name), key)


def _caller(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def npu_dtype_cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    """`self` in another dtype."""
    return self.to(dtype)


def npu_fast_gelu(self: Tensor) -> Tensor:
    """The approximation x · sigmoid(1.702 x) of GELU."""
    return self * torch.sigmoid(1.702 * self)


def npu_rms_norm(self: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """`self` over the root of the mean of its squares, times `gamma`; and the reciprocal of that root, in float32.

    The mean is over the last dimensions, those that `gamma` has. It is computed in float32 (float64 for float64).
    """
    wide = self if self.dtype == torch.float64 else self.float()
    dims = list(range(-gamma.dim(), 0))
    reciprocal = torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + epsilon)
    return (wide * reciprocal * gamma).to(self.dtype), reciprocal.float()


def npu_rotary_mul(self: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """Rotary position embedding: `self · r1 + rotated(self) · r2`, where `r1` holds cosines and `r2` sines.

    `half` pairs the first half of the last dimension with the second, `interleave` each even element with the next odd one.

    Raises:
        ValueError: another mode, or a last dimension of odd size.
    """
    if rotary_mode not in ("half", "interleave") or self.size(-1) % 2:
        raise ValueError(
            f"npu_rotary_mul takes the rotary_mode 'half' or 'interleave' and a last dimension of even size, "
            f"not '{rotary_mode}' and {self.size(-1)}"
        )
    if rotary_mode == "half":
        first, second = self.chunk(2, -1)
        rotated = torch.cat([-second, first], -1)
    else:
        rotated = torch.stack([-self[..., 1::2], self[..., ::2]], -1).flatten(-2)
    return self * r1 + rotated * r2


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """SwiGLU: the first half of `dim` through SiLU, times the second half."""
    first, second = self.chunk(2, dim)
    return torch.nn.functional.silu(first) * second
