"""`unpatch ops`: the operators of a module or function, and the way of each through the dispatcher."""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unpatch.cli import output
from unpatch.errors import UnpatchError, said

if TYPE_CHECKING:
    from unpatch.ops.model import Listing


class TargetError(UnpatchError):
    """The target cannot be made or run; the message says why."""


@click.command()
@click.argument("target", required=False)
@click.option(
    "--input", "inputs", multiple=True, metavar="SHAPE", help="A tensor to call it with, 8,128 or 8,16:int64; repeat."
)
@click.option("--sample", metavar="NAME", help="For file.py::function: the function in it that returns the arguments.")
@click.option("--device", default="cpu", show_default=True, help="Where to run it: cpu, npu, cuda:1, meta …")
@click.option("--backward/--no-backward", default=True, help="Run the backward pass, too (default).")
@click.option("--stack", is_flag=True, help="Say where each operator was called.")
@click.option("--graphs", is_flag=True, help="Add AOTAutograd's graphs (some seconds).")
@click.option(
    "--kernel-log",
    is_flag=True,
    help="Let an npu print on stderr what its kernels and queues do in the recorded run (TORCH_NPU_LOGS).",
)
@click.option(
    "--diff",
    nargs=2,
    metavar="A B",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare two JSON files.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which --diff reads.")
@click.pass_context
def ops(
    context: click.Context,
    target: str | None,
    inputs: tuple[str, ...],
    sample: str | None,
    device: str,
    backward: bool,
    stack: bool,
    graphs: bool,
    kernel_log: bool,
    diff: tuple[Path, Path] | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """List the operators that TARGET runs, in order: shapes, dispatch path, kernels, autograd.

    TARGET is an expression that makes a module or function, in which torch, nn and F are known, or file.py::function. It is
    executed. Without --input, an nn.Linear, nn.Conv… or nn.Embedding gets one that fits. It
    runs three times: to warm up, under the recorder and under torch's profiler.

    With --diff, two listings are compared as aligned sequences; the exit code is 1 where they differ.

    \b
    Example:
      unpatch ops "nn.Linear(128, 64)" --device npu
      unpatch ops model.py::step --sample batch --device npu --html step.html
      unpatch ops "nn.GELU()" --input 4,4 --json > cpu.json
      unpatch ops --diff cpu.json npu.json
    """
    if diff:
        _compare(context, diff, as_json)
        return
    if target is None:
        raise click.UsageError("say what to run, or --diff with two files")
    if kernel_log:
        os.environ.setdefault("TORCH_NPU_LOGS", "op_plugin,dispatch")  # read when torch is imported
    listing = _listing(target, inputs, sample, device, backward, stack, graphs, kernel_log)
    from unpatch.report import operators as show

    if html is not None:
        from unpatch.files import write_whole

        write_whole(html, show.html(listing))
    if as_json:
        output.echo_json(listing)
    else:
        click.echo("\n".join(show.lines(listing)))


def _listing(
    target: str,
    inputs: tuple[str, ...],
    sample: str | None,
    device: str,
    backward: bool,
    stack: bool,
    graphs: bool,
    kernel_log: bool,
) -> Listing:
    try:
        import torch
    except ImportError as error:
        raise TargetError(f"torch cannot be imported ({error}): pip install 'unpatch[torch]'") from error
    from unpatch.ops.collect import collect
    from unpatch.ops.kernel_log import hold_back

    output.quiet_profiler()
    torch.default_generator.manual_seed(0)  # torch.manual_seed loads Dynamo: two seconds
    try:
        where = torch.device(device)
        around_recording = hold_back(where) if kernel_log else nullcontext
        function, arguments = _made(target, inputs, sample, where)
        if isinstance(function, torch.nn.Module):
            function = function.to(where)
        arguments = tuple(_there(one, where) for one in arguments)
        return collect(
            function, arguments, target=target, device=device, backward=backward, stacks=stack, graphs=graphs,
            around_recording=around_recording,
        )  # fmt: skip
    except UnpatchError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"{target} on {device}: {said(error)}") from error


def _there(value: Any, device: Any) -> Any:
    """A tensor on the device, as a leaf; anything else as it is."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().to(device).requires_grad_(value.requires_grad)


def _made(target: str, inputs: tuple[str, ...], sample: str | None, device: Any) -> tuple[Any, tuple[Any, ...]]:
    import torch

    file, found, name = target.partition("::")
    if found:
        if not name:
            raise TargetError(f"say which function of {file}: {file}::function")
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        if spec is None or spec.loader is None or not os.path.isfile(file):
            raise TargetError(f"there is no file {file} that Python can run")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        sys.path.insert(0, str(Path(file).resolve().parent))
        spec.loader.exec_module(module)
        for wanted in (name, *([sample] if sample else [])):
            if not hasattr(module, wanted):
                raise TargetError(f"{file} has no {wanted}")
        function = getattr(module, name)
        _refuse_target(target, function)
        if sample:
            made = getattr(module, sample)()
            return function, made if isinstance(made, tuple) else (made,)
    else:
        if sample:
            raise TargetError("--sample belongs to file.py::function; say --input")
        function = eval(target, {"torch": torch, "nn": torch.nn, "F": torch.nn.functional})
        _refuse_target(target, function)
    if inputs:
        return function, tuple(_tensor(text) for text in inputs)
    return function, _fitting(function)


def _refuse_target(target: str, function: Any) -> None:
    """Say so before anything is run where the target is nothing that can be."""
    import torch

    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        raise TargetError(f"{target} is a class of modules: give an instance, or a function that calls one")
    if not callable(function):
        raise TargetError(f"{target} is no module or function, but {type(function).__name__}")


def _tensor(text: str) -> Any:
    import torch

    shape, _, kind = text.partition(":")
    try:
        sizes = [int(size) for size in shape.split(",") if size.strip()]
        dtype = getattr(torch, kind or "float32")
        assert isinstance(dtype, torch.dtype)
    except (ValueError, AttributeError, AssertionError) as error:
        raise TargetError(f"--input {text} is no shape: say 8,128 or 8,16:int64") from error
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(sizes, dtype=dtype, requires_grad=True)
    return torch.randint(0, 2, sizes, dtype=dtype) if dtype != torch.bool else torch.rand(sizes) > 0.5


def _fitting(module: Any) -> tuple[Any, ...]:
    """An input for what tells its own size; none for a function, which may need none."""
    import torch

    if isinstance(module, torch.nn.Linear):
        return (torch.randn(8, module.in_features),)
    if isinstance(module, torch.nn.Embedding):
        return (torch.randint(0, module.num_embeddings, (8,)),)
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        return (torch.randn(2, module.in_channels, *[16] * len(module.kernel_size)),)
    if isinstance(module, torch.nn.Module):
        raise TargetError(f"say what to call {type(module).__name__} with: --input 8,128")
    return ()


def _compare(context: click.Context, files: tuple[Path, Path], as_json: bool) -> None:
    import msgspec

    from unpatch.ops.diff import diff
    from unpatch.ops.model import Listing
    from unpatch.report import operators as show

    listings = []
    for file in files:
        try:
            listings.append(msgspec.json.decode(file.read_bytes(), type=Listing))
        except msgspec.MsgspecError as error:
            raise TargetError(f"{file} is no listing: {error}. `unpatch ops … --json` writes one") from error
    first, second = listings
    rows = diff(first, second)
    if as_json:
        output.echo_json(rows)
    else:
        click.echo("\n".join(show.diff_lines(first, second, rows)))
    context.exit(any(row.what != "=" for row in rows))
