"""`torch.npu_…`: names that operators had before they were in `torch.ops.npu`. A call says which name to take."""

from collections.abc import Callable
from typing import Any, NoReturn

from torch_vnpu._init.patches import manager
from torch_vnpu.errors import ErrCode, ops_error
from torch_vnpu.ops import SCHEMAS
from unpatch.patches import Origin

_names = manager.declare(
    id="deprecated-operators",
    group="api",
    title="torch.npu_… says what to call instead",
    reason=(
        "Programs written for old releases call torch.npu_swiglu and the like; an AttributeError would not tell them the new "
        "name."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when="torch_vnpu>=1.0",
)


def _stub(name: str) -> Callable[..., Any]:
    def stub(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torch.{name} is deprecated and does nothing: call torch_vnpu.{name} or torch.ops.npu.{name}"
            + ops_error(ErrCode.NOT_SUPPORT)
        )

    stub.__name__ = stub.__qualname__ = name
    return stub


for _name in SCHEMAS:
    if _name.startswith("npu_"):
        _names.add(f"torch.{_name}", _stub(_name))
