"""HiFloat8: eight bits that hold more exponent or more mantissa, as the value needs (Luo et al., arXiv 2409.16626).

After the sign stands a prefix, of two to four bits, which says how many bits the exponent has; the rest is the mantissa:

| prefix | bits of exponent | of mantissa | magnitudes |
| --- | --- | --- | --- |
| 11 | 4 | 1 | 2^±8 … 2^±15 |
| 10 | 3 | 2 | 2^±4 … 2^±7 |
| 01 | 2 | 3 | 2^±2, 2^±3 |
| 001 | 1 | 3 | 2^±1 |
| 0001 | 0 | 3 | 1 |
| 0000 | – | 3 (m) | 2^(m-23), from 2^-22 to 2^-16; m = 0 is zero |

An exponent is its sign and its magnitude without the leading one. 0x80 is NaN, 0x6F and 0xEF are the infinities; the
greatest finite value is 2^15. Values are rounded to the nearest, ties away from zero, and 1.25 · 2^15 and what is above become
infinite. No kernel computes in this format: `HiFloat8Tensor` stores, and computes in float32.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

__all__ = ["HiFloat8Tensor", "decode", "encode", "hifloat8"]

_NAN, _INFINITY = 0x80, 0x6F
#: Prefix, its length in bits, bits of exponent.
_PREFIXES = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))


class _HiFloat8:
    """The format as a name, since torch has no dtype for it."""

    def __repr__(self) -> str:
        return "torch_vnpu.hifloat8"


hifloat8 = _HiFloat8()


def _magnitude(code: int) -> float:
    """What the seven bits below the sign mean."""
    if code == _INFINITY:
        return math.inf
    for prefix, length, exponent_bits in _PREFIXES:
        if code >> (7 - length) == prefix:
            mantissa_bits = 7 - length - exponent_bits
            mantissa = 1 + (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
            field = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
            if not exponent_bits:
                return mantissa
            low = exponent_bits - 1
            size = (1 << low) | (field & ((1 << low) - 1))
            return math.ldexp(mantissa, -size if field >> low else size)
    return math.ldexp(1.0, code - 23) if code else 0.0


@cache
def _values() -> Tensor:
    """float32 [256]: what each byte means."""
    positive = [_magnitude(code) for code in range(128)]
    return torch.tensor(positive + [math.nan] + [-value for value in positive[1:]])


@cache
def _steps() -> tuple[Tensor, Tensor]:
    """The finite magnitudes' codes in the order of their values, and the values midway between them (the last: to infinity)."""
    values = _values()[:128].double()
    codes = values.argsort()
    ordered = values[codes]
    ordered[-1] = 1.5 * 2.0**15  # what would stand where infinity does
    return codes, (ordered[:-1] + ordered[1:]) / 2


def encode(tensor: Tensor) -> Tensor:
    """uint8, of the same shape and device: `tensor` in HiFloat8."""
    codes, midway = (part.to(tensor.device) for part in _steps())
    wide = tensor.detach().double()
    magnitude = codes[torch.bucketize(wide.abs(), midway, right=True)]
    negative = torch.signbit(wide) & (magnitude != 0)
    return torch.where(wide.isnan(), _NAN, magnitude + 128 * negative).to(torch.uint8)


def decode(codes: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """The values of bytes, exact in float32."""
    return _values().to(codes.device)[codes.long()].to(dtype)


class HiFloat8Tensor(Tensor):
    """A tensor that is stored in HiFloat8, one byte an element. Every operator sees its values, in `dtype`.

    It has no gradient, and what is written into it in place is refused.
    """

    _codes: Tensor

    @staticmethod
    def __new__(cls, codes: Tensor, dtype: torch.dtype = torch.float32) -> "HiFloat8Tensor":
        made = Tensor._make_wrapper_subclass(cls, codes.shape, dtype=dtype, device=codes.device)
        made._codes = codes
        return made

    def __init__(self, codes: Tensor, dtype: torch.dtype = torch.float32) -> None: ...

    @classmethod
    def to_hifloat8(cls, tensor: Tensor) -> "HiFloat8Tensor":
        """`tensor` in HiFloat8; what computes with it gets its values in the dtype of `tensor`."""
        return cls(encode(tensor), tensor.dtype)

    def from_hifloat8(self, dtype: torch.dtype | None = None) -> Tensor:
        """An ordinary tensor of the values."""
        return decode(self._codes, dtype or self.dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"HiFloat8Tensor({self.from_hifloat8()!r})"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["_codes"], {"dtype": self.dtype}

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: dict[str, Any], size: Any, stride: Any
    ) -> "HiFloat8Tensor":
        return HiFloat8Tensor(inner["_codes"], context["dtype"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default:
            return cls(args[0]._codes, args[0].dtype)
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if isinstance(value, cls) and argument.alias_info is not None and argument.alias_info.is_write:
                raise NotImplementedError(
                    f"{func} writes into a HiFloat8Tensor, which cannot be changed: compute a new tensor and call to_hifloat8"
                )
        args, kwargs = torch.utils._pytree.tree_map_only(cls, cls.from_hifloat8, (args, kwargs))
        return func(*args, **kwargs)
