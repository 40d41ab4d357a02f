"""`unpatch conflicts`: what two packages both patch."""

from __future__ import annotations

import click

from unpatch.cli import output
from unpatch.cli.signals import ended_in_order


@click.command()
@click.argument("first")
@click.argument("second")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    help="Seconds a process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def conflicts(first: str, second: str, timeout: float, as_json: bool) -> None:
    """Find what two packages both write to, and whether it matters which is imported first.

    Both are imported in both orders, in fresh processes. Exit code 1: they write to the same targets, or one failed.

    \b
    Example:
      unpatch conflicts pytorch_lightning torch_geometric
    """
    import msgspec

    from unpatch.audit import conflicts as comparing
    from unpatch.report.words import visible

    with ended_in_order():
        found, errors = comparing.conflicts(first, second, timeout=timeout)
    if as_json:
        rows = [{**msgspec.to_builtins(one), "depends_on_order": one.depends_on_order} for one in found]
        output.echo_json({"conflicts": rows, "errors": errors})
    else:
        for one in found:
            click.echo(visible(f"{one.target}: written by {' and by '.join(one.writers)}"))
            if one.depends_on_order:
                click.echo(visible(f"  {first} first: {one.first}; {second} first: {one.second}"))
            else:
                click.echo(visible(f"  in either order: {one.first}"))
        click.echo(
            f"{first} and {second}: {len(found)} common targets, {sum(one.depends_on_order for one in found)} of them "
            "depend on the order."
        )
        for error in errors:
            click.echo(visible(error), err=True)
    click.get_current_context().exit(1 if found or errors else 0)
