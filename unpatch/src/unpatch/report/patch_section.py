"""The part of the evidence document that concerns one patch: what it is, its reach, what changes without it.

The order is that of a reviewer's questions; everything long is folded away, what speaks against removal is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from unpatch.model import ArmSummary, CaseResult, ErrorInfo, PatchResult, ProbeRecord, ReachRecord
from unpatch.report.blocks import (
    Badge,
    Block,
    Bullets,
    Code,
    Details,
    Facts,
    Inline,
    Mono,
    Paragraph,
    Row,
    Section,
    Strong,
    Table,
    inline,
    joined,
)
from unpatch.report.criteria import acceptance
from unpatch.report.words import (
    CHANNELS,
    badge,
    cell,
    compiled,
    count,
    duration,
    enumeration,
    own_branch,
    reached,
    removable,
    words,
)

_LONG = 240  # characters: a longer text is folded away, whole
_SILENT = ("nothing", "error_changed")  # verdicts of cases that conclude nothing: they fail in both arms
_MANY = 12  # cases: a longer list is folded away, whole


def patch_section(patch: PatchResult, anchor: str) -> Section:
    """Everything that the study knows about one patch."""
    info = patch.patch
    verdict = inline(badge(patch.verdict), ". Can be removed: ", removable(patch), ". ", patch.because)
    blocks = (
        Paragraph(verdict),
        _identity(patch),
        Details(inline("Code of the replacement, from ", Mono(info.source)), (Code(info.code, "python"),)),
        _reach(patch),
        _comparison(patch),
        _operators(patch.cases),
        _changes(patch.listed),
        _criteria(patch),
        Section("Risk and roll back", (Facts((("Risk", _risk(patch)), ("Roll back", _rollback(patch)))),)),
    )
    return Section(info.title or info.id, blocks, anchor)


def _identity(patch: PatchResult) -> Facts:
    info = patch.patch
    return Facts(
        (
            ("Patch", inline(Mono(info.id), ", group ", Mono(info.group))),
            ("Replaces", joined(inline(Mono(target)) for target in info.targets) or inline("nothing declared")),
            ("Declared at", inline(Mono(info.source))),
            ("Why it was needed", inline(info.reason or "unknown")),
            ("Brought in", inline(info.origin.introduced or "unknown")),
            ("Removed upstream", inline(info.origin.removed or "unknown")),
            *((("Origin, further", inline(info.origin.note)),) if info.origin.note else ()),
            ("For versions", inline(Mono(info.versions) if info.versions else "any")),
            ("Goes when", inline(Mono(info.remove_when) if info.remove_when else "no condition declared")),
        )
    )


# ------------------------------------------------------------------------------------------------------ reach
def _reach(patch: PatchResult) -> Section:
    summary = inline(
        "Reached: ", Strong(reached(patch.reach)), ". Own branches: ", Strong(own_branch(patch.reach)), "."
    )
    rows = tuple(_reach_row(case.case, case.reach) for case in patch.cases)
    head = ("Case", "Calls", "Threads", "Own branches run", "Lines run", "Compiled")
    table = Details(
        inline(f"Reach in {count(len(rows), 'case')}"), (Table(head, rows, numeric=(1,)),), open=len(rows) <= _MANY
    )
    return Section("Reach", (Paragraph(summary), table, *_probes(patch.probes)))


def _reach_row(case: str, reach: ReachRecord | None) -> Row:
    if reach is None:
        return Row((inline(Mono(case)), inline("not measured"), (), (), (), ()))
    own = f"{reach.branches_run} of {reach.branches}" if reach.branches else "none of its own"
    return Row(
        (
            inline(Mono(case)),
            inline(f"{reach.calls:,}"),
            inline(", ".join(reach.threads) or "none"),
            inline(own),
            joined(inline(Mono(line)) for line in reach.lines_run) or inline("none"),
            inline(compiled(reach.compiled) or "no"),
        )
    )


def _probes(probes: tuple[ProbeRecord, ...]) -> tuple[Block, ...]:
    if not probes:
        return (Paragraph(inline("No probe calls the patch's own branch directly.")),)
    rows = tuple(
        Row(
            (
                inline(Mono(probe.id)),
                inline(probe.what),
                inline(Mono(probe.before)),
                inline(Mono(probe.after)),
                inline(Badge("failed", "unsure") if probe.error else "acted" if probe.acted else "did not act"),
            ),
            label=inline(Mono(probe.id)),
            note=inline("failed: ", Mono(probe.error)) if probe.error else (),
        )
        for probe in probes
    )
    intro = "Called directly, the patch's own branch did this; it shows what would happen if it were reached:"
    return Paragraph(inline(intro)), Table(("Probe", "What it looks at", "Before", "After", "Branch"), rows)


# ------------------------------------------------------------------------------------------------- comparison
def _comparison(patch: PatchResult) -> Section:
    if not patch.cases:
        return Section("Comparison per case", (Paragraph(inline("No case covers this patch.")),))
    head = ("Case", "A", "A′", "B", *(channel.capitalize() for channel in CHANNELS), "Verdict")
    intro = inline("A: with the patch, A′: the same again, B: without it; all other patches are in place in all three.")
    silent = sum(case.verdict in _SILENT for case in patch.cases)
    blocks: list[Block] = [Paragraph(intro), Table(head, tuple(map(_case_row, patch.cases)))]
    if silent:
        failed = f"{silent} of {count(len(patch.cases), 'case')} failed both with and without the patch"
        blocks.append(Paragraph(inline(f"{failed}; nothing is concluded from such a case.")))
    blocks += [_case_details(case) for case in patch.cases if not _uneventful(case)]
    return Section("Comparison per case", tuple(blocks))


def _case_row(case: CaseResult) -> Row:
    outcomes = {arm.arm: words(arm.outcome) for arm in case.arms}
    channels = {channel.channel: channel.verdict for channel in case.channels}
    return Row(
        (
            inline(Mono(case.case), " compiled" if case.compiled else ""),
            *(inline(outcomes.get(arm, "not run")) for arm in ("A", "A'", "B")),
            *(inline(cell(channels.get(channel, "not_compared"))) for channel in CHANNELS),
            inline(badge(case.verdict), " (no conclusion)" if case.verdict in _SILENT else ""),
        )
    )


def _uneventful(case: CaseResult) -> bool:
    return case.verdict == "inert" and all(channel.verdict == "inert" for channel in case.channels)


def _case_details(case: CaseResult) -> Details:
    """What one case saw: its arms, their errors and every channel that is not inert."""
    head = ("Arm", "Outcome", "Operators", "Tensors", "Took", "Error", "Where")
    arms = Table(head, tuple(map(_arm_row, case.arms)), numeric=(2, 3, 4))
    blocks: list[Block] = [arms, *_messages(case.arms)]
    for channel in case.channels:
        if channel.verdict not in ("inert", "not_compared"):
            blocks += _explained(inline(Strong(channel.channel), ": ", badge(channel.verdict)), channel.detail)
    skipped = [channel for channel in case.channels if channel.verdict == "not_compared"]
    if skipped:
        reasons = {channel.detail for channel in skipped if channel.detail}
        names = enumeration([channel.channel for channel in skipped])
        blocks += _explained(inline(f"{names}: not compared"), "; ".join(sorted(reasons)))
    against = case.verdict in ("required", "behavioural", "inconclusive", "harmful")
    return Details(inline(Mono(case.case), ": ", badge(case.verdict)), tuple(blocks), open=against)


def _arm_row(arm: ArmSummary) -> Row:
    error = arm.error
    return Row(
        (
            inline(arm.arm.replace("'", "′")),
            inline(words(arm.outcome)),
            inline(f"{arm.operators:,}"),
            inline(f"{arm.tensors:,}"),
            inline(duration(arm.seconds)),
            inline(Mono(error.type)) if error else (),
            _where(error) if error else (),
        )
    )


def _where(error: ErrorInfo) -> Inline:
    """The workload's statement, and the innermost frame if that is another."""
    raised = inline("raised in ", Mono(error.raised_at)) if error.raised_at else ()
    return joined(filter(None, (inline(Mono(error.place)) if error.place else (), raised)))


