"""What torch.cuda offers becomes what torch.npu offers, name by name, in the module that programs have already imported.

Which name stands for which is the table of `torch_vnpu.npu._parity`. What torch.npu does not have stays as it is and fails as
it does on a machine without CUDA; what it refuses is refused with its own reason.
"""

from types import FunctionType
from typing import Any

import torch

from torch_vnpu import npu
from torch_vnpu.contrib._transfer import ORIGIN, SWITCHED_ON, manager
from torch_vnpu.contrib._transfer.redirect import forwarded
from torch_vnpu.npu import _parity

#: Names of torch.cuda that torch itself and libraries call, public or not.
_INTERNAL = ("_is_in_bad_fork", "_lazy_init")
#: The functions that stand in torch.cuda, each before one of torch.npu.
FORWARDED: set[Any] = set()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(0, 0), below whatever a program may ask for, so that it takes the way that needs no feature of a certain GPU."""
    return (0, 0)


_names = manager.declare(
    id="cuda-module",
    group="cuda",
    title="torch.cuda is torch.npu",
    reason="A program for CUDA asks torch.cuda for devices, streams, events, memory and seeds.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
for _module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams):
    for _name in sorted({*_module.__dict__} & {*torch.cuda.__all__, *_INTERNAL}):
        _here = _parity.npu_name(_name)
        _value = get_device_capability if _name == "get_device_capability" else getattr(npu, _here, None)
        # Modules are left: their contents are written, or are torch's own and work with what is translated elsewhere.
        if _value is not None and not isinstance(_value, type(torch)) and _value is not _module.__dict__[_name]:
            if isinstance(_value, FunctionType):
                _value = forwarded(_value, _module.__dict__[_name])
                FORWARDED.add(_value)
            _names.replace(f"{_module.__name__}:{_name}", _value)

_handles = manager.declare(
    id="cuda-stream-handle",
    group="cuda",
    title="Stream.cuda_stream",
    reason="Code that hands a stream to another library reads its handle as `cuda_stream`.",
    origin=ORIGIN,
    remove_when=SWITCHED_ON,
)
_handles.add("torch_vnpu.npu.streams.Stream.cuda_stream", npu.Stream.npu_stream)
