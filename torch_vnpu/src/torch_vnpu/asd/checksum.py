"""A matrix product verified by its row sums (algorithm-based fault tolerance; Huang and Abraham, 1984)."""

import torch
from torch import Tensor

__all__ = ["matmul_checksum"]


def matmul_checksum(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Whether `c` is not the product of `a` and `b`: a bool tensor without dimensions, on their device; True says corrupted.

    The sum of each row of `c` is compared with the product of `a` and the row sums of `b`, in float64. The difference that
    rounding can make is bounded by (k + 2) u Σ|a||b| + ε/2 Σ|c| for sums in float32 (float64 for float64) that are rounded to
    the dtype of `c`: a sound product is never reported. A change of one element is found where it is greater than the bound
    of its row. Flips of the sign, the exponent and the upper bits of the mantissa are; those of the lowest bits are not.
    Rows in which `a` or `b` is not finite are not checked.

    Args:
        a: [..., m, k]
        b: [..., k, n], of the same dtype
        c: [..., m, n]; leading dimensions broadcast as those of `torch.matmul`

    Raises:
        TypeError: a dtype is not floating point.
        ValueError: a shape does not fit.
    """
    for tensor in (a, b, c):
        if not tensor.is_floating_point():
            raise TypeError(f"matmul_checksum takes floating point tensors, not {tensor.dtype}")
    if min(a.dim(), b.dim(), c.dim()) < 2 or a.shape[-1] != b.shape[-2] or c.shape != _product_shape(a, b):
        raise ValueError(
            f"matmul_checksum takes matrices a, b and c = a @ b, but got shapes {[list(tensor.shape) for tensor in (a, b, c)]}"
        )
    with torch.no_grad():
        wide_a, wide_b, wide_c = a.double(), b.double(), c.double()
        expected = wide_a @ wide_b.sum(-1, keepdim=True)
        magnitude = wide_a.abs() @ wide_b.abs().sum(-1, keepdim=True)
        total = wide_c.sum(-1, keepdim=True)
        unit = torch.finfo(torch.float64 if c.dtype == torch.float64 else torch.float32).eps
        format = torch.finfo(c.dtype)
        terms, columns = a.shape[-1], b.shape[-1]
        limit = (terms + 2) * unit * magnitude + format.eps / 2 * wide_c.abs().sum(-1, keepdim=True)
        # Denormal results lose a fixed amount each, and the sums here lose a little of their own.
        limit = (
            limit + columns * format.tiny * format.eps + (terms + columns) * torch.finfo(torch.float64).eps * magnitude
        )
        overflown = ~total.isfinite() & (magnitude < format.max)
        differs = (total - expected).abs() > limit
        return ((differs | overflown) & magnitude.isfinite()).any()


def _product_shape(a: Tensor, b: Tensor) -> torch.Size | None:
    try:
        leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        return None
    return torch.Size([*leading, a.shape[-2], b.shape[-1]])
