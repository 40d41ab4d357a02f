"""How listings and differences look: lines for a terminal or a pipe, and one HTML page."""

from __future__ import annotations

from unpatch.ops.diff import Row
from unpatch.ops.model import Listing, Operator
from unpatch.report.pages import page
from unpatch.report.words import visible


def route(operator: Operator) -> str:
    """`aten::linear (composite) → aten::addmm → PrivateUse1 [kernel] csrc/aten/boxed_kernel.cpp:459 → npu::addmm`."""
    parts = [f"{name} (composite)" for name in operator.within] + [operator.call.name]
    parts += [f"{step.key} [{step.kind}] {step.file}" for step in operator.path]
    if operator.kernels:
        parts.append(f"device: {', '.join(operator.kernels)}")
    return " → ".join(parts)


def lines(listing: Listing) -> list[str]:
    """The listing as text; a part of it is a paragraph."""
    text = [f"{listing.target} on {listing.device}, torch {listing.torch}: {len(listing.operators)} operators"]
    width = len(str(len(listing.operators)))
    thread = ""
    for number, operator in enumerate(listing.operators, 1):
        call = operator.call
        if call.thread != thread:
            thread = call.thread
            text += ["", f"thread {thread}"]
        indent = " " * (width + 2)
        text.append(f"{number:>{width}}  {route(operator)}")
        text.append(
            f"{indent}  {signature(operator)} on {call.device}{', autograd ' + operator.node if operator.node else ''}"
        )
        if operator.decomposition:
            text.append(f"{indent}  can be decomposed by {operator.decomposition}")
        text += [f"{indent}  at {frame}" for frame in call.stack]
    for which, graph in listing.graphs.items():
        text += ["", f"{which} graph (AOTAutograd)", graph.strip()]
    return [visible(line) for line in text]


def signature(operator: Operator) -> str:
    """`(float32[8, 128], …) → float32[8, 64]`"""
    call = operator.call
    outputs = ", ".join(map(str, call.outputs)) or "nothing"
    return f"({', '.join(map(str, call.inputs))}) → {outputs}"


def diff_lines(first: Listing, second: Listing, rows: list[Row]) -> list[str]:
    """The alignment as text."""
    text = [
        f"- {first.target} on {first.device}, torch {first.torch}",
        f"+ {second.target} on {second.device}, torch {second.torch}",
    ]
    for row in rows:
        operator = row.first or row.second
        assert operator is not None  # one of the two
        text.append(f"{row.what} {operator.call.name} {signature(operator)}")
        if row.first and row.second and row.differs:
            text[-1] += f"  other: {', '.join(row.differs)}"
            text.append(f"    {route(row.first)}\n    {signature(row.first)}")
            text.append(f"    {route(row.second)}\n    {signature(row.second)}")
    counts = {what: sum(row.what == what for row in rows) for what in "=~-+"}
    text.append(
        f"{counts['=']} equal, {counts['~']} otherwise, {counts['-']} only in the first, {counts['+']} only in the second"
    )
    return [visible(line) for line in text]


def html(listing: Listing) -> str:
    """The listing as one page without scripts or network."""
    return page("operators.html", listing=listing, signature=signature)
