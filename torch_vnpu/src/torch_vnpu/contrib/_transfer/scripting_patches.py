"""TorchScript, which knows torch's functions and classes by identity and reads the source of what it does not know.

It is shown the originals, and a text that names a CUDA device is compiled as npu's.
"""

from typing import Any

from torch.jit import _builtins, annotations, frontend

from torch_vnpu.contrib._transfer import BELONGS, ORIGIN, manager, translate
from torch_vnpu.contrib._transfer.devices_patches import STAND_INS
from torch_vnpu.contrib._transfer.redirect import ORIGINALS

_script = manager.declare(
    id="torchscript",
    group="scripting",
    title="torch.jit.script compiles what is redirected",
    reason="It would take a replaced function for one of the user's and try to compile it.",
    origin=ORIGIN,
    remove_when=BELONGS,
    risk="A text in scripted code that reads 'cuda' and names no device is compiled as 'npu'.",
)
_find_builtin = _builtins._find_builtin
_try_ann_to_type = annotations.try_ann_to_type
_build_str = frontend.ExprBuilder.build_Str


@_script.replace("torch.jit._builtins._find_builtin")
def find_builtin(fn: Any) -> str | None:
    return _find_builtin(ORIGINALS.get(id(fn), fn))


@_script.replace("torch.jit.annotations.try_ann_to_type")
def try_ann_to_type(ann: Any, loc: Any, rcb: Any = None) -> Any:
    # torch compares with the class that stands there now; a function may have been written with the real one.
    if isinstance(ann, type):
        ann = STAND_INS.get(ann, ann)
    return _try_ann_to_type(ann, loc, rcb)


def build_str(ctx: Any, expr: Any) -> Any:
    text = translate.device(expr.value)
    if text == expr.value:
        return _build_str(ctx, expr)
    end = expr.col_offset + len(expr.value) + 1
    return frontend.StringLiteral(ctx.make_range(expr.lineno, expr.col_offset, end), text)


_script.replace("torch.jit.frontend.ExprBuilder.build_Str", staticmethod(build_str))
