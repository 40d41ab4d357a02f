"""Dynamo, which keeps tables of torch's functions and methods from the moment when it is loaded.

Nothing here may load it: the patches are applied when it is there.
"""

import functools
import sys
from typing import Any

import torch

from torch_vnpu.contrib._transfer import BELONGS, ORIGIN, manager
from torch_vnpu.contrib._transfer.cuda_patches import FORWARDED
from torch_vnpu.contrib._transfer.redirect import ORIGINALS
from unpatch.patches import original

_dynamo = manager.declare(
    id="dynamo",
    group="compile",
    title="Dynamo traces what is redirected",
    reason="It knows by identity which functions it may call while it traces, and answers is_cuda itself.",
    origin=ORIGIN,
    remove_when=BELONGS,
)


@_dynamo.replace("torch._dynamo.trace_rules.get_torch_obj_rule_map")
@functools.lru_cache(1)  # Dynamo clears the cache by this name
def get_torch_obj_rule_map() -> dict[Any, Any]:
    # What is said of torch.cuda's functions is not true of torch.npu's, which have rules of their own.
    build = original(get_torch_obj_rule_map).__wrapped__
    return {known: rule for known, rule in build().items() if known not in FORWARDED}


@_dynamo.replace("torch._dynamo.variables.tensor.TensorVariable.method_attr_is_cuda")
def method_attr_is_cuda(self: Any, tx: Any) -> Any:
    from torch._dynamo.variables.base import VariableTracker

    return None if self.device is None else VariableTracker.build(tx, self.device.type == "npu")


@functools.lru_cache(1)
def declare_tables() -> None:
    """Declare what can be made only once Dynamo is loaded and the other patches are in force."""
    from torch._dynamo.variables import torch as tables

    # Both: which of the two Dynamo took into the table depends on when it was loaded.
    here = (torch.is_autocast_enabled, torch.get_autocast_dtype)
    folded = dict.fromkeys((*here, *(ORIGINALS[id(function)] for function in here)))
    _dynamo.replace("torch._dynamo.variables.torch:constant_fold_functions", tables.constant_fold_functions | folded)


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
        from torch._dynamo.variables.torch import TorchInGraphFunctionVariable

        trace_rules.clear_lru_cache()
        TorchInGraphFunctionVariable._get_handlers.cache_clear()
