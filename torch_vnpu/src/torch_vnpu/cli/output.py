"""What a command prints arrives or is missed in one sentence: texts that cannot be encoded, full disks, closed pipes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def checked_output() -> Iterator[None]:
    """Show what cannot be encoded by escapes, and end the process where stdout, or a file, cannot be written or read.

    Raises SystemExit: with 1 and nothing said where the reader of a pipe has gone, else with 2 and a sentence on stderr.
    """
    stream = sys.stdout
    errors = stream.errors if isinstance(stream, io.TextIOWrapper) else None
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except OSError as error:
        where = "the output" if error.filename is None else f"'{os.fsdecode(error.filename)}'"
        print(f"Error: {where}: {error.strerror or error}", file=sys.stderr)
        _drop_output()
        sys.exit(2)
    finally:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _drop_output() -> None:
    """What is left in the buffer would fail once more when the interpreter ends."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
