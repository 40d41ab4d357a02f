"""`Module.to("cuda")`."""

import torch

from torch_vnpu.contrib._transfer import manager
from torch_vnpu.contrib._transfer.redirect import redirected
from unpatch.patches import Origin

manager.declare(
    id="module-to",
    group="modules",
    title="Module.to takes 'cuda'",
    reason="It has its arguments read by a C function.",
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    remove_when="never: it exists to be switched on",
).replace("torch.nn.Module.to", redirected(torch.nn.Module.to, position=1))
