"""Mixed precision for the device type 'cuda' is mixed precision for npu. torch.cuda.amp rests on the same few functions."""

from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager, translate
from torch_vnpu.contrib._transfer.redirect import redirected

_amp = manager.declare(
    id="mixed-precision",
    group="amp",
    title="autocast, GradScaler and custom_fwd for 'cuda'",
    reason="The device type is kept and compared as a text, and CUDA's is switched off with a warning where there is no CUDA.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
# Without an argument, torch.is_autocast_enabled() asks about CUDA.
_amp.replace(
    "torch.is_autocast_enabled", redirected(torch.is_autocast_enabled, "device_type", position=0, default="npu")
)
for _name in ("get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
    _amp.replace(f"torch.{_name}", redirected(getattr(torch, _name), "device_type", position=0))
_amp.replace("torch._C._is_autocast_available", redirected(torch._C._is_autocast_available, "device_type", position=0))
# What custom_fwd casts is what is on the device.
_amp.replace("torch.amp.autocast_mode._cast", redirected(autocast_mode._cast, "device_type", position=1))

_autocast_init = autocast_mode.autocast.__init__
_scaler_init = grad_scaler.GradScaler.__init__


# Dynamo reads the signature.
@_amp.replace("torch.amp.autocast_mode.autocast.__init__")
def autocast_init(
    self: Any,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    _autocast_init(self, translate.device(device_type), dtype, enabled, cache_enabled)


@_amp.replace("torch.amp.grad_scaler.GradScaler.__init__")
def scaler_init(self: Any, device: str = "cuda", *arguments: Any, **settings: Any) -> None:
    _scaler_init(self, translate.device(device), *arguments, **settings)
