"""The part of the evidence document that concerns one patch: what it is, its reach, what changes without it.

The order is that of a reviewer's questions; everything long is folded away, what speaks against removal is not.
"""

from __future__ import annotations

from collections.abc import Iterable

from unpatch.model import ArmSummary, CaseResult, ErrorInfo, PatchResult, ProbeRecord
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
    HARMFUL,
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

_LONG = 480  # characters: a longer text is folded away, whole
_SILENT = ("nothing", "error_changed")  # verdicts of cases that conclude nothing: they fail in both arms
_AGAINST = ("required", "behavioural", "inconclusive", "harmful")  # verdicts of cases that a reader must look at
_MANY = 12  # cases: a longer list is folded away, whole
_NAMED = 8  # cases of which a compact document says each one's operators


def patch_section(patch: PatchResult, anchor: str, compact: bool = False) -> Section:
    """Everything that the study knows about one patch; `compact` leaves out what its cases have in common."""
    info = patch.patch
    verdict = inline(badge(patch.verdict), ". Can be removed: ", removable(patch), ". ", patch.because)
    code = inline("Code of the replacements and of their helpers, from ", Mono(info.source))
    blocks = (
        Paragraph(verdict),
        *((Paragraph(inline(HARMFUL)),) if patch.verdict == "harmful" else ()),
        _identity(patch),
        Details(code, (Code(info.code, "python"),)),
        _reach(patch, compact),
        _comparison(patch, compact),
        _operators(patch.cases, compact),
        _changes(patch),
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
            ("For versions", inline(Mono(info.versions) if info.versions else "not stated")),
            ("Goes when", inline(Mono(info.remove_when) if info.remove_when else "no condition declared")),
        )
    )


# ------------------------------------------------------------------------------------------------------ reach
def _reach(patch: PatchResult, compact: bool) -> Section:
    summary = inline(
        "Reached: ", Strong(reached(patch.reach)), ". Own branches: ", Strong(own_branch(patch.reach)), "."
    )
    head = ("Case", "Calls", "Threads", "Own branches run", "Compiled", *(() if compact else ("Lines run",)))
    cells = [_reach_cells(case, patch)[: len(head)] for case in patch.cases]
    table = Details(
        inline(f"Reach in {count(len(cells), 'case')}"),
        (Table(head, _rows(cells, compact), numeric=(1,)),),
        open=len(cells) <= _MANY,
    )
    return Section("Reach", (Paragraph(summary), *_never_run(patch, compact), table, *probes(patch.probes)))


def _rows(cells: list[tuple[Inline, ...]], compact: bool) -> tuple[Row, ...]:
    """A row for each case, whose name is its first cell; if `compact`, one for all cases that say the same."""
    if not compact:
        return tuple(map(Row, cells))
    alike: dict[tuple[Inline, ...], list[Inline]] = {}
    for name, *rest in cells:
        alike.setdefault(tuple(rest), []).append(name)
    return tuple(Row((joined(names, " "), *rest)) for rest, names in alike.items())


def _never_run(patch: PatchResult, compact: bool) -> Iterable[Block]:
    """Which of the patch's own branches no case ran: what the evidence does not speak of."""
    declared = patch.patch.branches
    if not patch.reach.calls or not declared:
        return
    ran = {line for case in patch.cases if case.reach is not None for line in case.reach.lines_run}
    missed = [line for line in declared if line.place not in ran]
    if compact and ran:
        lines = joined(inline(Mono(line.place)) for line in declared if line.place in ran)
        yield Paragraph(inline("Lines run in some case: ", *lines))
    if missed:
        label = inline(f"{len(missed):,} of {count(len(declared), 'own branch line')} never ran in any case:")
        listed = Bullets(tuple(inline(Mono(line.place), " ", Mono(line.text)) for line in missed))
        yield Paragraph(label)
        yield listed


def _reach_cells(case: CaseResult, patch: PatchResult) -> tuple[Inline, ...]:
    reach = case.reach
    if reach is None:
        return (inline(Mono(case.case)), inline("not measured"), (), (), (), ())
    # The same number for every case: a trial counts only the functions that it entered.
    total = max(reach.branches, len(patch.patch.branches))
    own = f"{reach.branches_run} of {total}" if total else "none of its own"
    return (
        inline(Mono(case.case)),
        inline(f"{reach.calls:,}"),
        inline(", ".join(reach.threads) or "none"),
        inline(own),
        inline(compiled(reach.compiled) or "no"),
        joined(inline(Mono(line)) for line in reach.lines_run) or inline("none"),
    )


def probes(probes: tuple[ProbeRecord, ...]) -> tuple[Block, ...]:
    """What the direct probes of a patch saw."""
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
def _comparison(patch: PatchResult, compact: bool) -> Section:
    if not patch.cases:
        return Section("Comparison per case", (Paragraph(inline("No case covers this patch.")),))
    head = ("Case", "A", "A′", "B", *(channel.capitalize() for channel in CHANNELS), "Verdict")
    intro = inline("A: with the patch, A′: the same again, B: without it; all other patches are in place in all three.")
    silent = sum(case.verdict in _SILENT for case in patch.cases)
    blocks: list[Block] = [Paragraph(intro), Table(head, _rows([*map(_case_cells, patch.cases)], compact))]
    if silent:
        failed = f"{silent} of {count(len(patch.cases), 'case')} failed both with and without the patch"
        blocks.append(Paragraph(inline(f"{failed}; nothing is concluded from such a case.")))
    eventful = [case for case in patch.cases if not _uneventful(case)]
    detailed = [case for case in eventful if not compact or case.verdict in _AGAINST or _noisy(case)]
    blocks += map(_case_details, detailed)
    if len(detailed) < len(eventful):
        blocks += _compacted([case for case in eventful if case not in detailed])
    return Section("Comparison per case", tuple(blocks))