def _messages(arms: tuple[ArmSummary, ...]) -> Iterable[Block]:
    """The message of each arm that failed, once where arms agree."""
    by_message: dict[str, list[str]] = {}
    for arm in arms:
        if arm.error and arm.error.message:
            by_message.setdefault(arm.error.message, []).append(arm.arm.replace("'", "′"))
    for message, names in by_message.items():
        yield from _literal(inline("Message in ", Strong(enumeration(names)), ":"), message)


def _literal(label: Inline, text: str) -> tuple[Block, ...]:
    """A label and a text as it was, folded away where long."""
    if len(text) > _LONG:
        return (Details(inline(*label, f" {len(text):,} characters"), (Code(text),)),)
    return Paragraph(label), Code(text)


def _explained(label: Inline, text: str) -> tuple[Block, ...]:
    """A label and words that explain it: in line, or as they were where they have lines of their own."""
    if not text:
        return (Paragraph(label),)
    if "\n" in text or len(text) > _LONG:
        return _literal(label, text)
    return (Paragraph(inline(*label, ", ", text)),)


# -------------------------------------------------------------------------------------------------- operators
def _operators(cases: tuple[CaseResult, ...]) -> Section:
    """The names by which the recorder saw the operators: the internal ones, not those of the public functions."""
    rows = tuple(row for case in cases for row in _operator_rows(case))
    if not rows:
        return Section("Operators seen", (Paragraph(inline("No operator was recorded.")),))
    table = Table(("Case", "Arm", "Operators", "Distinct names", "By thread"), rows, numeric=(2,))
    summary = inline(f"Names that the recorder saw in {count(len(cases), 'case')}")
    return Section("Operators seen", (Details(summary, (table,), open=len(cases) <= _MANY),))


