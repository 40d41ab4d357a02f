"""The summary that a terminal shows at the end of a study: one table, whose channels stand below it where width lacks.

No word is ever cut, and what each verdict rests on stands below, so that the text is as good in a pipe or a log.
"""

from __future__ import annotations

import io

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unpatch.model import PatchResult, StudyResult
from unpatch.report.blocks import Badge, Tone
from unpatch.report.document import headline
from unpatch.report.words import CHANNELS, HARMFUL, badge, cell, own_branch, reached, removable, visible_result

_STYLES: dict[Tone, str] = {
    "go": "green",
    "harm": "magenta",
    "keep": "bold red",
    "unsure": "yellow",
    "note": "cyan",
    "none": "dim",
}


def summary(result: StudyResult) -> RenderableType:
    """The table of patches and verdicts, and what each verdict rests on."""
    return _Summary(visible_result(result))


def plain(result: StudyResult, width: int) -> str:
    """`summary` as text without colours, at most `width` columns wide."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(summary(result))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


class _Summary:
    def __init__(self, result: StudyResult) -> None:
        self._result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        patches = self._result.patches
        wide = _wide(patches)
        needed = Measurement.get(console, options.update(width=10_000), wide).maximum
        fits = needed <= options.max_width
        yield wide if fits else _narrow(patches)
        yield Text()
        for patch in patches:
            yield Text.assemble(patch.patch.id, ": ", _styled(badge(patch.verdict)), ". ", patch.because)
            if not fits:
                yield Padding(_channels(patch), (0, 0, 0, 2))
        if any(patch.verdict == "harmful" for patch in patches):
            yield Text(HARMFUL)
        if patches:
            yield Text()
        yield Text(headline(self._result) + ".", style="bold")


def _styled(span: Badge) -> Text:
    return Text(span.text, style="" if span.quiet else _STYLES[span.tone])


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


def _wide(patches: tuple[PatchResult, ...]) -> Table:
    table = _table()
    for head in ("patch", "reached", "branch", *CHANNELS, "verdict", "remove?"):
        table.add_column(head, no_wrap=True)
    for patch in patches:
        channels = (_styled(cell(patch.channels.get(channel, "not_compared"))) for channel in CHANNELS)
        table.add_row(*_what(patch), *channels, *_so(patch))
    return table


def _narrow(patches: tuple[PatchResult, ...]) -> Table:
    """Without the channels, which stand below the table."""
    table = _table()
    for head in ("patch", "reached", "branch", "verdict", "remove?"):
        table.add_column(head, overflow="fold")
    for patch in patches:
        table.add_row(*_what(patch), *_so(patch))
    return table


def _channels(patch: PatchResult) -> Text:
    """The channels of a patch by what they say: `harmful: exceptions; inert: keys, operators`."""
    by_verdict: dict[Badge, list[str]] = {}
    for channel in CHANNELS:
        by_verdict.setdefault(cell(patch.channels.get(channel, "not_compared")), []).append(channel)
    loud_first = sorted(by_verdict.items(), key=lambda item: item[0].quiet)
    return Text("; ").join(Text.assemble(_styled(said), ": ", ", ".join(names)) for said, names in loud_first)


def _what(patch: PatchResult) -> tuple[Text, ...]:
    # One remark a line: the column stays narrow enough for the channels to stand beside it.
    return Text(patch.patch.id), Text(reached(patch.reach).replace("; ", ";\n")), Text(own_branch(patch.reach))


def _so(patch: PatchResult) -> tuple[Text, ...]:
    return _styled(badge(patch.verdict)), _styled(removable(patch))
