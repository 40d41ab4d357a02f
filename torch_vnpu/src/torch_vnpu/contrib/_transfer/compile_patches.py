"""Dynamo, which keeps tables of torch's functions and methods from the moment when it is loaded.

Nothing here may load it: the patches are applied when it is there.
"""

import functools
import sys
from typing import Any

import torch

from torch_vnpu.contrib._transfer import manager
from torch_vnpu.contrib._transfer.redirect import ORIGINALS
from unpatch.patches import Origin

_TABLES = "torch._dynamo.variables.torch"
#: Functions that Dynamo calls while it traces; the answers of the second kind may change and are guarded.
_FOLDED = ("torch.is_autocast_enabled", "torch.get_autocast_dtype", "torch.cuda.is_available")
_GUARDED = ("torch.cuda.current_device", "torch.cuda.is_initialized")

_dynamo = manager.declare(
    id="dynamo",
    group="compile",
    title="Dynamo traces what is redirected",
    reason="It knows by identity which functions it may call while it traces, and answers is_cuda itself.",
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    remove_when="never: it belongs to the patches above",
)


@_dynamo.replace("torch._dynamo.variables.tensor.TensorVariable.method_attr_is_cuda")
def method_attr_is_cuda(self: Any, translator: Any) -> Any:
    from torch._dynamo.variables.base import VariableTracker

    return None if self.device is None else VariableTracker.build(translator, self.device.type == "npu")


@functools.lru_cache(1)
def declare_tables() -> None:
    """Declare what can be made only once Dynamo is loaded and the other patches are in force."""
    from torch._dynamo.variables import torch as tables

    def named(names: tuple[str, ...]) -> dict[Any, None]:
        return {functools.reduce(getattr, name.split(".")[1:], torch): None for name in names}

    guarded = tables.constant_fold_functions_need_guards | named(_GUARDED)
    _dynamo.replace(f"{_TABLES}:constant_fold_functions_need_guards", guarded)
    _dynamo.replace(f"{_TABLES}:constant_fold_functions", tables.constant_fold_functions | named(_FOLDED) | guarded)


def restore_methods() -> None:
    """Give Dynamo the tensor methods that it would have if it had been loaded before they were redirected.

    It then puts them into the graph by name, where the redirection acts, instead of stopping at the original behind it. This is
    no patch: it is right whether CUDA is redirected or not.
    """
    from torch._dynamo.variables.tensor import all_tensor_attrs

    all_tensor_attrs.update(
        {name: ORIGINALS[id(value)] for name, value in all_tensor_attrs.items() if id(value) in ORIGINALS}
    )


def forget_names() -> None:
    """Drop Dynamo's tables of what stands at which name in torch, where it is loaded."""
    if "torch._dynamo" in sys.modules:
        from torch._dynamo import trace_rules

        trace_rules.clear_lru_cache()
