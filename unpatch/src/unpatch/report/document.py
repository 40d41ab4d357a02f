"""Builds the evidence document of a study: what a maintainer attaches to the pull request that deletes the patches.

What concerns the whole study is said once here; what concerns one patch is said in `patch_section`. Renderers see only
the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unpatch.model import PatchResult, StudyResult
from unpatch.report.blocks import (
    Block,
    Bullets,
    Code,
    Details,
    Document,
    Facts,
    Inline,
    Link,
    Mono,
    Paragraph,
    Pointer,
    Row,
    Section,
    Strong,
    Table,
    inline,
    joined,
    prose,
)
from unpatch.report.patch_section import patch_section
from unpatch.report.words import (
    CHANNELS,
    MEANINGS,
    badge,
    cell,
    count,
    duration,
    own_branch,
    reached,
    removable,
    visible_result,
    words,
)

Anchors = Mapping[str, str]  # patch id -> anchor of its section


def build(result: StudyResult) -> Document:
    """The evidence document of a judged study."""
    result = visible_result(result)
    info = result.info
    anchors = _anchors(result.patches)
    return Document(
        title=info.title or info.name,
        subtitle=f"Which monkey patches can be deleted: study {info.name}, {result.started}",
        headline=headline(result),
        pointers=tuple(Pointer(anchors[p.patch.id], p.patch.id, badge(p.verdict), p.because) for p in result.patches),
        sections=(
            Section("Conclusion", (Paragraph(_conclusion(result, anchors)), *prose(info.summary)), "conclusion"),
            _summary(result.patches, anchors),
            _purpose(result),
            _environment(result),
            _cases(result, anchors),
            Section("Patches", tuple(patch_section(p, anchors[p.patch.id]) for p in result.patches), "patches"),
            Section("What is not covered", (Bullets(_not_covered(result)),), "not-covered"),
            _artefacts(result),
        ),
    )


def headline(result: StudyResult) -> str:
    """How many patches can go, in a few words."""
    going = sum(patch.removable for patch in result.patches)
    return f"{going} of {count(len(result.patches), 'patch')} can be removed"


def _anchors(patches: Iterable[PatchResult]) -> dict[str, str]:
    """An anchor per patch id: readable, and unique even where ids differ only in punctuation."""
    anchors: dict[str, str] = {}
    for patch in patches:
        slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in patch.patch.id.lower())
        anchor, number = f"patch-{slug}", 1
        while anchor in anchors.values():
            number += 1
            anchor = f"patch-{slug}-{number}"
        anchors[patch.patch.id] = anchor
    return anchors


def _conclusion(result: StudyResult, anchors: Anchors) -> Inline:
    """One paragraph: which patches can go, which cannot, and what that rests on."""
    if not result.patches:
        return inline("The study declares no patch, so there is nothing to conclude.")
    going = [p for p in result.patches if p.removable]
    unsure = [p for p in result.patches if not p.removable and p.verdict == "inconclusive"]
    staying = [p for p in result.patches if not p.removable and p.verdict != "inconclusive"]
    clauses: list[Inline] = [inline(Strong(headline(result)))]
    for what, patches in (("Removable", going), ("To keep", staying), ("Undecided", unsure)):
        if patches:
            links = [inline(Link(p.patch.id, anchors[p.patch.id]), f" ({words(p.verdict)})") for p in patches]
            clauses.append(inline(f"{what}: ", *joined(links)))
    listed = sum(len(p.listed) for p in going)
    if listed:
        texts = "error, message or warning" if listed == 1 else "errors, messages or warnings"
        clauses.append(inline(f"Removing them changes {listed:,} {texts}, all listed"))
    elif going:
        clauses.append(inline("Removing them changes no error, message or warning"))
    rests = f"{count(result.trials, 'trial')}, each in a fresh process, over {count(len(result.info.cases), 'case')}"
    return inline(*joined([*clauses, inline(f"This rests on {rests}")], ". "), ".")


def _summary(patches: tuple[PatchResult, ...], anchors: Anchors) -> Section:
    rows = tuple(
        Row(
            cells=(
                inline(Link(p.patch.id, anchors[p.patch.id])),
                inline(p.patch.group),
                inline(reached(p.reach)),
                inline(own_branch(p.reach)),
                *(inline(cell(p.channels.get(channel, "not_compared"))) for channel in CHANNELS),
                inline(badge(p.verdict)),
                inline(removable(p)),
            ),
            label=inline(Mono(p.patch.id)),
            note=inline(p.because),
        )
        for p in patches
    )
    head = ("Patch", "Group", "Reached", "Own branches", *(c.capitalize() for c in CHANNELS), "Verdict", "Remove?")
    meanings = Facts(tuple((word, inline(meaning)) for word, meaning in MEANINGS))
    rules = prose(
        "Every case ran in fresh processes: with all patches (A), again with all patches (A′, the noise control) and, "
        "for each patch, with that one left out (B). A channel compares A with A′ first, and with B only if those "
        "agree. A patch has the strongest verdict of its cases, in the order of this list; messages and warnings are "
        "listed and decide nothing. A patch can be removed if it is harmful, inert or never acted, and no case is "
        "required, behavioural or inconclusive."
    )
    blocks: tuple[Block, ...] = (
        Table(head, rows),
        Details(inline("What the words mean"), (*rules, meanings)),
    )
    return Section("Summary", blocks, "summary")


def _purpose(result: StudyResult) -> Section:
    info = result.info
    blocks: list[Block] = []
    for title, lines in (("Goals", info.goals), ("Non-goals", info.non_goals), ("Options considered", info.options)):
        blocks.append(Section(title, (Bullets(tuple(inline(line) for line in lines or ("None stated.",))),)))
    return Section("Purpose", tuple(blocks), "purpose")


def _environment(result: StudyResult) -> Section:
    facts = [(name, inline(Mono(value))) for name, value in result.environment.items()]
    if "seed" not in result.environment:
        facts.append(("seed", inline(Mono(str(result.info.seed)))))
    facts.append(("started", inline(Mono(result.started))))
    facts.append(("took", inline(f"{duration(result.seconds)}, {count(result.trials, 'trial')}")))
    blocks: list[Block] = [Facts(tuple(facts)), Paragraph(inline("To reproduce:")), Code(result.command, "sh")]
    if result.info.environment:
        variables = "\n".join(f"{name}={value}" for name, value in result.info.environment.items())
        blocks += [Paragraph(inline("Every trial runs with these environment variables:")), Code(variables, "sh")]
    return Section("Environment and reproduction", tuple(blocks), "environment")


def _cases(result: StudyResult, anchors: Anchors) -> Section:
    def covers(ids: tuple[str, ...]) -> Inline:
        if not ids:
            return inline("every patch")
        return joined(inline(Link(i, anchors[i]) if i in anchors else Mono(i)) for i in ids)

    rows = tuple(
        Row(
            (
                inline(Mono(case.id)),
                inline(" ".join(case.doc.split())),
                inline("yes" if case.compiled else "no"),
                covers(case.covers),
            )
        )
        for case in result.info.cases
    )
    table = Table(("Case", "What must keep working", "Compiled", "Covers"), rows)
    summary = inline(f"{count(len(rows), 'case')} that must keep working")
    return Section("Cases", (Details(summary, (table,), open=len(rows) <= 12),), "cases")


def _not_covered(result: StudyResult) -> tuple[Inline, ...]:
    """What the study says, and what the observations show, to lie outside the evidence."""
    lines = [inline(line) for line in result.info.not_covered]
    if sum(p.removable for p in result.patches) > 1:
        lines.append(
            inline("Each patch was left out alone; leaving out all removable ones together was not tried here.")
        )
    for patch in result.patches:
        silent = [case.case for case in patch.cases if case.verdict in ("nothing", "error_changed")]
        if silent:
            cases = joined(inline(Mono(case)) for case in silent)
            lines.append(inline(Mono(patch.patch.id), ": fails with and without the patch, so not compared: ", *cases))
        if patch.reach.compiled == "unknown":
            lines.append(inline(Mono(patch.patch.id), ": calls inside compiled regions could not be counted."))
    lines.append(inline("Programs that do something else than the cases above."))
    return tuple(lines)


def _artefacts(result: StudyResult) -> Section:
    if not result.artefacts:
        return Section("Artefacts", (Paragraph(inline("No artefact was kept.")),), "artefacts")
    rows = tuple(Row((inline(Mono(a.path)), inline(f"{a.bytes:,}"), inline(Mono(a.sha256)))) for a in result.artefacts)
    return Section("Artefacts", (Table(("File", "Bytes", "SHA-256"), rows, numeric=(1,)),), "artefacts")
