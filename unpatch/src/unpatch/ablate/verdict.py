"""The table of docs/verdicts.md as pure functions: from comparisons to channels, to a case, to a patch.

Nothing here runs a trial or opens a file, so that every row of the table is one row of a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from unpatch.ablate.compare import Comparison
from unpatch.model import (
    DECIDING,
    LISTED,
    CaseResult,
    CaseVerdict,
    Channel,
    ChannelResult,
    ChannelVerdict,
    Observation,
    PatchVerdict,
    ReachRecord,
    ReachSummary,
)

Concluding = Literal["required", "behavioural", "inconclusive", "harmful", "inert"]
#: Strongest first. A case or a patch says the strongest of what its channels or its cases say.
CHANNEL_ORDER: tuple[ChannelVerdict, ...] = (
    "required",
    "behavioural",
    "inconclusive",
    "harmful",
    "changed",
    "inert",
    "not_compared",
)
CONCLUDING: tuple[Concluding, ...] = ("required", "behavioural", "inconclusive", "harmful", "inert")
REMOVABLE: tuple[PatchVerdict, ...] = ("unreached", "branch_unreachable", "inert", "harmful")


class Judgement(Struct, frozen=True):
    """What the cases and the reach of one patch add up to."""

    verdict: PatchVerdict
    removable: bool
    because: str


# ------------------------------------------------------------------------------------------ one case
def channel_results(
    a: Observation,
    b: Observation,
    noise: Mapping[Channel, Comparison],
    effect: Mapping[Channel, Comparison],
    unseen: str = "",
) -> tuple[ChannelResult, ...]:
    """Judge every channel of one case. `noise` compares A with A′, `effect` compares A with B.

    `unseen`: why the arms do not show what the case does (empty if they do).
    """
    unseen = unseen or next((f"not recorded: {seen.unrecorded}" for seen in (a, b) if seen.unrecorded), "")
    if unseen:
        rest = [channel for channel in (*DECIDING, *LISTED) if channel != "exceptions"]
        results = [ChannelResult("exceptions", "inconclusive", unseen)]
        return (*results, *(ChannelResult(channel, "not_compared", "see exceptions") for channel in rest))
    exceptions = _exceptions(a, b, noise["exceptions"], effect["exceptions"])
    results = [_compared(channel, noise[channel], effect[channel]) for channel in DECIDING if channel != "exceptions"]
    return (*results, exceptions, *(_listed(channel, noise[channel], effect[channel]) for channel in LISTED))


def _exceptions(a: Observation, b: Observation, noise: Comparison, effect: Comparison) -> ChannelResult:
    """The only channel that is judged when a case fails: a crash or a time-out fails like an exception does."""
    if noise.state == "differs":
        return ChannelResult("exceptions", "inconclusive", f"A and A′ differ: {noise.detail}")
    passes_with, passes_without = a.outcome == "passed", b.outcome == "passed"
    if passes_with and passes_without:
        return ChannelResult("exceptions", "inert")
    if passes_with:
        return ChannelResult("exceptions", "required", effect.detail)
    if passes_without:
        return ChannelResult("exceptions", "harmful", effect.detail)
    if effect.state == "differs":
        return ChannelResult("exceptions", "changed", effect.detail)
    return ChannelResult("exceptions", "not_compared", "fails alike with and without the patch")


def _compared(channel: Channel, noise: Comparison, effect: Comparison) -> ChannelResult:
    if noise.state == "differs":
        return ChannelResult(channel, "inconclusive", f"A and A′ differ: {noise.detail}")
    for comparison in (noise, effect):
        if comparison.state == "not_compared":
            return ChannelResult(channel, "not_compared", comparison.detail)
    return ChannelResult(channel, "inert" if effect.state == "equal" else "behavioural", effect.detail)


def _listed(channel: Channel, noise: Comparison, effect: Comparison) -> ChannelResult:
    """Texts: what already differs between A and A′ is noise, and no evidence of a change."""
    if noise.state == "differs":
        return ChannelResult(channel, "inconclusive", f"noisy, A and A′ differ: {noise.detail}")
    if effect.state == "not_compared":
        return ChannelResult(channel, "not_compared", effect.detail)
    return ChannelResult(channel, "inert" if effect.state == "equal" else "changed", effect.detail)


def case_verdict(
    a: Observation,
    a2: Observation,
    b: Observation,
    channels: Sequence[ChannelResult],
) -> CaseVerdict:
    """What one case says about one patch, from its arms A, A′ and B and from `channel_results`."""
    by_channel = {result.channel: result.verdict for result in channels}
    fails_everywhere = all(observation.outcome != "passed" for observation in (a, a2, b))
    if fails_everywhere and by_channel["exceptions"] != "inconclusive":
        changed = "changed" in (by_channel["exceptions"], by_channel["messages"])
        return "error_changed" if changed else "nothing"
    said = strongest(by_channel[channel] for channel in DECIDING)
    # A case in which nothing but its passing could be compared still has its passing: `exceptions` is inert then.
    return next(verdict for verdict in CONCLUDING if verdict == said)


def strongest(verdicts: Iterable[ChannelVerdict]) -> ChannelVerdict:
    """The strongest of some channel verdicts, `not_compared` if there are none."""
    return min(verdicts, key=CHANNEL_ORDER.index, default="not_compared")


def strongest_by_channel(cases: Sequence[CaseResult]) -> dict[Channel, ChannelVerdict]:
    """For each channel the strongest that any of the cases says."""
    return {
        channel: strongest(result.verdict for case in cases for result in case.channels if result.channel == channel)
        for channel in (*DECIDING, *LISTED)
    }


# ------------------------------------------------------------------------------------------ one patch
def summarise_reach(records: Sequence[ReachRecord | None]) -> ReachSummary:
    """Add up one patch's reach over its cases; None stands for a case whose reach trial recorded nothing."""
    known = [record for record in records if record is not None]
    compiled = {record.compiled for record in known}
    # Two cases may run the same branch: count lines, not the sum of counts.
    run = len({line for record in known for line in record.lines_run})
    branches = max(run, max((record.branches for record in known), default=0))
    # Where a called replacement has no branch, what it does is done at every call, whatever the branches of others.
    unconditional = any(record.calls and not record.branches for record in known)
    return ReachSummary(
        calls=sum(record.calls for record in known),
        cases_reached=sum(record.calls > 0 or record.compiled == "traced" for record in known),
        cases=len(records),
        branches=0 if unconditional else branches,
        branches_run=0 if unconditional else run,
        compiled="traced" if "traced" in compiled else "unknown" if "unknown" in compiled else "no",
        cases_unknown=len(records) - len(known),
    )


