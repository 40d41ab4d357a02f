"""`python -m opinfo OUT`: the whole database, with queued launches and with synchronous ones, and the page of its figures."""

import hashlib
import sys
from pathlib import Path

import click
from rich.progress import Progress

from opinfo import check, workers
from opinfo.document import page, unexplained
from torch_vnpu import _C
from unpatch.files import write_whole

#: What a pass sets in its workers' environment.
MODES = {"queued": {"TASK_QUEUE_ENABLE": "1"}, "synchronous": {"TASK_QUEUE_ENABLE": "0"}}


def all_asks() -> list[workers.Ask]:
    """Every operator with its main dtype, then the lighter pass."""
    main = [workers.Ask(name, check.short(check.main_dtype(name)), check.SAMPLES) for name in check.OPERATORS]
    light = [
        workers.Ask(name, check.short(dtype), check.LIGHT_SAMPLES)
        for name in check.OPERATORS
        for dtype in check.light_dtypes(name)
    ]
    return main + light


def _state() -> str:
    """Stands for the code under test: answers of other code are not taken up again."""
    digest = hashlib.sha256()
    for file in (_C.__file__, check.__file__):
        digest.update(Path(file).read_bytes())
    return digest.hexdigest()[:12]


@click.command()
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--keep", type=click.Path(path_type=Path), default=Path(".venv/opinfo"), help="Where the answers are kept."
)
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="Worker processes.")
def main(out: Path, keep: Path, jobs: int) -> None:
    """Runs all of PyTorch's operator database and writes its figures to OUT. Interrupted, it goes on where it was.

    Exit code 1: an operator differs and nothing in `known` says why; each is named on stderr.
    """
    keep.mkdir(parents=True, exist_ok=True)
    asks = all_asks()
    results = {}
    with Progress() as progress:
        for mode, environment in MODES.items():
            task = progress.add_task(mode, total=len(asks))
            kept = keep / f"{mode}-{_state()}.jsonl"
            results[mode] = workers.run(
                asks, kept, environment, jobs, lambda count, task=task: progress.update(task, completed=count)
            )
    write_whole(out, page(results))
    wrong = unexplained(results)
    for outcome in wrong:
        click.echo(f"{outcome['op']} ({outcome['dtype']}): {outcome['status']}, {outcome['reason']}", err=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