def _operator_rows(case: CaseResult) -> Iterable[Row]:
    """One row for each distinct set of names: A stands for B too where both saw the same."""
    seen: dict[tuple[str, ...], list[ArmSummary]] = {}
    for arm in case.arms:
        if arm.names:
            seen.setdefault(arm.names, []).append(arm)
    for names, arms in seen.items():
        yield Row(
            (
                inline(Mono(case.case)),
                inline(enumeration([arm.arm.replace("'", "′") for arm in arms])),
                inline(" / ".join(dict.fromkeys(f"{arm.operators:,}" for arm in arms))),
                joined((inline(Mono(name)) for name in names), " "),
                inline("; ".join(arms[0].by_thread)),
            )
        )


# ------------------------------------------------------------------------------- changes, criteria, risk, undo
def _changes(listed: tuple[str, ...]) -> Section:
    title = "Changed errors, messages and warnings"
    if not listed:
        return Section(title, (Paragraph(inline("None: in every case they are the same with and without the patch.")),))
    short = [line for line in listed if len(line) <= _LONG]
    long = [line for line in listed if len(line) > _LONG]
    blocks: list[Block] = [Paragraph(inline("With the patch → without it:"))]
    if short:
        blocks.append(Bullets(tuple(inline(Mono(line)) for line in short)))
    blocks += [Details(inline(Mono(line[:80] + " …"), f" {len(line):,} characters"), (Code(line),)) for line in long]
    return Section(title, tuple(blocks))


def _criteria(patch: PatchResult) -> Section:
    rows = tuple(
        Row((inline(c.text), inline(Badge("met", "go") if c.met else Badge("not met", "keep")), inline(c.because)))
        for c in acceptance(patch)
    )
    return Section("Acceptance criteria", (Table(("Criterion", "Met?", "Rests on"), rows),))


def _risk(patch: PatchResult) -> Inline:
    if patch.patch.risk:
        return inline(patch.patch.risk)
    texts = f" {count(len(patch.listed), 'text')} listed above would change." if patch.listed else ""
    return inline(f"None stated by the patch. What the cases do not exercise could still depend on it.{texts}")


def _rollback(patch: PatchResult) -> Inline:
    if patch.patch.rollback:
        return inline(patch.patch.rollback)
    targets = joined(inline(Mono(target)) for target in patch.patch.targets)
    return inline("Revert the commit that deletes it, or declare it again for ", *targets, " with the code above.")
