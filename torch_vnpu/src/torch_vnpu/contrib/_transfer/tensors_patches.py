"""Functions and methods written in C that read a device by themselves, where a text such as "cuda" gets to them unseen."""

from typing import Any

import torch
from torch.utils._device import _device_constructors

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager, translate
from torch_vnpu.contrib._transfer.redirect import ORIGINALS, redirected

_LIKE = ("empty_like", "full_like", "normal", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")

_factories = manager.declare(
    id="factories",
    group="tensors",
    title="Functions that make a tensor take device='cuda'",
    reason="They are C functions and read the text of a device themselves.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
# torch's own list of the functions that take a default device. It is made now, of the originals, and kept by torch.
_constructors = _device_constructors()
for _module in (torch, torch.fft, torch.nested):
    for _name, _value in sorted(vars(_module).items()):
        if callable(_value) and (_value in _constructors or (_module is torch and _name in _LIKE)):
            _factories.replace(f"{_module.__name__}:{_name}", redirected(_value))

_methods = manager.declare(
    id="tensor-methods",
    group="tensors",
    title="Tensor.to, Tensor.cuda and others take 'cuda'",
    reason="They are C functions and read the text of a device themselves; torch without CUDA refuses Tensor.cuda.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
for _name in _NEW:
    _methods.replace(f"torch.Tensor.{_name}", redirected(getattr(torch.Tensor, _name)))
for _name in ("to", "pin_memory", "is_pinned"):
    _methods.replace(f"torch.Tensor.{_name}", redirected(getattr(torch.Tensor, _name), position=1))
_methods.replace(
    "torch.Tensor.type", redirected(torch.Tensor.type, keyword="dtype", position=1, translation=translate.tensor_type)
)


def _cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **settings: Any) -> torch.Tensor:
    """Copy to an npu device, the current one by default; itself if it is there."""
    return self.npu(translate.device(device), non_blocking, **settings)


def _is_cuda(self: Any) -> bool:
    """Whether it is on npu."""
    return self.device.type == "npu"


for _name, _value in (("cuda", _cuda), ("is_cuda", property(_is_cuda))):
    ORIGINALS[id(_value)] = getattr(torch.Tensor, _name)
    _methods.replace(f"torch.Tensor.{_name}", _value)
_methods.replace("torch.UntypedStorage.is_cuda", property(_is_cuda))
