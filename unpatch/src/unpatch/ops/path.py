"""The way of an operator through torch's dispatcher, from the table that torch computes for it."""

from __future__ import annotations

import re
from functools import cache

import torch

from unpatch.ops.model import Step

_ROW = re.compile(r"(\w+): (fallthrough )?registered at (.*?)(?: \[([^\]]*)\])?")
_KEYS = {"cpu": "CPU", "cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "meta": "Meta", "hpu": "HPU", "mtia": "MTIA"}


def backend_key(device: str) -> str:
    """The dispatch key of a device, `CPU` of `cpu`; a renamed backend has the one that it had before."""
    return _KEYS.get(device.partition(":")[0], "PrivateUse1")


@cache
def table(operator: str) -> dict[str, Step]:
    """By key, the kernel that would be called; what falls through is left out."""
    rows = {}
    for line in torch._C._dispatch_dump_table(operator).splitlines():
        found = _ROW.fullmatch(line)
        if found and not found[2]:
            rows[found[1]] = Step(found[1], found[4] or "kernel", _short(found[3]))
    return rows


def path(operator: str, device: str, differentiable: bool, autocast: bool) -> tuple[Step, ...]:
    """The keys that a call goes through, down to the backend.

    Args:
        operator: as `aten::add.Tensor`.
        device: on which it works.
        differentiable: whether the call has a node in the autograd graph.
        autocast: whether autocast was on for the device.
    """
    rows, backend = table(operator), backend_key(device)
    keys = [f"Autocast{backend}"] * autocast + [f"Autograd{backend}", "ADInplaceOrView"] * differentiable + [backend]
    return tuple(rows[key] for key in keys if key in rows)


def _short(place: str) -> str:
    """The file without where it was built."""
    for mark in ("/aten/src/", "/torch/csrc/", "/site-packages/", "/csrc/"):
        head, found, tail = place.rpartition(mark)
        if found:
            inside = mark.strip("/") if mark != "/site-packages/" else ""
            package = head.rpartition("/")[2] + "/" if mark == "/csrc/" else ""
            return f"{package}{inside}/{tail}" if inside else tail
    return place
