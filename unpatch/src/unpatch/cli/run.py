"""`unpatch run`: a program with chosen found patches left out."""

from __future__ import annotations

import sys

import click

from unpatch.cli import INTERRUPTED


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
    from unpatch.audit.activate import own_trace, run_script
    from unpatch.audit.errors import AuditError
    from unpatch.audit.suppress import Suppression, parse_ids

    ids = parse_ids(without)
    if not ids:
        raise click.UsageError("--without names no patch.")
    suppression = Suppression(ids, lambda text: click.echo(text, err=True))
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
        trace = own_trace(error)
        sys.excepthook(type(error), error.with_traceback(trace), trace)  # the program may have set its own
        click.get_current_context().exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
    missing = [id.text for id in suppression.ids if id not in suppression.left_out]
    if missing:
        click.echo(
            f"Never written, so nothing was left out: {', '.join(missing)}. "
            "A patch that is declared with unpatch is left out by UNPATCH_DISABLE.",
            err=True,
        )
        click.get_current_context().exit(1)
