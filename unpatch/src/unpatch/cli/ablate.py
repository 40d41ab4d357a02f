"""`unpatch ablate`: runs a study, shows its verdicts and writes the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import click

from unpatch.cli import INTERRUPTED, output
from unpatch.cli.signals import ended_in_order

if TYPE_CHECKING:
    from rich.console import Console

    from unpatch.ablate.trial import Event, Progress

_PIPE_WIDTH = 150  #: characters; where nobody's terminal limits it, the table shows every channel as a column
_FAILURES = 5  #: of arm A that are shown; the evidence has all


@click.command()
@click.argument("study", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("evidence"),
    show_default=True,
    help="Folder for the finished trials and the evidence.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Processes at once.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds that a case may take before its process is ended.",
)
@click.option("--resume", is_flag=True, help="Use the finished trials in --out instead of removing them.")
@click.option("--only", metavar="ID[,ID]", multiple=True, help="Judge these patches only; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the evidence as JSON instead of the table.")
def ablate(
    study: Path, out: Path, jobs: int, timeout: float, resume: bool, only: tuple[str, ...], as_json: bool
) -> None:
    """Run a study: which patches can be deleted?

    STUDY is a folder with a study.py, or a Python file. Every patch is left out once, in a fresh process, and what its
    workloads do without it is compared with two runs with it. Exit code 0 means that the study was judged, whatever
    the verdicts are.

    \b
    Example:
      unpatch ablate studies/torch_npu
      unpatch ablate studies/torch_npu --only tensor-type --out evidence/tensor-type
    """
    from rich.console import Console

    from unpatch import report
    from unpatch.ablate.run import run_study
    from unpatch.report import table

    chosen = [id for id in (part.strip() for text in only for part in text.split(",")) if id]
    if only and not chosen:
        raise click.UsageError("--only names no patch.")
    with ended_in_order(), _progress(Console(stderr=True)) as progress:
        try:
            result = run_study(study, out, jobs=jobs, timeout=timeout, resume=resume, only=chosen, progress=progress)
        except KeyboardInterrupt:
            click.echo("Interrupted. Finished trials are kept: go on with --resume.", err=True)
            click.get_current_context().exit(INTERRUPTED)
    files = report.write(result, out)
    if as_json:
        output.echo(report.render(result, "json"))
        return
    output.console(_PIPE_WIDTH).print(table.summary(result))
    click.echo(f"Written: {', '.join(map(str, files))}", err=True)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    """Bars on a terminal; elsewhere one line for each finished trial."""
    if not console.is_terminal:
        yield _print_finished
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        whole = bars.add_task("trials", total=None)
        running: dict[str, TaskID] = {}
        lock = Lock()

        def show(event: Event) -> None:
            with lock:
                if event.kind == "planned":
                    bars.update(whole, total=event.total)
                elif event.kind == "started":
                    running[event.trial] = bars.add_task(event.trial, total=event.total)
                elif event.kind == "advanced":
                    bars.update(running[event.trial], completed=event.done)
                else:
                    for line in _failures(event):
                        console.print(line, markup=False, highlight=False)
                    bars.advance(whole)
                    if event.trial in running:
                        bars.remove_task(running.pop(event.trial))

        yield show


def _print_finished(event: Event) -> None:
    from unpatch.report.words import line

    if event.kind == "finished":
        click.echo(line(f"{event.trial}: {event.note or f'{event.total} done'}"), err=True)
    elif event.kind == "reused":
        click.echo(line(f"{event.trial}: {event.total} from an earlier run"), err=True)
    for failure in _failures(event):
        click.echo(failure, err=True)


def _failures(event: Event) -> list[str]:
    """What fails with all patches in place: perhaps what the study is about, perhaps a mistake in it."""
    from unpatch.report.words import line

    shown = [f"  {line(failure)}" for failure in event.failures[:_FAILURES]]
    more = len(event.failures) - len(shown)
    return [*shown, f"  … and {more} more, in the evidence"] if more else shown
