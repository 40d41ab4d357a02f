"""The command `unpatch`: finds its commands when they are called and shows our own errors as one sentence.

Nothing heavy is imported here, so that `--help` answers at once; each command imports what it needs when it runs.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from unpatch import __version__
from unpatch.cli.output import checked_output
from unpatch.errors import UnpatchError

#: Command -> where it lives, and its line in `unpatch --help`, which therefore imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "ablate": ("unpatch.cli.ablate:ablate", "Run a study: which patches can be deleted?"),
    "adopt": ("unpatch.cli.adopt:adopt", "Write declarations for found patches."),
    "audit": ("unpatch.cli.audit:audit", "Find every patch that a package makes."),
    "check": ("unpatch.cli.patches:check", "Do the patches of a module still fit?"),
    "conflicts": ("unpatch.cli.conflicts:conflicts", "What do two packages both patch?"),
    "list": ("unpatch.cli.patches:list_patches", "List the patches of a module and their state."),
    "ops": ("unpatch.cli.ops:ops", "Which operators does a module run, and how?"),
    "report": ("unpatch.cli.report:report", "Show the evidence of a finished study again."),
    "run": ("unpatch.cli.run:run", "Run a program with chosen found patches left out."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def main(self, *args: Any, **extra: Any) -> Any:
        """As click has it, and what cannot be written to standard output is said in one sentence."""
        with checked_output():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UnpatchError as error:
            from unpatch.report.words import visible

            click.echo(visible(f"Error: {error.message}"), err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)


#: Exit code, as shells have it for a program that SIGINT ended.
INTERRUPTED = 130


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="unpatch")
def main() -> None:
    """Manage, find and ablate monkey patches, and prove which of them can be deleted.

    Exit codes: 0 success, 1 a negative result, 2 wrong usage or input, or output that cannot be written.
    """
