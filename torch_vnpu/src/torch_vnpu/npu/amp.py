"""Automatic mixed precision on npu: torch's own, with the device filled in."""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("npu")` takes; torch asks for them."""
    return [torch.float16, torch.bfloat16]


class autocast(torch.amp.autocast):  # noqa: N801
    """`torch.autocast("npu", …)`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("npu", …)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("npu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """`torch.amp.custom_fwd(…, device_type="npu")`: the decorator of the forward of an autograd function."""
    return torch.amp.custom_fwd(fwd, device_type="npu", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.amp.custom_bwd(…, device_type="npu")`: the decorator of the backward of an autograd function."""
    return torch.amp.custom_bwd(bwd, device_type="npu")
