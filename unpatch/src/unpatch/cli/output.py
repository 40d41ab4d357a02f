"""What the commands share about standard output: how wide it is, what it cannot show, and documents as JSON."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

ROW = 10_000  #: characters; a row in a pipe is a line


def console(pipe_width: int | None = ROW) -> Console:
    """A console on standard output; in a pipe, where nobody's terminal limits it, of `pipe_width` characters (None: 80)."""
    from rich.console import Console

    _print_anything()
    limited = (sys.stdout is not None and sys.stdout.isatty()) or "COLUMNS" in os.environ
    return Console(width=None if limited else pipe_width)


def quiet_profiler() -> None:
    """Keep torch's profiler from saying on stderr that it starts and stops, unless the user chose what it says.

    For commands that use it inside, or that ask patches whose conditions do. It takes a look at the variable once.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def say(text: str) -> None:
    """Print lines."""
    _print_anything()
    click.echo(text)


def _print_anything() -> None:
    """What the encoding of standard output has no sign for is written as an escape, as Python does on stderr."""
    with contextlib.suppress(AttributeError):  # it is no stream of Python's, or closed
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def echo(text: str) -> None:
    """Print a document as UTF-8, whatever the terminal's encoding."""
    click.echo(text.encode(), nl=False)


def echo_json(document: object) -> None:
    """Print a document as indented JSON."""
    from unpatch.report.json import indented

    echo(indented(document))
