"""The channel *tensors*: what a workload handed over, as a description and as raw bytes in one safetensors file.

The file holds bytes, not tensors: a parent can compare them bit by bit without torch, and nothing is ever unpickled.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unpatch.files import write_whole
from unpatch.model import TensorInfo
from unpatch.observe import ObservationError
from unpatch.observe.text import qualified_name

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

#: The one entry name that the file format keeps for itself.
_RESERVED = "__metadata__"


def tensor_info(kind: Literal["output", "gradient", "state"], tensor: Tensor, name: str = "tensor") -> TensorInfo:
    """Describe `tensor`. Raises ObservationError, naming it, for a tensor that raw_bytes refuses."""
    import torch

    base, finite = torch._C.TensorBase, True
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        values = _on_cpu(tensor, name)
        # float8 types know neither comparison nor isfinite; the conversion keeps what is not finite.
        comparable = base.float(values) if values.dtype.itemsize == 1 else values
        finite = bool(base.item(base.all(torch.ops.aten.isfinite.default(comparable))))
    else:
        _require_bytes(tensor, name)
    return TensorInfo(
        kind=kind,
        dtype=str(tensor.dtype),
        shape=tuple(tensor.shape),
        device=str(tensor.device),
        finite=finite,
        strides=tuple(base.stride(tensor)),
        requires_grad=tensor.requires_grad,
        type="torch.Tensor" if type(tensor) is torch.Tensor else qualified_name(type(tensor)),
    )


def copied(tensor: Tensor, name: str = "tensor") -> Tensor:
    """A copy in CPU memory that shares nothing with `tensor`. Raises ObservationError like raw_bytes."""
    import torch

    with torch._C.DisableTorchFunction():
        return torch._C.TensorBase.clone(_on_cpu(tensor, name))


def raw_bytes(tensor: Tensor, name: str = "tensor") -> bytes:
    """The elements of `tensor` in row-major order, as they lie in memory on this machine.

    Raises ObservationError, naming the tensor, where it has no plain elements (sparse, quantised, nested, meta, a
    subclass that wraps other tensors).
    """
    elements = _elements(tensor, name)
    return ctypes.string_at(elements.data_ptr(), elements.nbytes) if elements.nbytes else b""


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the raw bytes of `tensors` to the safetensors file `path`, whole or not at all.

    Raises ObservationError for a tensor without plain elements, or where safetensors is not installed; WriteError where
    the file cannot be written.
    """
    if _RESERVED in tensors:
        raise ObservationError(f"tensor {_RESERVED!r}: the file format keeps this name for itself; choose another.")
    serialise = _safetensors("safetensors.torch").save
    write_whole(path, serialise({name: _elements(tensor, name) for name, tensor in tensors.items()}))


def load_tensors(path: Path) -> dict[str, bytes]:
    """The entries of a file that save_tensors wrote. Raises ObservationError if it cannot be read; needs no torch."""
    safetensors = _safetensors("safetensors")
    try:
        entries = safetensors.deserialize(path.read_bytes())
    except (OSError, safetensors.SafetensorError) as error:
        raise ObservationError(f"{path.name}: tensors cannot be read: {error}.") from error
    return {name: bytes(entry["data"]) for name, entry in entries}


def _on_cpu(tensor: Tensor, name: str) -> Tensor:
    """Contiguous in CPU memory; what was there already is not copied.

    By the methods of the base class and past `__torch_function__`: a patch of `torch.Tensor` would change, in both arms
    that have it, what the workload computed.
    """
    import torch

    _require_bytes(tensor, name)
    base = torch._C.TensorBase
    with torch._C.DisableTorchFunction():
        values = base.resolve_neg(base.resolve_conj(base.detach(tensor)))
        return base.contiguous(base.to(values, "cpu"))


def _elements(tensor: Tensor, name: str) -> Tensor:
    """The raw bytes as a uint8 tensor on the CPU."""
    import torch

    values = _on_cpu(tensor, name)
    # A contiguous tensor of one element may still have any stride, which view() refuses.
    base = torch._C.TensorBase
    return base.view(base.as_strided(values, (values.numel(),), (1,)), torch.uint8)


def _require_bytes(tensor: Tensor, name: str) -> None:
    import torch
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    what = ""
    if tensor.is_quantized:
        what = "quantised"
    elif tensor.is_nested or tensor.layout is not torch.strided:
        what = "nested" if tensor.is_nested else f"of layout {tensor.layout}"
    elif tensor.is_meta:
        what = "on the device meta"
    elif is_traceable_wrapper_subclass(tensor):
        what = f"a wrapper of other tensors ({type(tensor).__name__})"
    if what:
        raise ObservationError(
            f"tensor {name!r} is {what} and has no plain elements to compare; hand over a dense tensor made from it."
        )


def _safetensors(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ObservationError(
            f"Tensors are kept by safetensors ({error}): install the extra `unpatch[torch]`."
        ) from error
