"""`vnpu run`: a program that was written for CUDA, or for torch_npu, on the virtual NPU."""

from __future__ import annotations

import os
from pathlib import Path

import click

from torch_vnpu.cli.program import Checked, Program

_TO = click.Path(dir_okay=False, path_type=Path)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as with python -m.")
@click.option(
    "--cuda/--no-cuda", default=True, help="Redirect CUDA to npu (default), or leave torch.cuda as it is, unavailable."
)
@click.option("--sanitize", is_flag=True, help="Look for races between streams; exit code 1 where one is found.")
@click.option(
    "--findings", type=_TO, help="With --sanitize: a file for what is found, a page if it ends in .html, else JSON."
)
@click.option("--log", type=_TO, help="With --sanitize: a log for `vnpu sanitize --replay`.")
@click.option(
    "--suppress", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="With --sanitize: suppressions."
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    program: str,
    arguments: tuple[str, ...],
    is_module: bool,
    cuda: bool,
    sanitize: bool,
    findings: Path | None,
    log: Path | None,
    suppress: Path | None,
) -> Program | Checked:
    """Run a Python program on the virtual NPU, unchanged.

    PROGRAM runs as `python PROGRAM ARGUMENTS...` would run it, and its exit code is this command's. It finds CUDA, which
    is npu, and the module torch_npu, which is torch_vnpu; so do the processes that it starts.

    \b
    Example:
      vnpu run examples/cuda_train.py
      vnpu run --no-cuda train_on_npu.py --epochs 2
      vnpu run --sanitize --findings races.html train_on_npu.py
      vnpu run -m torch.distributed.run --nproc-per-node 2 train.py
    """
    # Not `isfile`: a program may come through a pipe, /dev/stdin or what a shell writes for <(…).
    if not is_module and (not os.path.exists(program) or os.path.isdir(program)):
        hint = f"; for a module, say vnpu run -m {program}" if all(map(str.isidentifier, program.split("."))) else ""
        raise click.UsageError(f"there is no file {program!r} to run{hint}")
    if not sanitize and (findings or log or suppress):
        raise click.UsageError("--findings, --log and --suppress go with --sanitize")
    failure = context.find_object(Exception)
    if failure is not None:
        raise click.ClickException(f"torch_vnpu cannot be imported: {failure}. `vnpu info` tells more")
    from torch_vnpu import compat
    from torch_vnpu.contrib import _transfer

    try:
        compat.install(children=True)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    # Also in the processes that the program starts.
    os.environ["TORCH_TRANSFER_TO_NPU"] = "1" if cuda else "0"
    if cuda:
        _transfer.activate()
    else:
        _transfer.deactivate()  # the variable may have been set
    started = Program(program, arguments, is_module)
    return Checked(started, findings, log, suppress) if sanitize else started
