"""Findings for readers: text, JSON, and a page in which the streams are lanes and the two accesses are marked."""

import html
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from torch_vnpu.sanitizer.findings import Finding, Process, Side
from torch_vnpu.sanitizer.frames import Frame, users

_TITLES = {"race": "Race", "host_race": "Race with the host", "use_after_free": "Use after free"}


def as_text(finding: Finding) -> str:
    """One finding in some lines: what, where, the stacks (innermost call first), and the line that would fix it."""
    lines = [f"{_TITLES[finding.kind]}: {finding.second.what} on {finding.second.where}", f"  {finding.missing}"]
    for label, side in (("first", finding.first), ("second", finding.second)):
        lines.append(f"  {label}: {side.what} on {side.where}")
        lines += _stack_lines(finding.frames(side.stack))
    lines.append(f"  memory: {finding.bytes} bytes at {finding.base:#x} of {_memory_text(finding)}, allocated at")
    lines += _allocation_lines(finding)
    if finding.freed and finding.second.argument:
        lines.append("  freed at")
        lines += _stack_lines(finding.frames(finding.freed))
    lines.append(f"  fix: {finding.fix}")
    return "\n".join(lines)


def headline(findings: Sequence[Finding]) -> str:
    """One short line: the first one's kind, where the program makes its two accesses, and how many more there are."""
    finding = findings[0]
    first, second = (users(finding.frames(side.stack)) for side in (finding.first, finding.second))
    where = [f"{os.path.basename(call.file)}:{call.line}" if call else "(no Python stack)" for call in (first, second)]
    if first and second and first.file == second.file:
        where[1] = f":{second.line}"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{_TITLES[finding.kind].lower()}: {' and '.join(where)}{more}"


def report(findings: Sequence[Finding], suppressed: int = 0, processes: Sequence[Process] = ()) -> str:
    """All findings as text, those of other processes after a line that names it, and a line that counts them."""
    parts = [*map(as_text, findings)]
    for process in processes:
        if not process.reported:
            parts.append(_unreported(process))
        elif process.findings:
            parts += [f"{process.title}:", *map(as_text, process.findings)]
    return "\n\n".join([*parts, summary(findings, suppressed, processes)])


def summary(findings: Sequence[Finding], suppressed: int = 0, processes: Sequence[Process] = ()) -> str:
    """One line that counts them by kind, of all processes, and what is not among them."""
    every = [*findings, *(finding for process in processes for finding in process.findings)]
    counts = ((_TITLES[kind].lower(), sum(finding.kind == kind for finding in every)) for kind in _TITLES)
    parts = [f"{count} × {title}" for title, count in counts if count] or ["nothing found"]
    if suppressed := suppressed + sum(process.suppressed for process in processes):
        parts.append(f"{suppressed} suppressed")
    if silent := sum(not process.reported for process in processes):
        parts.append(f"{silent} process{'' if silent == 1 else 'es'} without a report")
    return "npu sanitizer: " + ", ".join(parts)


def as_json(
    findings: Iterable[Finding],
    statistics: dict[str, int] | None = None,
    *,
    suppressed: int = 0,
    processes: Sequence[Process] = (),
) -> str:
    """`{"findings": [...], "suppressed": 0, "processes": [...], "statistics": {...}}`.

    The findings are as `Finding.as_dict` has them; those of another process have its `pid`, too. `processes` has the pid and
    argv of each, and whether it reported.
    """
    document: dict[str, Any] = {"findings": [finding.as_dict() for finding in findings]}
    for process in processes:
        document["findings"] += [{**finding.as_dict(), "pid": process.pid} for finding in process.findings]
    document["suppressed"] = suppressed + sum(process.suppressed for process in processes)
    document["processes"] = [
        {"pid": process.pid, "argv": process.argv, "reported": process.reported} for process in processes
    ]
    if statistics is not None:
        document["statistics"] = statistics
    return json.dumps(document, indent=2)


def as_html(findings: Sequence[Finding], suppressed: int = 0, processes: Sequence[Process] = ()) -> str:
    """A page of its own, without scripts or anything from elsewhere."""
    parts = [_section(number, finding) for number, finding in enumerate(findings, 1)]
    for process in processes:
        if not process.reported:
            parts.append(f"<p>{html.escape(_unreported(process))}</p>")
        elif process.findings:
            parts.append(f"<h2>{html.escape(process.title)}</h2>")
            parts += [_section(number, finding) for number, finding in enumerate(process.findings, 1)]
    page = _PAGE.format(summary=html.escape(summary(findings, suppressed, processes)), body="\n".join(parts))
    return page.encode(errors="backslashreplace").decode()  # the name of a file may be no UTF-8


def _memory_text(finding: Finding) -> str:
    return "the host" if finding.memory_device < 0 else f"npu:{finding.memory_device}"


def _unreported(process: Process) -> str:
    return f"{process.title} ended without a report (by a signal or os._exit), or still runs"


def _allocation_lines(finding: Finding) -> list[str]:
    if finding.allocation_is_unseen:
        return ["    (before the sanitizer was on, or not by npu's allocator)"]
    return _stack_lines(finding.frames(finding.allocated))


def _stack_lines(frames: Sequence[Frame]) -> list[str]:
    return [f"    {frame.file}:{frame.line} in {frame.function}" for frame in frames] or ["    (no Python stack)"]


def _section(number: int, finding: Finding) -> str:
    def stack(title: str, lines: Sequence[str]) -> str:
        text = html.escape("\n".join(line.strip() for line in lines))
        return f"<h3>{html.escape(title)}</h3><pre>{text}</pre>"

    parts = [
        f"<section><h2>{number}. {_TITLES[finding.kind]}</h2>",
        f"<p>{html.escape(finding.missing)}</p>",
        _lanes(finding),
        stack(f"1: {finding.first.what} on {finding.first.where}", _stack_lines(finding.frames(finding.first.stack))),
        stack(
            f"2: {finding.second.what} on {finding.second.where}", _stack_lines(finding.frames(finding.second.stack))
        ),
        stack(
            f"{finding.bytes} bytes at {finding.base:#x} of {_memory_text(finding)}, allocated",
            _allocation_lines(finding),
        ),
    ]
    if finding.freed and finding.second.argument:
        parts.append(stack("freed", _stack_lines(finding.frames(finding.freed))))
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
