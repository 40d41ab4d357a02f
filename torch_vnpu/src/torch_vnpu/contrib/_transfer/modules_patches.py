"""`Module.to("cuda")`, and parameters that stay the same objects when a module moves, as they do between CPU and CUDA."""

import torch

from torch_vnpu.contrib._transfer import manager
from torch_vnpu.contrib._transfer.redirect import redirected
from unpatch.patches import Origin

_ORIGIN = Origin(introduced="torch_vnpu 0.1.0")
_NEVER = "never: it exists to be switched on"

manager.declare(
    id="module-to",
    group="modules",
    title="Module.to takes 'cuda'",
    reason="It has its arguments read by a C function.",
    origin=_ORIGIN,
    remove_when=_NEVER,
).replace("torch.nn.Module.to", redirected(torch.nn.Module.to, position=1))

manager.declare(
    id="same-parameters",
    group="modules",
    title="A module that moves keeps its parameter objects",
    reason=(
        "On CUDA an optimizer may be made before the model moves, and tied weights stay tied. On other devices torch makes new "
        "parameters, silently, unless it is told to swap their contents."
    ),
    origin=_ORIGIN,
    remove_when="Module.to keeps parameters on PrivateUse1 devices by itself",
    risk="Moving a parameter that something else refers to weakly raises a RuntimeError.",
).replace("torch.__future__._swap_module_params_on_conversion", True)
