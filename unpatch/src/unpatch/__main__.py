"""`python -m unpatch` is the command `unpatch`."""

from unpatch.cli import main

main(prog_name="unpatch")
