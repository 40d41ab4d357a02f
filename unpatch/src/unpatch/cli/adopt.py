"""`unpatch adopt`: declarations for found patches."""

from __future__ import annotations

from pathlib import Path

import click

from unpatch.cli import output


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--from", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=True,
    help="The result of `unpatch audit --json`.",
)  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file, not to stdout.")
def adopt(ids: tuple[str, ...], source: Path, out: Path | None) -> None:
    """Write declarations for found patches, so that a package can move under management.

    Prints a Python module that declares the patches IDs. The writes that it replaces are named on stderr: delete them, and
    apply the manager where they stood.

    \b
    Example:
      unpatch audit torch_geometric --json > found.json
      unpatch adopt torch.select@torch_geometric.hash_tensor --from found.json --out torch_geometric/my_patches.py
    """
    from unpatch.audit.adopt import declarations
    from unpatch.audit.compare import load
    from unpatch.files import write_whole

    if out is not None and out.exists():
        raise click.UsageError(f"{out} exists already; choose another file.")
    text, places = declarations(load(source), ids)
    if out is None:
        output.echo(text)
    else:
        write_whole(out, text)
    click.echo(f"Now delete the writes at {', '.join(places)}.", err=True)
