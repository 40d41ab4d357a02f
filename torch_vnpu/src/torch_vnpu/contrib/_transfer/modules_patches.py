"""`Module.to("cuda")`."""

import torch

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager
from torch_vnpu.contrib._transfer.redirect import redirected

manager.declare(
    id="module-to",
    group="modules",
    title="Module.to takes 'cuda'",
    reason="It has its arguments read by a C function.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
).replace("torch.nn.Module.to", redirected(torch.nn.Module.to, position=1))
