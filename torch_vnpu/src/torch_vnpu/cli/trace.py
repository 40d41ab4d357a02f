"""`vnpu trace`: whether a trace can be trusted, what is left of a broken one, and where the time went."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from torch_vnpu.profiler.checking import Report, check
from torch_vnpu.profiler.drawing import draw
from torch_vnpu.profiler.fields import FieldError
from torch_vnpu.profiler.reading import TraceError
from torch_vnpu.profiler.repairing import repair
from torch_vnpu.profiler.summing import Summary, summarise
from unpatch.files import write_whole, written_whole

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_JSON = click.option("--json", "as_json", is_flag=True, help="The same as JSON.")


@click.group()
def trace() -> None:
    """Check, repair, sum up and draw chrome traces, of this backend or any other.

    A file may be packed with gzip; it is read event by event, so that it may be larger than the memory.
    """


@trace.command("check")
@_FILE
@_JSON
@click.pass_context
def check_command(context: click.Context, file: Path, as_json: bool) -> None:
    """Say whether readers can be trusted with a trace, and at which byte what is wrong.

    It must be JSON; flows have one start and one finish, not before it; the slices of a lane nest, those of a stream do not
    overlap; correlations are unique; times keep their nanoseconds. Exit code 1: something is wrong. Functions of Python
    (with_stack) do not always nest with torch's ranges: that is a note.

    \b
    Example:
      vnpu trace check trace.json
      vnpu trace check trace.json.gz --json
    """
    report = check(file)
    click.echo(json.dumps(dataclasses.asdict(report), indent=2) if as_json else _told(report))
    context.exit(1 if report.failed else 0)


def _told(report: Report) -> str:
    lines = [f"{report.events} events, {report.slices} slices, {report.flows} flows"]
    for problem in report.problems.values():
        what = "note" if problem.note else "problem"
        lines.append(f"{problem.kind}: {problem.count} {what}{'s' if problem.count > 1 else ''}")
        lines += [f"  byte {byte}: {message}" for byte, message in problem.examples]
        if problem.count > len(problem.examples):
            lines.append(f"  and {problem.count - len(problem.examples)} more")
    if "json" in report.problems:
        lines.append("what comes after was not checked; `vnpu trace repair` rescues what it can")
    return _lines(lines if report.failed else [*lines, "nothing is wrong"])


@trace.command("repair")
@_FILE
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="Default: FILE with .repaired.json.")
@_JSON
@click.pass_context
def repair_command(context: click.Context, file: Path, out: Path | None, as_json: bool) -> None:
    """Make a trace readable that is no JSON: quotes that were not escaped, control characters, an end that is missing.

    FILE stays as it is. Whole events are copied byte for byte, broken ones guessed or left out. Exit code 1: events were
    lost, or none was found.

    \b
    Example:
      vnpu trace repair broken.json -o whole.json
    """
    out = out or file.with_name(file.name.removesuffix(".gz").removesuffix(".json") + ".repaired.json")
    try:
        with written_whole(out) as target:
            done = repair(file, target)
    except ValueError as error:
        raise click.ClickException(f"{file} cannot be repaired: {error}") from error
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps({"file": str(out), **dataclasses.asdict(done)}, indent=2))
    else:
        end = ", the end was missing" if done.cut else ""
        around = ", what is around them was changed" if done.metadata else ""
        click.echo(f"{out}: {done.events} events, {done.repaired} repaired, {done.lost} lost{end}{around}")
    context.exit(1 if done.lost else 0)


@trace.command("summary")
@_FILE
@click.option(
    "--top", type=click.IntRange(min=0), default=10, show_default=True, metavar="N", help="Kernels and gaps to show."
)
@_JSON
def summary_command(file: Path, top: int, as_json: bool) -> None:
    """Say where the time went: by kernel, by stream, copies beside computing, idle times and whose fault they are.

    A gap is host-bound where what ends it was launched after the gap began. Times are in microseconds.

    \b
    Example:
      vnpu trace summary trace.json --top 20
    """
    try:
        result = summarise(file, gaps=top)
    except TraceError as error:
        raise click.ClickException(f"{file} is no JSON: {error}. `vnpu trace repair` rescues what it can") from error
    except FieldError as error:
        raise click.ClickException(f"{file} cannot be summed up: {error}; see `vnpu trace check`") from error
    click.echo(json.dumps(dataclasses.asdict(result), indent=2) if as_json else _page(result, top))


@trace.command("draw")
@_FILE
@click.option("-o", "--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The page to write.")
def draw_command(file: Path, out: Path) -> None:
    """Draw a small trace as an HTML page: lanes, slices to scale, flows from launches.

    \b
    Example:
      vnpu trace draw step.json -o step.html
    """
    try:
        page = draw(file)
    except TraceError as error:
        raise click.ClickException(f"{file} is no JSON: {error}. `vnpu trace repair` rescues what it can") from error
    except ValueError as error:
        raise click.ClickException(f"{file} cannot be drawn: {error}") from error
    write_whole(out, page)
    click.echo(str(out))


def _page(result: Summary, top: int) -> str:
    if not result.devices:
        return "nothing ran on a device"
    lines: list[str] = []
    for device in result.devices:
        lines.append(f"device {device.device}: {device.span:.3f} µs from the first slice to the last")
        parts = [
            ("compute", device.compute),
            ("copy", device.copy),
            ("both at once", device.overlap),
            ("idle", device.idle),
        ]
        parts.append((f"of which host-bound, in {device.host_bound_gaps} gaps", device.host_bound))
        lines += [f"  {name:<36} {time:>14.3f} µs  {_share(time, device.span)}" for name, time in parts]
        for gap in device.gaps:
            whose = {True: "host-bound", False: "launched, not yet run", None: "launch unknown"}[gap.host_bound]
            lines.append(f"  gap of {gap.length:.3f} µs at {gap.start:.3f} µs, before {gap.before}: {whose}")
    lines += [
        "",
        *_table(["device", "stream", "slices", "busy (µs)", "idle (µs)"], map(dataclasses.astuple, result.streams)),
    ]
    kernels = [(kernel.total, kernel.count, kernel.longest, kernel.name) for kernel in result.kernels[:top]]
    lines += ["", *_table(["total (µs)", "count", "longest (µs)", "kernel"], kernels)]
    if len(result.kernels) > top:
        lines.append(f"and {len(result.kernels) - top} more (--top)")
    return _lines(lines)


def _lines(lines: list[str]) -> str:
    """As a text that is only that: what a name has of newlines and control characters, for a terminal, is escaped."""
    return "\n".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in lines)


def _share(part: float, whole: float) -> str:
    return f"{part / whole:6.1%}" if whole else ""


def _table(head: list[str], rows: Any) -> list[str]:
    cells = [head, *([f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
