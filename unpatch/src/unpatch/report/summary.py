"""The evidence in short, as Markdown for the text of a pull request, whose length GitHub limits.

It is made of the same parts as the whole document, with less of each where they would not fit.
"""

from __future__ import annotations

import dataclasses

import msgspec

from unpatch.model import PatchResult, ProbeRecord, StudyResult
from unpatch.report import markdown
from unpatch.report.blocks import (
    Block,
    Bullets,
    Document,
    Inline,
    Mono,
    Paragraph,
    Section,
    Span,
    Text,
    inline,
)
from unpatch.report.document import conclusion, headline, not_covered, patch_anchors, reproduction, summary
from unpatch.report.patch_section import probes
from unpatch.report.words import badge, removable, visible_result

#: Characters; GitHub refuses a text of more than 65,536.
LIMIT = 60_000
#: Changed errors per patch, and characters of one text: the first with which it fits.
_SIZES = ((12, 480), (4, 480), (1, 240), (0, 100))


def render(result: StudyResult) -> str:
    """The summary as Markdown of less than `LIMIT` characters, unless the study has hundreds of patches."""
    result = visible_result(result)
    rendered = ""
    for most, longest in _SIZES:
        rendered = markdown.render(_build(_shortened(result, longest), most, longest))
        if len(rendered) < LIMIT:
            break
    return rendered


def _build(result: StudyResult, most: int, longest: int) -> Document:
    anchors = patch_anchors(result.patches)
    beyond = Bullets(tuple(_cut(line, longest) for line in not_covered(result)))
    return Document(
        title=result.info.title or result.info.name,
        subtitle=f"Which monkey patches can be deleted: study {result.info.name}, {result.started}",
        headline=headline(result),
        pointers=(),
        sections=(
            conclusion(result, anchors),
            Section("Summary", summary(result.patches, anchors, reasons=False), "summary"),
            *(_patch(patch, anchors[patch.patch.id], most) for patch in result.patches),
            Section("What is not covered", (beyond,), "not-covered"),
            Section("How to reproduce", reproduction(result), "reproduce"),
        ),
    )


def _patch(patch: PatchResult, anchor: str, most: int) -> Section:
    verdict = inline(badge(patch.verdict), ". Can be removed: ", removable(patch), ". ", patch.because)
    blocks: list[Block] = [Paragraph(verdict)]
    if patch.listed:
        shown = [inline(Mono(line)) for line in patch.listed[:most]]
        more = len(patch.listed) - len(shown)
        rest = [inline(f"{more:,} more, in the evidence")] if more else []
        blocks += [Paragraph(inline("Errors, messages and warnings, with the patch → without it:"))]
        blocks += [Bullets((*shown, *rest))]
    if patch.listed_frames:
        told = f"In {len(patch.listed_frames):,} more the error is the same, and only frames of a traceback differ."
        blocks.append(Paragraph(inline(told)))
    if patch.probes:
        blocks += probes(patch.probes)
    return Section(patch.patch.title or patch.patch.id, tuple(blocks), anchor)


# ------------------------------------------------------------------------------------------ long texts
def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} …"


def _shortened(result: StudyResult, longest: int) -> StudyResult:
    replace = msgspec.structs.replace
    info = replace(
        result.info, title=_short(result.info.title, longest), summary=_short(result.info.summary, 3 * longest)
    )
    patches = tuple(
        replace(
            patch,
            patch=replace(patch.patch, title=_short(patch.patch.title, longest)),
            because=_short(patch.because, longest),
            listed=tuple(_short(line, longest) for line in patch.listed),
            probes=tuple(_short_probe(probe, longest) for probe in patch.probes),
        )
        for patch in result.patches
    )
    return replace(result, info=info, patches=patches)


def _short_probe(probe: ProbeRecord, longest: int) -> ProbeRecord:
    texts = {name: _short(getattr(probe, name), longest) for name in ("what", "before", "after", "error")}
    return msgspec.structs.replace(probe, **texts)


def _cut(line: Inline, longest: int) -> Inline:
    """A line of at most a few texts: one that names many cases says how many more there are."""
    kept: list[Span] = []
    length = 0
    for number, span in enumerate(line):
        length += len(span.text)
        if kept and length > longest and isinstance(span, Text):
            return (*kept, Text(f" and {sum(isinstance(rest, Mono) for rest in line[number:])} more"))
        kept.append(dataclasses.replace(span, text=_short(span.text, longest)))
    return tuple(kept)
