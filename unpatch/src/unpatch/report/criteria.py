"""The acceptance criteria for removing a patch, each derived from what was measured and not from the verdict.

They are a second opinion: a patch that is judged removable and misses one of them deserves a look.
"""

from __future__ import annotations

from dataclasses import dataclass

from unpatch.model import DECIDING, LISTED, CaseResult, PatchResult
from unpatch.report.words import count, enumeration, words


@dataclass(frozen=True, slots=True)
class Criterion:
    text: str
    met: bool
    because: str  #: the cases that it rests on


def acceptance(patch: PatchResult) -> tuple[Criterion, ...]:
    """All criteria of one patch, in a fixed order."""
    return (
        _repeatable(patch),
        _needed_by_none(patch),
        _concluded(patch),
        _reach_measured(patch),
    )


def noisy(case: CaseResult) -> bool:
    """Whether the two runs with the patch differ in something that decides."""
    outcomes = {arm.outcome for arm in case.arms if arm.arm != "B"}
    channels = any(c.channel in DECIDING and c.verdict == "inconclusive" for c in case.channels)
    return case.verdict == "inconclusive" or channels or len(outcomes) > 1


def _names(cases: list[CaseResult], most: int = 5) -> str:
    shown = [case.case for case in cases[:most]]
    return enumeration([*shown, f"{len(cases) - most} more"] if len(cases) > most else shown)


def _of(cases: list[CaseResult], all_cases: tuple[CaseResult, ...]) -> str:
    """`2 of 5 cases (a and b)`."""
    named = f" ({_names(cases)})" if cases else ""
    return f"{len(cases)} of {count(len(all_cases), 'case')}{named}"


def _repeatable(patch: PatchResult) -> Criterion:
    text = "Two runs with the patch agree (A equals A′) in every case"
    if not patch.cases:
        return Criterion(text, False, "no case covers the patch")
    differ = [case for case in patch.cases if noisy(case)]
    listed = [c for c in patch.cases if any(x.channel in LISTED and x.verdict == "inconclusive" for x in c.channels)]
    because = f"they differ in {_of(differ, patch.cases)}"
    if listed:
        because += f"; messages or warnings, which do not decide, differ in {_of(listed, patch.cases)}"
    return Criterion(text, not differ, because)


def _needed_by_none(patch: PatchResult) -> Criterion:
    against = [case for case in patch.cases if case.verdict in ("required", "behavioural", "inconclusive")]
    which = "; ".join(f"{case.case}: {words(case.verdict)}" for case in against[:5])
    more = f"; {len(against) - 5} more" if len(against) > 5 else ""
    because = which + more if against else f"0 of {count(len(patch.cases), 'case')}"
    return Criterion("No case is required, behavioural or inconclusive", not against, because)


def _concluded(patch: PatchResult) -> Criterion:
    concluding = [case for case in patch.cases if case.verdict not in ("nothing", "error_changed")]
    because = f"{len(concluding)} of {count(len(patch.cases), 'case')}"
    return Criterion("At least one case can be compared", bool(concluding), because)


def _reach_measured(patch: PatchResult) -> Criterion:
    text = "Reach was measured in every case"
    if not patch.cases:
        return Criterion(text, False, "no case covers the patch")
    missing = [case for case in patch.cases if case.reach is None]
    unknown = [case for case in patch.cases if case.reach is not None and case.reach.compiled == "unknown"]
    because = f"missing in {_of(missing, patch.cases)}"
    if unknown:
        because += f"; calls inside compiled regions are unknown in {_of(unknown, patch.cases)}"
    return Criterion(text, not missing, because)
