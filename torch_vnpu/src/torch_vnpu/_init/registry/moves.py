"""A module that moves between CPU and npu keeps its parameters: the same objects, with other contents, as between CPU and CUDA.

An optimizer may so be made before the move, and weights that are tied stay tied. torch asks an operator whether a tensor may
take over the contents of another, and that knows PyTorch's own devices only.
"""

import torch

_OURS = frozenset(("cpu", "npu"))
_library: torch.library.Library | None = None


def register_moves() -> None:
    """Answer the operator for tensors of which one is on npu. A parameter's gradient moves with it."""
    global _library
    _library = torch.library.Library("aten", "IMPL")  # unregisters what it holds when it goes
    _library.impl("_has_compatible_shallow_copy_type", _is_compatible, "PrivateUse1")


def _is_compatible(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return {tensor.device.type, other.device.type} <= _OURS and tensor.layout == other.layout == torch.strided
