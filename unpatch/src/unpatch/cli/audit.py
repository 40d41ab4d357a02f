"""`unpatch audit`: every patch that a package makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unpatch.cli import output
from unpatch.cli.signals import ended_in_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpatch.audit.compare import Difference
    from unpatch.audit.records import AuditResult


@click.command()
@click.argument("target", required=False)
@click.option("--on", metavar="A[,B]", multiple=True, help="Only writes to what lies under these dotted names.")
@click.option(
    "--call", "calls", metavar="CODE", multiple=True, help='Then call this, such as "pkg.fn()"; may be repeated.'
)
@click.option("--env", metavar="NAME=VALUE", multiple=True, help="Set an environment variable first; may be repeated.")
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file with these options."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds that each of the two processes may take. [300]",
)
@click.option("--no-cache", is_flag=True, help="Rewrite all source anew instead of using the cache.")
@click.option("--all", "everything", is_flag=True, help="List self-patches, noise and long rows of registrations, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON instead of a table.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as one HTML file.")
@click.option("--sarif", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as SARIF 2.1.0.")
@click.option("--baseline", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An earlier --json.")
@click.option(
    "--fail-on", type=click.Choice(["new", "any"]), help="Exit with 1 on findings that are new, or on any patch."
)
@click.option(
    "--diff", type=click.Path(exists=True, dir_okay=False, path_type=Path), nargs=2, metavar="OLD NEW",
    help="Compare two results of --json instead of auditing; exit code 1 if they differ.",
)  # fmt: skip
def audit(
    target: str | None, on: tuple[str, ...], calls: tuple[str, ...], env: tuple[str, ...], config: Path | None,
    timeout: float | None, no_cache: bool, everything: bool, as_json: bool, html: Path | None, sarif: Path | None,
    baseline: Path | None, fail_on: str | None, diff: tuple[Path, Path] | None,
) -> None:  # fmt: skip
    """Find every patch that a package makes, with no cooperation from it.

    TARGET is a module to import or a script to run (a path that ends in .py). It is activated in fresh processes, and
    whatever it does when it is imported happens there. Exit code 0: audited; 1: TARGET failed, or --fail-on holds;
    2: wrong usage.

    \b
    Example:
      unpatch audit torch_geometric --on torch
      unpatch audit liger_kernel.transformers --call "liger_kernel.transformers.apply_liger_kernel_to_llama()"
      unpatch audit pyro --json > pyro.json
      unpatch audit pyro --baseline pyro.json --fail-on new
      unpatch audit --diff old.json new.json
    """
    from unpatch.audit import compare

    context = click.get_current_context()
    if diff:
        if target:
            raise click.UsageError("--diff compares two files; leave TARGET out.")
        found = compare.differences(*map(compare.load, diff))
        _show_differences(found, as_json)
        context.exit(1 if found else 0)
    settings = _settings(target, on, calls, env, timeout, config)
    if fail_on == "new" and baseline is None:
        raise click.UsageError("--fail-on new compares with an earlier result; give it with --baseline.")
    before = compare.load(baseline) if baseline is not None else None

    from unpatch.audit import run
    from unpatch.files import write_whole
    from unpatch.report import audited as report

    with ended_in_order(), _progress() as progress:
        result = run.audit(**settings, cache=not no_cache, progress=progress)
    for path, text in ((html, report.html), (sarif, report.sarif)):
        if path is not None:
            write_whole(path, text(result))
    if as_json:
        output.echo_json(result)
    else:
        _show(result, everything)
    new = [one for one in compare.differences(before, result) if one.is_new] if before is not None else []
    if new and not as_json:
        click.echo("Not in the baseline: " + ", ".join(one.id for one in new), err=True)
    failing = bool(result.error) or (fail_on == "new" and bool(new)) or (fail_on == "any" and bool(result.of("patch")))
    context.exit(1 if failing else 0)


def _settings(
    target: str | None, on: tuple[str, ...], calls: tuple[str, ...], env: tuple[str, ...], timeout: float | None,
    config: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """The options, those of the configuration file beneath those of the command line."""
    from unpatch.audit.records import Activation

    given = _configuration(config) if config is not None else {}
    target = target or given.get("target")
    if not target:
        raise click.UsageError("Missing argument 'TARGET': a module, or a script.")
    environment = {name: str(value) for name, value in given.get("env", {}).items()}
    for pair in env:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--env takes NAME=VALUE, not {pair!r}.")
        environment[name] = value
    names = [name for text in (on or _list(given.get("on", ()))) for name in text.split(",") if name]
    activation = Activation(target, calls=calls or tuple(_list(given.get("call", ()))), environment=environment)
    return {"activation": activation, "on": tuple(names), "timeout": timeout or given.get("timeout", 300.0)}


def _configuration(file: Path) -> dict[str, Any]:
    """The options in a TOML file, each of its type."""
    import tomllib
    from typing import Annotated

    import msgspec

    types: dict[str, Any] = {
        "target": str,
        "on": str | list[str],
        "call": str | list[str],
        "env": dict[str, str | int | float | bool],
        "timeout": Annotated[float, msgspec.Meta(gt=0)],
    }
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} is no TOML: {error}.") from error
    except OSError as error:
        raise click.UsageError(f"Cannot read {file}: {error.strerror}.") from error
    if unknown := sorted(set(given) - set(types)):
        raise click.UsageError(f"{file} has the unknown key {unknown[0]!r}; known are {', '.join(sorted(types))}.")
    for name, value in given.items():
        try:
            given[name] = msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            raise click.UsageError(f"{file}, key {name!r}: {error}.") from error
    return given


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _show(result: AuditResult, everything: bool) -> None:
    from unpatch.report import audited as report
    from unpatch.report.words import visible

    console = output.console()
    findings = report.shown(result, everything)
    findings, lots = (findings, []) if everything else report.summed(findings)
    if findings:
        console.print(report.table(findings, lines=console.is_terminal))
    for lot in lots:
        console.print(lot, markup=False, highlight=False, soft_wrap=True)
    for finding in findings:
        for line in report.details(finding):
            console.print(f"{finding.id}: {line}", markup=False, highlight=False, soft_wrap=True)
    console.print(report.summary(result), markup=False, highlight=False, soft_wrap=True)
    if result.error:
        click.echo(visible(f"{result.activation.target} failed:\n{result.error.rstrip()}"), err=True)


def _show_differences(found: tuple[Difference, ...], as_json: bool) -> None:
    from unpatch.report.words import visible

    if as_json:
        output.echo_json(found)
        return
    for one in found:
        what = f" ({', '.join(one.what)})" if one.what else ""
        click.echo(visible(f"{one.change}{what}: {one.id}"))
    click.echo(f"{len(found)} differences." if len(found) != 1 else "1 difference.")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A spinner on a terminal; nothing in a pipe, where stderr is for errors."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda phase: None
        return
    with console.status("starting") as status:
        yield lambda phase: status.update(phase)
