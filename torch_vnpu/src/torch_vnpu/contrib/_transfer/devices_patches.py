"""Devices that are made from a text, and generators: `torch.device("cuda")` is an npu device from the start, so whatever is
given one, in Python or C++, needs no translation, and `tensor.device == torch.device("cuda:0")` holds.
"""

import torch

from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager
from torch_vnpu.contrib._transfer.redirect import ORIGINALS
from torch_vnpu.contrib._transfer.stand_in import stand_in

_classes = manager.declare(
    id="device-classes",
    group="devices",
    title="torch.device and torch.Generator take 'cuda'",
    reason="A program for CUDA names its device; the classes are written in C and cannot be told to take another.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
    risk="`x is torch.device` is false for the class of a device; `==`, `isinstance` and `in` hold.",
)
#: The real classes by their stand-ins, which TorchScript tells apart by `is`.
STAND_INS = {torch.device: stand_in(torch.device, "type"), torch.Generator: stand_in(torch.Generator, "device")}
for _real, _class in STAND_INS.items():
    ORIGINALS[id(_class)] = _real
    _classes.replace(f"torch.{_real.__name__}", _class)
