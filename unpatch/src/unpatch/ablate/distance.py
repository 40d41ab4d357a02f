"""How far two tensors are apart, in words.

Asked only when their bytes differ, since nothing else needs torch in the parent process.
"""

from __future__ import annotations

from unpatch.model import TensorInfo


def largest_difference(info: TensorInfo, left: bytes, right: bytes) -> str:
    """Compare two tensors of the same dtype and shape, given as contiguous bytes.

    Returns e.g. `3 of 8 elements differ, by at most 1.2e-07 (relative 3.1e-06)`. Two NaN of other bits count as equal
    elements here, and so do 0 and -0.
    """
    try:
        import torch

        dtype = getattr(torch, info.dtype.removeprefix("torch."))
        wide = torch.complex128 if dtype.is_complex else torch.float64
        one, other = (torch.frombuffer(bytearray(side), dtype=dtype).to(wide) for side in (left, right))
    except (ImportError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        # torch is missing here, or has no plain element type for these bytes: the bytes still differ.
        return f"the bytes differ (by how much is unknown: {error})"
    differing = (one != other) & ~(one.isnan() & other.isnan())
    words = f"{int(differing.sum())} of {one.numel()} elements differ"
    measurable = differing & one.isfinite() & other.isfinite()
    if measurable.any():
        one, other = one[measurable], other[measurable]
        distance = (one - other).abs()
        relative = distance / one.abs().maximum(other.abs())
        words += f", by at most {float(distance.max()):.3g} (relative {float(relative.max()):.3g})"
    elif not differing.any():
        words += " in value, only in the bits of NaN or of zero"
    unmeasurable = int((differing & ~measurable).sum())
    return f"{words}, {unmeasurable} of them not finite" if unmeasurable else words