def _compacted(cases: list[CaseResult]) -> Iterable[Block]:
    """What the other cases say of channels that are not inert, once for all that say the same."""
    told: dict[str, list[str]] = {}
    for case in cases:
        for line in _not_compared(case):
            told.setdefault(line, []).append(case.case)
    if told:
        yield Bullets(tuple(inline(f"{line} ({count(len(names), 'case')})") for line, names in told.items()))
    yield Paragraph(inline("Each case's three runs and their whole messages are in the HTML and the JSON."))


def _case_cells(case: CaseResult) -> tuple[Inline, ...]:
    outcomes = {arm.arm: words(arm.outcome) for arm in case.arms}
    channels = {channel.channel: channel.verdict for channel in case.channels}
    return (
        inline(Mono(case.case), " compiled" if case.compiled else ""),
        *(inline(outcomes.get(arm, "not run")) for arm in ("A", "A'", "B")),
        *(inline(cell(channels.get(channel, "not_compared"))) for channel in CHANNELS),
        inline(badge(case.verdict), " (no conclusion)" if case.verdict in _SILENT else ""),
    )


def _uneventful(case: CaseResult) -> bool:
    return case.verdict == "inert" and all(channel.verdict == "inert" for channel in case.channels)


def _noisy(case: CaseResult) -> bool:
    """Whether a channel says nothing because A and A′ differ in it; no other list has this."""
    return any(channel.verdict == "inconclusive" for channel in case.channels)


def _case_details(case: CaseResult) -> Details:
    """What one case saw: its arms, their errors and every channel that is not inert."""
    head = ("Arm", "Outcome", "Operators", "Tensors", "Took", "Error", "Where")
    arms = Table(head, tuple(map(_arm_row, case.arms)), numeric=(2, 3, 4))
    blocks: list[Block] = [arms, *_messages(case.arms)]
    for channel in case.channels:
        if channel.verdict not in ("inert", "not_compared"):
            blocks += _explained(inline(Strong(channel.channel), ": ", badge(channel.verdict)), channel.detail)
    skipped = _not_compared(case)
    if skipped:
        blocks.append(Bullets(tuple(inline(line) for line in skipped)))
    return Details(inline(Mono(case.case), ": ", badge(case.verdict)), tuple(blocks), open=case.verdict in _AGAINST)


def _not_compared(case: CaseResult) -> list[str]:
    """The channels that were not compared, each with its own reason; those with the same reason in one line."""
    by_reason: dict[str, list[str]] = {}
    for channel in case.channels:
        if channel.verdict == "not_compared":
            by_reason.setdefault(channel.detail, []).append(channel.channel)
    return [
        f"{enumeration(names)}: not compared" + (f", {reason}" if reason else "") for reason, names in by_reason.items()
    ]


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
def _operators(cases: tuple[CaseResult, ...], compact: bool) -> Section:
    """The names by which the recorder saw the operators: the internal ones, not those of the public functions."""
    blocks: list[Block] = []
    if compact and len(cases) > _NAMED:
        names = sorted({name for case in cases for arm in case.arms for name in arm.names})
        if names:
            said = (
                f"{count(len(names), 'distinct name')} in {count(len(cases), 'case')} (each case's are in the HTML): "
            )
            blocks.append(Paragraph(inline(said, *joined((inline(Mono(name)) for name in names), " "))))
        cases = tuple(case for case in cases if len({arm.names for arm in case.arms if arm.names}) > 1)
    rows = tuple(row for case in cases for row in _operator_rows(case))
    if rows:
        table = Table(("Case", "Arm", "Operators", "Distinct names", "By thread"), rows, numeric=(2,))
        summary = inline(f"Names that the recorder saw in {count(len(cases), 'case')}")
        blocks.append(Details(summary, (table,), open=len(cases) <= _MANY))
    return Section("Operators seen", tuple(blocks) or (Paragraph(inline("No operator was recorded.")),))


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
def _changes(patch: PatchResult) -> Section:
    title = "Changed errors, messages and warnings"
    blocks: list[Block] = []
    if not patch.listed and not patch.listed_frames:
        blocks.append(Paragraph(inline("None: in every case they are the same with and without the patch.")))
    if patch.listed:
        blocks += [Paragraph(inline("With the patch → without it:")), *_lines(patch.listed)]
    if patch.listed_frames:
        blocks.append(
            Paragraph(inline("The same error, and only other frames in the traceback that its message holds:"))
        )
        blocks += _lines(patch.listed_frames)
    return Section(title, tuple(blocks))


def _lines(listed: tuple[str, ...]) -> Iterable[Block]:
    short = [line for line in listed if len(line) <= _LONG]
    if short:
        yield Bullets(tuple(inline(Mono(line)) for line in short))
    for line in listed:
        if len(line) > _LONG:
            yield Details(inline(Mono(line[:80] + " …"), f" {len(line):,} characters"), (Code(line),))


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
    return inline(
        "Revert the commit that deletes it, or declare it again for ",
        *targets,
        " with the code above, and with the imports and constants of its file that the code names.",
    )
