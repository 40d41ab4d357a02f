"""The page of a full pass: how many operators agree with CPU, and why the others do not."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from opinfo.check import LIGHT_DTYPES, LIGHT_SAMPLES, SAMPLES, main_dtype, short
from opinfo.known import reason

Outcome = Mapping[str, Any]
_BAD = ("fail", "crash", "timeout")


def page(results: Mapping[str, Iterable[Outcome]]) -> str:
    """Markdown. `results` has the outcomes of each mode of launching."""
    modes = {mode: sorted(outcomes, key=lambda one: (one["op"], one["dtype"])) for mode, outcomes in results.items()}
    lines = [
        "# Operators",
        "",
        f"Written by `make opinfo`: the operator database of PyTorch {torch.__version__.split('+')[0]} on npu against CPU.",
        "Compared are values (bit by bit first, else within PyTorch's usual tolerance), strides, dtypes and devices of the",
        "results, of the gradients and of the in-place variant. Every sample is run with two sets of values, so that the",
        f"second one goes through the queue; at most {SAMPLES} samples an operator, {LIGHT_SAMPLES} in the lighter pass.",
        "An operator for which CPU raises an error too has no CPU kernel, and is not among those that CPU has.",
        "",
    ]
    for mode, outcomes in modes.items():
        lines += [f"## Launches {mode}", "", *_figures(outcomes), ""]
    lines += [
        "## What differs, and why",
        "",
        *_differences(modes),
        "",
        "## Between the two ways of launching",
        "",
        *_between(modes),
        "",
    ]
    return "\n".join(lines)


def unexplained(results: Mapping[str, Iterable[Outcome]]) -> list[Outcome]:
    """The outcomes that differ from CPU for no known reason."""
    return [
        one
        for outcomes in results.values()
        for one in outcomes
        if one["status"] != "pass" and not reason(one["op"], one["dtype"])
    ]


def _figures(outcomes: list[Outcome]) -> list[str]:
    main = [one for one in outcomes if one["dtype"] == short(main_dtype(one["op"]))]
    light = [one for one in outcomes if one["dtype"] != short(main_dtype(one["op"]))]
    groups = [(f"{dtype}, main", [one for one in main if one["dtype"] == dtype]) for dtype in _order(main)]
    groups += [
        (f"{short(dtype)}, lighter", [one for one in light if one["dtype"] == short(dtype)]) for dtype in LIGHT_DTYPES
    ]
    lines = [
        "| pass | operators | CPU has it | agree | % | differ | samples | backward samples | not bit by bit |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for title, group in groups:
        states = Counter(one["status"] for one in group)
        bad = sum(states[status] for status in _BAD)
        able = states["pass"] + bad
        sums = [sum(one[key] for one in group) for key in ("samples", "backward", "rounded")]
        share = f"{100 * states['pass'] / able:.2f}" if able else "–"
        lines.append("| " + " | ".join(map(str, (title, len(group), able, states["pass"], share, bad, *sums))) + " |")
    return lines


def _order(outcomes: list[Outcome]) -> list[str]:
    return [dtype for dtype, _ in Counter(one["dtype"] for one in outcomes).most_common()]


def _differences(modes: Mapping[str, list[Outcome]]) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for outcomes in modes.values():
        for one in outcomes:
            if one["status"] == "pass":
                continue
            why = reason(one["op"], one["dtype"]) or f"**not explained**: {one['reason']}"
            dtypes = found.setdefault((one["op"], why), [])
            if one["dtype"] not in dtypes:
                dtypes.append(one["dtype"])
    lines = ["| operator | dtypes | reason |", "| --- | --- | --- |"]
    for (op, why), dtypes in sorted(found.items()):
        lines.append(f"| `{op}` | {', '.join(sorted(dtypes))} | {_cell(why)} |")
    return lines


def _between(modes: Mapping[str, list[Outcome]]) -> list[str]:
    states = [{(one["op"], one["dtype"]): one["status"] for one in outcomes} for outcomes in modes.values()]
    apart = sorted(key for key in states[0] if any(other.get(key) != states[0][key] for other in states[1:]))
    if not apart:
        return ["No operator's outcome differs."]
    return [
        f"- `{op}` ({dtype}): "
        + ", ".join(f"{mode} {state.get((op, dtype))}" for mode, state in zip(modes, states, strict=True))
        for op, dtype in apart
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
