"""`vnpu info`: one page of what a maintainer asks in a bug report."""

from __future__ import annotations

import json

import click

from torch_vnpu.cli.facts import Facts, collect
from torch_vnpu.cli.package import import_failure


@click.command()
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def info(as_json: bool) -> None:
    """Tell what is installed, on, and set: versions, devices, memory, environment, patches, features.

    What cannot be found out is told as such, with the reason, and is no failure: the exit code is 0.

    \b
    Example:
      vnpu info
      vnpu info --json | python -m json.tool
    """
    facts = collect(import_failure())
    click.echo(json.dumps(facts, indent=2) if as_json else _page(facts))


def _page(facts: Facts) -> str:
    lines: list[str] = []
    for title, section in facts.items():
        lines.append(title)
        lines += [f"  {line}" for line in _lines(section)] or ["  none"]
        lines.append("")
    return "\n".join(lines[:-1])


def _lines(section: object) -> list[str]:
    if isinstance(section, dict):
        width = max(map(len, section), default=0)
        return [f"{key.ljust(width)}  {_text(value)}" for key, value in section.items()]
    if isinstance(section, list):
        return [", ".join(f"{key}: {_text(value)}" for key, value in row.items()) for row in section]
    return [_text(section)]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not set" if value is None else str(value)
