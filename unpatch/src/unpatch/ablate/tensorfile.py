"""Tensors of a finished trial, read as raw bytes, so that equal tensors are found equal without importing torch.

A safetensors file is a little-endian length, a JSON header with a byte range for each name, and the bytes. Only to
say *how far* two tensors are apart is torch imported, in `largest_difference`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from unpatch.ablate.errors import AblationError
from unpatch.model import TensorInfo


class StoredTensor(Struct, frozen=True):
    """The bytes of one tensor, contiguous, in the machine's byte order."""

    data: bytes


class _Entry(Struct):
    data_offsets: tuple[int, int]


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name.

    Raises:
        AblationError: the file is missing, or is no safetensors file.
    """
    try:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = msgspec.json.decode(content[8 : 8 + length], type=dict[str, Any])
        header.pop("__metadata__", None)
        entries = msgspec.convert(header, dict[str, _Entry])
    except (OSError, msgspec.MsgspecError) as error:
        raise AblationError(
            f"The tensors of a finished trial cannot be read from {path}: {error}. Run the study anew, without --resume."
        ) from error
    body = memoryview(content)[8 + length :]
    return {name: StoredTensor(bytes(body[slice(*entry.data_offsets)])) for name, entry in entries.items()}


def largest_difference(info: TensorInfo, left: StoredTensor, right: StoredTensor) -> str:
    """In words, how far two tensors of the same dtype and shape are apart, e.g. `3 of 8 elements differ, by at most …`."""
    try:
        import torch

        dtype = getattr(torch, info.dtype.removeprefix("torch."))
        wide = torch.complex128 if dtype.is_complex else torch.float64
        one, other = (torch.frombuffer(bytearray(side.data), dtype=dtype).to(wide) for side in (left, right))
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
    unmeasurable = int((differing & ~measurable).sum())
    return f"{words}, {unmeasurable} of them not finite" if unmeasurable else words
