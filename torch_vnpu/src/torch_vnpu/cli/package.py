"""The import of torch_vnpu itself, when a command needs it: `--help` and `vnpu trace` run without torch."""

from __future__ import annotations

import sys

import click


def import_failure() -> Exception | None:
    """Import torch_vnpu, if that was not done; returns why it cannot be imported, where that is so."""
    package = sys.modules["torch_vnpu"]
    if hasattr(package, "npu"):
        return None
    assert package.__spec__ is not None  # torch_vnpu_cli made the module from it
    assert package.__spec__.loader is not None
    try:
        package.__spec__.loader.exec_module(package)
    except Exception as error:
        return error
    return None


def require() -> None:
    """Import torch_vnpu.

    Raises:
        click.ClickException: it cannot be imported.
    """
    failure = import_failure()
    if failure is not None:
        raise click.ClickException(f"torch_vnpu cannot be imported: {failure}. `vnpu info` tells more") from failure
