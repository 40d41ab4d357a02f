"""A trace as one HTML page: lanes, slices to scale, flows; no scripts, no network. For traces of some thousand slices."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path
from typing import Any

from torch_vnpu.profiler import fields
from torch_vnpu.profiler.checking import DEVICE
from torch_vnpu.profiler.fields import Lane
from torch_vnpu.profiler.reading import Reader, opened, text

LIMIT = 20_000  #: slices; more would be a page that no browser opens quickly
_WIDTH, _LEFT, _ROW, _GAP = 1340, 150, 17, 14  # pixels
_COLOURS = {
    "kernel": "#1f7a5c",
    "gpu_memcpy": "#b5651d",
    "gpu_memset": "#8a6d3b",
    "user_annotation": "#7b6fb0",
    "cpu_op": "#4f86c6",
}

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 13px system-ui, sans-serif; margin: 12px; background: #fff; color: #1c2330; }}
svg text {{ font-size: 11px; fill: #1c2330; }} svg .in {{ fill: #fff; }}
path {{ fill: none; stroke: #c0392b; stroke-width: .7; opacity: .6; }}
</style></head>
<body><p>{head}</p>
{picture}
</body></html>
"""


class TooManyError(ValueError):
    """The trace has more slices than a page can show."""


def draw(file: Path) -> str:
    """The page. Raises TooManyError, ValueError where there are no slices, FieldError, TraceError and OSError as the reader."""
    slices: dict[Lane, list[dict[str, Any]]] = defaultdict(list)
    flows: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    names: dict[Any, str] = {}
    count = 0
    with opened(file) as source:
        for item in Reader(source):
            event = item.value
            if item.key is not None or not isinstance(event, dict):
                continue
            phase, category = event.get("ph"), fields.word(event, "cat")
            if phase == "X" and category != "Trace":
                count += 1
                if count > LIMIT:
                    raise TooManyError(f"there are more than {LIMIT} slices: profile fewer steps, or use a viewer")
                event["ts"], event["dur"] = fields.time(event) / 1000, fields.duration(event) / 1000
                slices[fields.lane(event)].append(event)
            elif phase in ("s", "f") and category == "ac2g":
                event["ts"] = fields.time(event) / 1000
                flows[fields.word(event, "id")][phase] = event
            elif event.get("name") == "process_labels" and isinstance(labels := event.get("args"), dict):
                names[fields.word(event, "pid")] = text(str(labels.get("labels")))
    if not slices:
        raise ValueError("there are no slices to draw")
    start = min(event["ts"] for lane in slices.values() for event in lane)
    end = max(event["ts"] + event["dur"] for lane in slices.values() for event in lane)
    scale = (_WIDTH - _LEFT) / max(end - start, 1e-3)
    parts: list[str] = []
    rows: dict[Lane, int] = {}  # where a lane begins, in pixels
    top = _GAP
    for lane, events in sorted(
        slices.items(), key=lambda one: (any(e.get("cat") in DEVICE for e in one[1]), str(one[0]))
    ):
        rows[lane] = top
        kind = "stream" if events[0].get("cat") in DEVICE else "thread"
        title = f"{names.get(lane[0]) or text(str(lane[0]))}, {kind} {text(str(lane[1]))}"
        parts.append(f'<text x="4" y="{top + 12}">{escape(title)}</text>')
        depth = 0
        around: list[float] = []
        for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
            around = [until for until in around if until > event["ts"]]
            row, x = len(around), _LEFT + (event["ts"] - start) * scale
            around.append(event["ts"] + event["dur"])
            depth = max(depth, row + 1)
            parts.append(_slice(event, x, top + row * _ROW, max(event["dur"] * scale, 1)))
        top += depth * _ROW + _GAP
    for ends in flows.values():
        if len(ends) == 2:
            parts.append(
                _flow(
                    *[((e["ts"] - start) * scale + _LEFT, rows.get(fields.lane(e), 0)) for e in (ends["s"], ends["f"])]
                )
            )
    head = f"{escape(file.name)}: {count} slices in {(end - start) / 1000:.3f} ms"
    picture = f'<svg width="{_WIDTH}" height="{top}" role="img">\n' + "\n".join(parts) + "\n</svg>"
    page = _PAGE.format(title=escape(file.name), head=head, picture=picture)
    return page.encode(errors="backslashreplace").decode()  # a name may have half of a pair of surrogates


def _slice(event: dict[str, Any], x: float, y: int, width: float) -> str:
    name = escape(text(str(event.get("name", ""))))
    colour = _COLOURS.get(str(event.get("cat")), "#8792a2")
    room = int(width / 6.5)
    label = (
        f'<text class="in" x="{x + 2:.2f}" y="{y + 11}">{escape(text(str(event.get("name", "")))[:room])}</text>'
        if room > 3
        else ""
    )
    tip = f"<title>{name}, {event['dur']} µs</title>"
    return f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_ROW - 2}" fill="{colour}">{tip}</rect>{label}'


def _flow(start: tuple[float, int], finish: tuple[float, int]) -> str:
    (x, y), (to, down) = start, finish
    return f'<path d="M{x:.2f} {y + _ROW} C{x:.2f} {down - 10}, {to:.2f} {y + 30}, {to:.2f} {down}"/>'
