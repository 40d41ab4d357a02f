"""`vnpu sanitize`: the races in a recorded log."""

from __future__ import annotations

from pathlib import Path

import click

from torch_vnpu.cli import package

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--replay", "log", type=_FILE, required=True, help="The log that `vnpu run --sanitize --log LOG` wrote.")
@click.option("--suppress", type=_FILE, help="A file of suppressions.")
@click.option("--json", "as_json", is_flag=True, help="The findings as JSON.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also a page with the streams as lanes.")
@click.pass_context
def sanitize(context: click.Context, log: Path, suppress: Path | None, as_json: bool, html: Path | None) -> None:
    """Tell the races and uses after free that a recorded log shows; no device is used.

    Exit code 0: nothing was found, 1: something was, 2: the log cannot be read.

    \b
    Example:
      vnpu run --sanitize --log run.log train.py
      vnpu sanitize --replay run.log --html findings.html
    """
    package.require()
    from torch_vnpu.sanitizer.run import replay_log

    context.exit(replay_log(log, suppress=suppress, json=as_json, html=html))
