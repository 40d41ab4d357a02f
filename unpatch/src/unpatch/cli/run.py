"""`unpatch run`: a program with chosen found patches left out."""

from __future__ import annotations

import sys

import click

_INTERRUPTED = 130  #: exit code, as shells have it for a program that SIGINT ended


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--without",
    metavar="ID[,ID]",
    multiple=True,
    required=True,
    help="A found patch, as `unpatch audit` names it; its writes are never made. May be repeated.",
)
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(without: tuple[str, ...], script: str, arguments: tuple[str, ...]) -> None:
    """Run a program with chosen found patches left out.

    SCRIPT runs as `python SCRIPT ARGUMENTS…` does, in this fresh process. A patch whose writer is not traced (`~` in its id)
    is undone after the import of its package, and stderr says so. Exit code: the program's own, or 1 if it ended well
    and never came to write one of the patches.

    \b
    Example:
      unpatch run --without torch.select@torch_geometric.hash_tensor train.py
    """
    from unpatch.audit.activate import run_script
    from unpatch.audit.errors import AuditError
    from unpatch.audit.suppress import Suppression, parse_ids

    suppression = Suppression(parse_ids(without), lambda text: click.echo(text, err=True))
    suppression.install()
    sys.argv = [script, *arguments]
    try:
        run_script(script, suppression.code_of, suppression.tracer)
    except SystemExit as end:
        if end.code:
            raise
    except AuditError:
        raise
    except BaseException as error:
        _show(error)
        click.get_current_context().exit(_INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
    missing = [id.text for id in suppression.ids if id not in suppression.left_out]
    if missing:
        click.echo(
            f"Never written, so nothing was left out: {', '.join(missing)}. "
            "A patch that is declared with unpatch is left out by UNPATCH_DISABLE.",
            err=True,
        )
        click.get_current_context().exit(1)


def _show(error: BaseException) -> None:
    """Show what the program raised as Python does, from its own first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") != "__main__":
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
