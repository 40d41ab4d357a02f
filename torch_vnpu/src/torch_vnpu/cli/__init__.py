"""The command `vnpu`.

A program that it runs is started after the command line is done with, so that nothing of click lies around the program: neither
its handling of exceptions nor of interrupts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from torch_vnpu.cli.info import info
from torch_vnpu.cli.program import Checked, Program
from torch_vnpu.cli.run import run
from torch_vnpu.cli.sanitize import sanitize
from torch_vnpu.cli.trace import trace
from unpatch.cli.output import checked_output
from unpatch.errors import UnpatchError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Run programs on the virtual NPU, and tell what is installed.

    Exit codes: 0 success, 1 a negative result, 2 wrong usage; those of `vnpu run` are the program's.
    """


commands.add_command(info)
commands.add_command(run)
commands.add_command(sanitize)
commands.add_command(trace)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Args:
        arguments: without the command's name; those of the process by default.
    """
    try:
        with checked_output():
            done = commands.main(arguments, prog_name="vnpu", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UnpatchError as error:
        click.echo(f"Error: {error.message}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:  # of a file
        where = "" if error.filename is None else f"'{os.fsdecode(error.filename)}': "
        click.echo(f"Error: {where}{error.strerror or error}", err=True)
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    sys.exit(done.start() if isinstance(done, Program | Checked) else done)