def patch_verdict(cases: Sequence[CaseResult], reach: ReachSummary, not_ablated: str = "") -> Judgement:
    """Judge one patch: the strongest of its concluding cases, refined by reach where no case shows a difference.

    Reach never overrules a difference: a patch without a call can still act, at the moment it is applied. Nor does it
    stand alone: cases that all fail before they come to the patch say nothing of it.

    `not_ablated`: why the arms did not differ in this patch (empty if they did).
    """
    if not cases:
        return Judgement("inconclusive", False, "No workload covers this patch, so nothing is known about it.")
    if not_ablated:
        return Judgement("inconclusive", False, not_ablated)
    said = [case.verdict for case in cases]
    strongest_case = next((verdict for verdict in CONCLUDING if verdict in said), None)
    verdict: PatchVerdict
    if strongest_case != "inert":
        verdict = strongest_case or "inconclusive"
    elif _acts_unseen(cases):
        verdict = "inconclusive"
    else:
        verdict = ("error_changed" not in said and _refined(reach)) or "inert"
    return Judgement(verdict, verdict in REMOVABLE, _because(verdict, cases, reach))


def _acts_unseen(cases: Sequence[CaseResult]) -> bool:
    """Whether the patch did what is its own, but only in cases that conclude nothing: that others agree says nothing then."""
    acting = [case for case in cases if case.reach is not None and acted(case.reach)]
    return bool(acting) and not any(case.verdict in CONCLUDING for case in acting)


def acted(record: ReachRecord) -> bool:
    """Whether a case ran a branch of the patch's own, or called a replacement that has none."""
    return record.calls > 0 and (record.branches == 0 or record.branches_run > 0)


def _refined(reach: ReachSummary) -> PatchVerdict | None:
    """`unreached` and `branch_unreachable` need reach to be known in every case, compiled regions included."""
    if reach.compiled != "no" or reach.cases_unknown:
        return None
    if not reach.calls:
        return "unreached"
    return "branch_unreachable" if reach.branches and not reach.branches_run else None


def _because(verdict: PatchVerdict, cases: Sequence[CaseResult], reach: ReachSummary) -> str:
    return f"{_reach_words(reach)}; {_case_words(verdict, cases)}."


def _reach_words(reach: ReachSummary) -> str:
    if reach.calls:
        words = f"Called {_count(reach.calls, 'time')} in {reach.cases_reached} of {_count(reach.cases, 'case')}"
        if reach.branches:
            words += f", {reach.branches_run or 'none'} of {_count(reach.branches, 'branch line')} of its own ran"
    elif reach.cases_unknown == reach.cases:
        return f"Reach unknown in {_count(reach.cases, 'case')}"
    else:
        words = f"No call seen in {_count(reach.cases - reach.cases_unknown, 'case')}"
    if reach.compiled == "traced":
        words += ", traced into a compiled region"
    elif reach.compiled == "unknown":
        words += ", unknown inside compiled regions"
    if reach.cases_unknown:
        words += f", reach unknown in {_count(reach.cases_unknown, 'case')}"
    return words


#: What a case says, as the end of "2 cases …".
_SAYS: dict[CaseVerdict, tuple[str, str]] = {
    "required": ("fails without it", "fail without it"),
    "behavioural": ("behaves differently without it", "behave differently without it"),
    "inconclusive": ("differs between two runs with it", "differ between two runs with it"),
    "harmful": ("fails with it and passes without it", "fail with it and pass without it"),
    "inert": ("is the same without it", "are the same without it"),
    "error_changed": ("fails in both arms with another error", "fail in both arms with another error"),
    "nothing": ("fails alike with and without it", "fail alike with and without it"),
}


def _case_words(verdict: PatchVerdict, cases: Sequence[CaseResult]) -> str:
    parts = []
    for kind, (one, many) in _SAYS.items():
        names = [case.case for case in cases if case.verdict == kind]
        if not names:
            continue
        told = f"{_count(len(names), 'case')} {one if len(names) == 1 else many}"
        # The cases that decide are named; the agreeing ones are only counted.
        if kind != "inert":
            told += f" ({', '.join(names[:3])}{' …' if len(names) > 3 else ''})"
        parts.append(told)
    if verdict == "inconclusive" and all(case.verdict not in CONCLUDING for case in cases):
        parts.append("no case concludes anything")
    elif verdict == "inconclusive" and _acts_unseen(cases):
        parts.append("what is the patch's own ran only in cases that conclude nothing")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
