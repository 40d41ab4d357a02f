"""What the commands share about standard output: how wide it is, what it cannot show, and documents as JSON."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

ROW = 10_000  #: characters; a row in a pipe is a line
#: What writing to a stream fails with; of files, write_whole says it.
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE})


@contextmanager
def checked_output() -> Iterator[None]:
    """Print what the encoding of standard output has no sign for as an escape, and end in order where it cannot be written.

    Raises SystemExit: with 1 and nothing said where the reader of a pipe has gone, as click has it, else with 2 and a sentence.
    """
    stream = sys.stdout
    errors = stream.errors if isinstance(stream, io.TextIOWrapper) else None
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # as Python does on stderr
    try:
        try:
            yield
        finally:
            with contextlib.suppress(ValueError, AttributeError):  # it is closed, or none
                sys.stdout.flush()  # else the interpreter tries it after the last moment at which we can speak
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # The interpreter flushes it at its end, and would fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(1)
        with contextlib.suppress(OSError):
            click.echo(f"Error: Cannot write the output: {error.strerror}.", err=True)
        sys.exit(2)
    finally:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)  # a program may run next, in this process


def console(pipe_width: int | None = ROW) -> Console:
    """A console on standard output; in a pipe, where nobody's terminal limits it, of `pipe_width` characters (None: 80)."""
    from rich.console import Console

    limited = (sys.stdout is not None and sys.stdout.isatty()) or "COLUMNS" in os.environ
    return Console(width=None if limited else pipe_width)


def quiet_profiler() -> None:
    """Keep torch's profiler from saying on stderr that it starts and stops, unless the user chose what it says.

    For commands that use it inside, or that ask patches whose conditions do. It takes a look at the variable once.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def echo(text: str) -> None:
    """Print a document as UTF-8, whatever the terminal's encoding."""
    click.echo(text.encode(), nl=False)


def echo_json(document: object) -> None:
    """Print a document as indented JSON."""
    from unpatch.report.json import indented

    echo(indented(document))
