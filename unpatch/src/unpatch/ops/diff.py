"""Two listings side by side: their operators as aligned sequences."""

from __future__ import annotations

from difflib import SequenceMatcher

import msgspec

from unpatch.ops.model import Listing, Operator


class Row(msgspec.Struct, frozen=True):
    """One place of the alignment. `what` is `=`, `-` (only in the first), `+` (only in the second) or `~` (both, otherwise)."""

    what: str
    first: Operator | None
    second: Operator | None
    differs: tuple[str, ...] = ()  #: of `~`: which of inputs, outputs, within, autograd


def diff(first: Listing, second: Listing) -> list[Row]:
    """Align the operators by name. Devices, threads and files' lines are expected to differ, and are not compared."""
    rows: list[Row] = []
    one, other = _in_order(first), _in_order(second)
    matcher = SequenceMatcher(None, [o.call.name for o in one], [o.call.name for o in other], autojunk=False)
    for tag, start, end, begin, stop in matcher.get_opcodes():
        if tag == "equal":
            rows += [_compared(a, b) for a, b in zip(one[start:end], other[begin:stop], strict=True)]
        else:
            rows += [Row("-", operator, None) for operator in one[start:end]]
            rows += [Row("+", None, operator) for operator in other[begin:stop]]
    return rows


def _in_order(listing: Listing) -> list[Operator]:
    """By thread, the main one first, as there is no order between threads; CPU's backward pass is in the main one."""
    return sorted(listing.operators, key=lambda operator: operator.call.thread != "main")


def _compared(one: Operator, other: Operator) -> Row:
    differs = []
    for what, a, b in (
        ("inputs", _specs(one, "inputs"), _specs(other, "inputs")),
        ("outputs", _specs(one, "outputs"), _specs(other, "outputs")),
        ("within", one.within, other.within),
        ("autograd", one.node, other.node),
    ):
        if a != b:
            differs.append(what)
    return Row("~" if differs else "=", one, other, tuple(differs))


def _specs(operator: Operator, which: str) -> tuple[str, ...]:
    return tuple(map(str, getattr(operator.call, which)))
