"""Automatic mixed precision on npu: torch's own, with the device filled in."""

from typing import Any

import torch


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("npu")` takes; torch asks for them."""
    return [torch.float16, torch.bfloat16]


class autocast(torch.amp.autocast):  # noqa: N801
    """`torch.autocast("npu", …)`."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("npu", …)`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("npu", **settings)
