"""Findings for readers: text, JSON, and a page in which the streams are lanes and the two accesses are marked."""

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from torch_vnpu.sanitizer.findings import Finding, Frame, Side

_TITLES = {"race": "Race", "host_race": "Race with the host", "use_after_free": "Use after free"}


def as_text(finding: Finding) -> str:
    """One finding in some lines: what, where, the stacks (innermost call first), and the line that would fix it."""
    lines = [f"{_TITLES[finding.kind]}: {finding.second.what} on {finding.second.where}", f"  {finding.missing}"]
    for label, side in (("first", finding.first), ("second", finding.second)):
        lines.append(f"  {label}: {side.what} on {side.where}")
        lines += _stack_lines(finding.frames(side.stack))
    lines.append(f"  memory: {finding.bytes} bytes at {finding.base:#x} of {_memory_text(finding)}, allocated at")
    lines += _stack_lines(finding.frames(finding.allocated))
    if finding.freed and finding.second.argument:
        lines.append("  freed at")
        lines += _stack_lines(finding.frames(finding.freed))
    lines.append(f"  fix: {finding.fix}")
    return "\n".join(lines)


def report(findings: Sequence[Finding]) -> str:
    """All findings as text, and a line that counts them."""
    return "\n\n".join([*map(as_text, findings), summary(findings)])


def summary(findings: Sequence[Finding]) -> str:
    """One line that counts them by kind."""
    if not findings:
        return "npu sanitizer: nothing found"
    counts = ((_TITLES[kind].lower(), sum(finding.kind == kind for finding in findings)) for kind in _TITLES)
    return "npu sanitizer: " + ", ".join(f"{count} × {title}" for title, count in counts if count)


def as_json(findings: Iterable[Finding], statistics: dict[str, int] | None = None) -> str:
    """`{"findings": [...], "statistics": {...}}`; the findings as `Finding.as_dict` has them."""
    document: dict[str, Any] = {"findings": [finding.as_dict() for finding in findings]}
    if statistics is not None:
        document["statistics"] = statistics
    return json.dumps(document, indent=2)


def as_html(findings: Sequence[Finding]) -> str:
    """A page of its own, without scripts or anything from elsewhere."""
    body = "\n".join(_section(number, finding) for number, finding in enumerate(findings, 1))
    page = _PAGE.format(summary=html.escape(summary(findings)), body=body)
    return page.encode(errors="backslashreplace").decode()  # the name of a file may be no UTF-8


def _memory_text(finding: Finding) -> str:
    return "the host" if finding.memory_device < 0 else f"npu:{finding.memory_device}"


def _stack_lines(frames: Sequence[Frame]) -> list[str]:
    return [f"    {frame.file}:{frame.line} in {frame.function}" for frame in frames] or ["    (no Python stack)"]


def _section(number: int, finding: Finding) -> str:
    def stack(title: str, frames: Sequence[Frame]) -> str:
        text = html.escape("\n".join(line.strip() for line in _stack_lines(frames)))
        return f"<h3>{html.escape(title)}</h3><pre>{text}</pre>"

    parts = [
        f"<section><h2>{number}. {_TITLES[finding.kind]}</h2>",
        f"<p>{html.escape(finding.missing)}</p>",
        _lanes(finding),
        stack(f"1: {finding.first.what} on {finding.first.where}", finding.frames(finding.first.stack)),
        stack(f"2: {finding.second.what} on {finding.second.where}", finding.frames(finding.second.stack)),
        stack(
            f"{finding.bytes} bytes at {finding.base:#x} of {_memory_text(finding)}, allocated",
            finding.frames(finding.allocated),
        ),
    ]
    if finding.freed and finding.second.argument:
        parts.append(stack("freed", finding.frames(finding.freed)))
    parts.append(f"<p>Fix: <code>{html.escape(finding.fix)}</code></p></section>")
    return "\n".join(parts)


def _lanes(finding: Finding) -> str:
    """The streams of the two accesses and of the memory as lanes, time to the right; the missing order is the dashed arrow."""
    lanes: list[tuple[int, int]] = []
    for lane in (
        (finding.first.device, finding.first.stream),
        finding.owner,
        (finding.second.device, finding.second.stream),
    ):
        if lane is not None and lane not in lanes:
            lanes.append(lane)
    height, left, width = 56, 190, 820

    def middle(lane: tuple[int, int]) -> int:
        return lanes.index(lane) * height + height // 2

    parts = [
        f'<svg viewBox="0 0 {width} {len(lanes) * height}" role="img" aria-label="{html.escape(finding.missing)}">'
    ]
    for lane in lanes:
        name = html.escape(Side("", "", *lane, False, 0).where)
        y = middle(lane)
        parts.append(
            f'<text x="8" y="{y + 5}">{name}</text><line class="lane" x1="{left}" y1="{y}" x2="{width}" y2="{y}"/>'
        )
    marks = []
    for number, side, x in ((1, finding.first, left + 30), (2, finding.second, left + 350)):
        y = middle((side.device, side.stream))
        marks.append((x, y))
        kind = "write" if side.written else "read"
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{y - 17}" width="250" height="34" rx="4"/>'
            f'<text x="{x + 8}" y="{y + 5}">{number}: {html.escape(side.operation[:30])}</text>'
        )
    (x1, y1), (x2, y2) = marks
    parts.append(f'<line class="missing" x1="{x1 + 250}" y1="{y1}" x2="{x2}" y2="{y2}"/></svg>')
    return "".join(parts)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>npu sanitizer</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
pre {{ background: #f4f4f4; padding: .6em; overflow-x: auto; }}
svg {{ width: 100%; border: 1px solid #ddd; }}
svg text {{ font-size: 13px; }}
.lane {{ stroke: #aaa; }}
.write {{ fill: #f6c7c0; stroke: #b03020; }}
.read {{ fill: #cfe0f5; stroke: #2a5d9f; }}
.missing {{ stroke: #b03020; stroke-width: 2; stroke-dasharray: 6 5; }}
</style></head><body>
<h1>{summary}</h1>
{body}
</body></html>
"""
