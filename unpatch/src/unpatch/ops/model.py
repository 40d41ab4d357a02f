"""What `unpatch ops` finds out, as plain data: what is written as JSON is read again by `--diff`."""

from __future__ import annotations

import msgspec

from unpatch.observe.calls import OperatorCall


class Step(msgspec.Struct, frozen=True):
    """A key of the dispatcher on the way of an operator, and the kernel that is registered there."""

    key: str
    kind: str  #: as torch's table says: `kernel`, `autograd kernel`, `math kernel`, `backend fallback` …
    file: str  #: with the line


class Operator(msgspec.Struct, frozen=True):
    """An operator of the run, with all that is known of its way."""

    call: OperatorCall
    within: tuple[str, ...]  #: operators made of others that it was called by, outermost first
    path: tuple[Step, ...]
    kernels: tuple[str, ...]  #: that ran on the device, by torch.profiler
    node: str  #: what autograd recorded for it (forward), or whose backward pass it is in
    decomposition: str  #: the function by which torch can decompose it; empty without one


class Listing(msgspec.Struct, frozen=True):
    """Everything about one target."""

    target: str
    device: str
    torch: str  #: its version
    operators: tuple[Operator, ...]
    graphs: dict[str, str] = {}  #: `forward` and `backward`, as AOTAutograd has them
