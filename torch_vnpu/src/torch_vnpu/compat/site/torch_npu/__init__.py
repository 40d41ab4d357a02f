"""torch_vnpu under the name torch_npu; see torch_vnpu.compat."""

from importlib.metadata import version
from typing import Any

import torch_vnpu
from torch_vnpu import npu as npu
from torch_vnpu.compat import alias
from torch_vnpu.compat.operators import npu_fusion_attention as npu_fusion_attention

__version__ = version("torch_npu")

alias.offer(__name__, "torch_vnpu")


def __getattr__(name: str) -> Any:
    return getattr(torch_vnpu, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(torch_vnpu)})
