"""`vnpu run`: a program that was written for CUDA, or for torch_npu, on the virtual NPU."""

from __future__ import annotations

import os
from pathlib import Path

import click

from torch_vnpu.cli import package
from torch_vnpu.cli.program import STDIN, Checked, Program, packed_main

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
def run(
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

    PROGRAM is a file, a folder or zip file with a __main__.py, or - for stdin. It runs as `python PROGRAM ARGUMENTS...`
    would run it, and its exit code is this command's. It finds CUDA, which is npu, and the module torch_npu, which is
    torch_vnpu; so do the processes that it starts, and --sanitize checks those, too.

    \b
    Example:
      vnpu run examples/cuda_train.py
      vnpu run --no-cuda train_on_npu.py --epochs 2
      vnpu run --sanitize --findings races.html train_on_npu.py
      vnpu run -m torch.distributed.run --nproc-per-node 2 train.py
    """
    if not is_module and program != STDIN:
        _require_program(program)
    if not sanitize and (findings or log or suppress):
        raise click.UsageError("--findings, --log and --suppress go with --sanitize")
    package.require()
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


def _require_program(path: str) -> None:
    # Not `isfile`: a program may come through a pipe, /dev/stdin or what a shell writes for <(…).
    if not os.path.exists(path):
        is_name = all(map(str.isidentifier, path.split("."))) and not path.endswith((".py", ".pyc", ".pyw"))
        hint = f"; for a module, say vnpu run -m {path}" if is_name else ""
        raise click.UsageError(f"there is no file {path!r} to run{hint}")
    try:
        packed = packed_main(path)
    except ImportError as error:
        raise click.UsageError(str(error)) from error
    if packed is None and not os.access(path, os.R_OK):
        raise click.UsageError(f"the file {path!r} may not be read")
