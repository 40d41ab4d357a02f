"""Builds the evidence document of a study: what a maintainer attaches to the pull request that deletes the patches.

What concerns the whole study is said once here; what concerns one patch is said in `patch_section`. Renderers see only
the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from unpatch.model import CaseInfo, PatchResult, StudyResult
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
    HARMFUL,
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


def build(result: StudyResult, *, compact: bool = False) -> Document:
    """The evidence document of a judged study; `compact` says of each patch once what else each of its cases says."""
    result = visible_result(result)
    info = result.info
    anchors = patch_anchors(result.patches)
    return Document(
        title=info.title or info.name,
        subtitle=f"Which monkey patches can be deleted: study {info.name}, {result.started}",
        headline=headline(result),
        pointers=tuple(Pointer(anchors[p.patch.id], p.patch.id, badge(p.verdict), p.because) for p in result.patches),
        sections=(
            conclusion(result, anchors),
            Section("Summary", (*summary(result.patches, anchors), _meanings()), "summary"),
            _purpose(result),
            _environment(result),
            _cases(result, anchors),
            Section(
                "Patches", tuple(patch_section(p, anchors[p.patch.id], compact) for p in result.patches), "patches"
            ),
            Section("What is not covered", (Bullets(not_covered(result)),), "not-covered"),
            _artefacts(result),
        ),
    )


def headline(result: StudyResult) -> str:
    """How many patches can go, in a few words."""
    going = sum(patch.removable for patch in result.patches)
    said = f"{going} of {count(len(result.patches), 'patch')} can be removed"
    missing = len(not_judged(result))
    return f"{said}, {missing:,} not judged" if missing else said


def not_judged(result: StudyResult) -> tuple[str, ...]:
    """The ids of the patches that the study declares and that `--only` left out."""
    judged = {patch.patch.id for patch in result.patches}
    return tuple(patch.id for patch in result.info.patches if patch.id not in judged)


def _cases_run(result: StudyResult) -> list[CaseInfo]:
    run = {case.case for patch in result.patches for case in patch.cases}
    return [case for case in result.info.cases if case.id in run or not not_judged(result)]


def patch_anchors(patches: Iterable[PatchResult]) -> dict[str, str]:
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


def conclusion(result: StudyResult, anchors: Anchors) -> Section:
    """What the study found, and what it is about."""
    return Section("Conclusion", (Paragraph(_concluded(result, anchors)), *prose(result.info.summary)), "conclusion")


def _concluded(result: StudyResult, anchors: Anchors) -> Inline:
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
    if missing := not_judged(result):
        were = "patch was" if len(missing) == 1 else "patches were"
        clauses.append(inline(f"{len(missing):,} {were} not judged (--only): {', '.join(missing)}"))
    if going:
        clauses.append(inline(_changes(going)))
    rests = f"{count(result.trials, 'trial')}, each in a fresh process, over {count(len(_cases_run(result)), 'case')}"
    return inline(*joined([*clauses, inline(f"This rests on {rests}")], ". "), ".")


def _changes(going: list[PatchResult]) -> str:
    """How many texts change for users; errors that read the same but for the frames they hold are counted apart."""
    texts, frames = (sum(map(len, lines)) for lines in zip(*((p.listed, p.listed_frames) for p in going), strict=True))
    said = "Removing them changes no error, message or warning"
    if texts:
        noun = "error, message or warning" if texts == 1 else "errors, messages or warnings"
        said = f"Removing them changes {texts:,} {noun}, all listed"
    if frames:
        said += f"; in {count(frames, 'more error' if texts else 'error')} only the frames of a traceback differ"
    return said


def summary(patches: tuple[PatchResult, ...], anchors: Anchors, reasons: bool = True) -> tuple[Block, ...]:
    """One row per patch, with what its verdict rests on unless this is said elsewhere."""
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
            note=inline(p.because) if reasons else (),
        )
        for p in patches
    )
    head = ("Patch", "Group", "Reached", "Own branches", *(c.capitalize() for c in CHANNELS), "Verdict", "Remove?")
    harmful = any(patch.verdict == "harmful" for patch in patches)
    return (Table(head, rows), *((Paragraph(inline(HARMFUL)),) if harmful else ()))


def _meanings() -> Details:
    meanings = Facts(tuple((word, inline(meaning)) for word, meaning in MEANINGS))
    rules = prose(
        "Every case ran in fresh processes: with all patches (A), again with all patches (A′, the noise control) and, "
        "for each patch, with that one left out (B). A channel compares A with A′ first, and with B only if those "
        "agree. A patch has the strongest verdict of its cases, in the order of this list; messages and warnings are "
        "listed and decide nothing. A patch can be removed if it is harmful, inert or never acted, and no case is "
        "required, behavioural or inconclusive."
    )
    return Details(inline("What the words mean"), (*rules, meanings))


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
    return Section("Environment and reproduction", (Facts(tuple(facts)), *reproduction(result)), "environment")


def reproduction(result: StudyResult) -> tuple[Block, ...]:
    """How to run the study again."""
    blocks: list[Block] = [Paragraph(inline("To reproduce:")), Code(result.command, "sh")]
    if result.info.environment:
        variables = "\n".join(f"{name}={value}" for name, value in result.info.environment.items())
        blocks += [Paragraph(inline("Every trial runs with these environment variables:")), Code(variables, "sh")]
    return tuple(blocks)


def _cases(result: StudyResult, anchors: Anchors) -> Section:
    def covers(ids: tuple[str, ...]) -> Inline:
        if not ids:
            return inline("every patch")
        return joined(inline(Link(i, anchors[i]) if i in anchors else Mono(i)) for i in ids)

    cases = _cases_run(result)
    # Of a parametrised workload everything but the names is said once.
    grouped = groupby(cases, lambda case: (case.workload, case.doc, case.compiled, case.covers))
    rows = tuple(
        Row(
            (
                inline(Mono(workload)),
                inline(" ".join(doc.split())),
                joined((inline(Mono(case.id)) for case in group), " "),
                inline("yes" if is_compiled else "no"),
                covers(covered),
            )
        )
        for (workload, doc, is_compiled, covered), group in grouped
    )
    table = Table(("Workload", "What must keep working", "Cases", "Compiled", "Covers"), rows)
    summary = inline(f"{count(len(cases), 'case')} that must keep working")
    return Section("Cases", (Details(summary, (table,), open=len(cases) <= 12),), "cases")


def not_covered(result: StudyResult) -> tuple[Inline, ...]:
    """What the study says, and what the observations show, to lie outside the evidence."""
    lines = [inline(line) for line in result.info.not_covered]
    if missing := not_judged(result):
        lines.append(
            inline(f"{count(len(missing), 'patch')} not judged (--only): ", *joined(inline(Mono(id)) for id in missing))
        )
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
