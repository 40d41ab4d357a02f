"""`unpatch list` and `unpatch check`: the patches that a module declares, and what has become of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from unpatch.cli import output
from unpatch.here import import_from_here

if TYPE_CHECKING:
    from unpatch.patches import PatchManager

F = TypeVar("F", bound=Callable[..., Any])


def _options(function: F) -> F:
    """What both commands take."""
    for add in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
        click.option(
            "--without",
            metavar="NAME",
            multiple=True,
            help="Import MODULE with this patch or group disabled, as UNPATCH_DISABLE does; may be repeated.",
        ),
        click.argument("module"),
    ):
        function = add(function)
    return function


@click.command("list")
@_options
def list_patches(module: str, without: tuple[str, ...], as_json: bool) -> None:
    """List the patches that a module declares, and their state.

    MODULE is imported, from the current folder too, and whatever it does when it is imported happens: patches that it
    applies then are listed as applied.

    \b
    Example:
      unpatch list torch_vnpu
      unpatch list torch_vnpu --without npu
      unpatch list torch_vnpu --json
    """
    managers = _managers(module, without)
    from unpatch.patches.listing import listed
    from unpatch.report import declared

    patches = [patch for manager in managers for patch in listed(manager)]
    if as_json:
        output.echo(declared.list_json(module, patches))
        return
    console = output.console()
    console.print(declared.list_table(patches, lines=console.is_terminal))


@click.command()
@_options
def check(module: str, without: tuple[str, ...], as_json: bool) -> None:
    """Check whether the patches of a module still fit what they patch, and whether they can go.

    MODULE is imported as by `unpatch list`. A patch has drifted when its target is gone, is patched by somebody else, has
    another source than the fingerprint says, takes calls that the replacement does not, or when half of a pair is
    patched. It is due when its removal condition holds. Both give exit code 1.

    \b
    Example:
      unpatch check torch_vnpu
      unpatch check torch_vnpu --json > patches.json
    """
    managers = _managers(module, without)
    from unpatch.patches import check as checking
    from unpatch.report import declared

    patches = [patch for manager in managers for patch in checking.check(manager)]
    if as_json:
        output.echo(declared.check_json(module, patches))
    else:
        console = output.console()
        console.print(declared.check_table(patches))
        for line in declared.check_lines(module, patches):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if any(patch.failing for patch in patches):
        click.get_current_context().exit(1)


def _managers(module: str, without: Sequence[str]) -> Sequence[PatchManager]:
    from unpatch.patches.listing import managers_of

    import_from_here()
    output.quiet_profiler()
    # What the module prints is not ours to mix with the answer.
    with contextlib.redirect_stdout(sys.stderr):
        return managers_of(module, without)
