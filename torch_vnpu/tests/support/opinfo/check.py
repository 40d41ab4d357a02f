"""One operator of `op_db` on npu against CPU: values, strides, dtypes and devices, of the results and of the gradients.

Every sample is run with two sets of random values. The first teaches the backend what the results look like, so that the
second, whose arguments look the same, goes through the stream's queue.
"""

import contextlib
import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

#: Tried in this order for an operator's main pass.
MAIN_DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
#: The dtypes of the lighter pass, with at most `LIGHT_SAMPLES` samples each.
LIGHT_DTYPES = (torch.complex64, torch.int64, torch.bool, torch.bfloat16)
LIGHT_SAMPLES = 6
SAMPLES = 60
SEEDS = (1, 2)

# Their results hold whatever the memory held.
_UNINITIALISED = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
)

# Their other arguments lie on CPU whatever the device, by the operator's own contract.
_HOST_ARGUMENTS = ("tensor_split",)

OPERATORS: dict[str, OpInfo] = {}
for _op in op_db:
    OPERATORS[_op.name + (f".{_op.variant_test_name}" if _op.variant_test_name else "")] = _op


class Outcome(NamedTuple):
    """What came of one operator with one dtype. `status` is pass, fail, refused (by CPU too: it has no kernel) or empty."""

    op: str
    dtype: str
    status: str
    reason: str = ""
    samples: int = 0
    backward: int = 0
    rounded: int = 0  # results that are CPU's up to rounding only


class DifferenceError(Exception):
    """npu is not as CPU."""


def main_dtype(name: str) -> torch.dtype:
    """The dtype of the main pass: the first of `MAIN_DTYPES` that the operator supports on CPU, else any that it does."""
    supported = OPERATORS[name].supported_dtypes("cpu")
    for dtype in MAIN_DTYPES:
        if dtype in supported:
            return dtype
    return min(supported or {torch.float32}, key=str)


def light_dtypes(name: str) -> list[torch.dtype]:
    """The dtypes of the lighter pass."""
    supported = OPERATORS[name].supported_dtypes("cpu")
    return [dtype for dtype in LIGHT_DTYPES if dtype in supported and dtype != main_dtype(name)]


def check(name: str, dtype: torch.dtype, samples: int = SAMPLES) -> Outcome:
    """Compares the operator `name` with at most `samples` samples. Nothing is raised for a difference: it is the outcome."""
    count = Count()
    said = ""
    try:
        for seed in SEEDS:
            for number, sample in enumerate(_samples(name, dtype, seed, samples)):
                said = f"sample {number}: "
                _compare_sample(OPERATORS[name], sample, count)
        said = ""
        torch.npu.synchronize()
    except Exception as error:
        _forget_errors()
        reason = said + (str(error) if isinstance(error, DifferenceError) else f"{type(error).__name__}: {error}")
        return Outcome(name, short(dtype), "fail", " ".join(reason.split())[:400], *count)
    if count.samples:
        return Outcome(name, short(dtype), "pass", "", *count)
    if count.refusal:
        return Outcome(name, short(dtype), "refused", " ".join(count.refusal.split())[:400])
    return Outcome(name, short(dtype), "empty", "the database has no samples for CPU")


class Count:
    """How much was compared."""

    def __init__(self) -> None:
        self.samples = 0
        self.backward = 0
        self.rounded = 0
        self.refusal = ""

    def __iter__(self) -> Iterator[int]:
        return iter((self.samples, self.backward, self.rounded))


def short(dtype: torch.dtype) -> str:
    """`float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _samples(name: str, dtype: torch.dtype, seed: int, most: int) -> list[SampleInput]:
    op = OPERATORS[name]
    _seed(seed)
    derived = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    # All before the first is run, which seeds the generators anew.
    return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=derived), most))


def _forget_errors() -> None:
    with contextlib.suppress(RuntimeError):  # it is of the operator that has failed already
        torch.npu.synchronize()


class Move:
    """Brings arguments to a device: bytes, strides, offsets, shared storages and `requires_grad` stay as they are."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.storages: dict[int, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.device):
            return torch.device(self.device) if value.type == "cpu" else value
        if isinstance(value, str) and value in ("cpu", "cpu:0"):
            return self.device
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        detached = tensor.detach()
        if tensor.layout != torch.strided:
            moved = detached.to(self.device, copy=True)
        elif detached.is_conj():
            moved = self._plain(detached.conj()).conj()
        elif detached.is_neg():
            moved = self._plain(torch._neg_view(detached))
            moved = torch._neg_view(moved)
        else:
            moved = self._plain(detached)
        return moved.requires_grad_(tensor.requires_grad)

    def _plain(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in self.storages:
            whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            self.storages[key] = whole.to(self.device, copy=True)
        storage = self.storages[key].untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype, device=self.device)
        return empty.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())


def _compare_sample(op: OpInfo, sample: SampleInput, count: Count) -> None:
    runs = []
    for device in ("cpu", "npu:0"):
        move = Move(device)
        given = tree_map(move, (sample.input, sample.args, sample.kwargs))
        if op.name in _HOST_ARGUMENTS:
            given = (given[0], sample.args, sample.kwargs)
        torch.manual_seed(7)
        runs.append((given, _run(lambda given=given: op(given[0], *given[1], **given[2]))))
    (cpu_given, (cpu, cpu_error)), (npu_given, (npu, npu_error)) = runs
    _compare_errors("it", cpu_error, npu_error)
    if cpu_error is not None:
        count.refusal = f"{type(cpu_error).__name__}: {cpu_error}"
        return
    values = op.name not in _UNINITIALISED
    # Without an operand or a device that says npu, the result lies on CPU.
    where = "npu:0" if any(map(_is_npu, tree_leaves(npu_given))) else "cpu"
    compare = Compare(where, values)
    count.rounded += compare("result", cpu, npu)
    count.samples += 1
    if values and _compare_gradients(compare, sample, cpu_given, cpu, npu_given, npu, count):
        count.backward += 1
    if op.inplace_variant is not None and not sample.broadcasts_input:
        _compare_inplace(op, sample, compare)


def _compare_inplace(op: OpInfo, sample: SampleInput, compare: "Compare") -> None:
    """The variant that writes its first operand; where CPU refuses it (a result of another dtype, say), npu has to."""
    runs = []
    for device in ("cpu", "npu:0"):
        given = tree_map(Move(device), (sample.input, sample.args, sample.kwargs))
        args = sample.args if op.name in _HOST_ARGUMENTS else given[1]
        torch.manual_seed(7)
        with torch.no_grad():
            runs.append(
                (given[0], _run(lambda given=given, args=args: op.inplace_variant(given[0], *args, **given[2])))
            )
    (cpu_input, (cpu, cpu_error)), (npu_input, (npu, npu_error)) = runs
    _compare_errors("the in-place variant", cpu_error, npu_error)
    if cpu_error is None:
        compare("in-place result", (cpu, cpu_input), (npu, npu_input))


def _compare_errors(what: str, cpu: Exception | None, npu: Exception | None) -> None:
    if cpu is not None and npu is None:
        raise DifferenceError(f"CPU refuses {what} ({type(cpu).__name__}), npu does not")
    if cpu is None and npu is not None:
        raise npu


def _run(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(), None
        except Exception as error:
            return None, error


def _compare_gradients(
    compare: "Compare", sample: SampleInput, cpu_given: Any, cpu: Any, npu_given: Any, npu: Any, count: Count
) -> bool:
    def run(given: Any, result: Any, device: str) -> Any:
        inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        outputs = sample.output_process_fn_grad(result)
        outputs = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not inputs or not outputs:
            return None
        generator = torch.Generator().manual_seed(11)
        weights = [torch.randn(one.shape, dtype=one.dtype, generator=generator).to(device) for one in outputs]
        return torch.autograd.grad(outputs, inputs, weights, allow_unused=True)

    expected, cpu_error = _run(lambda: run(cpu_given, cpu, "cpu"))
    actual, npu_error = _run(lambda: run(npu_given, npu, "npu:0"))
    _compare_errors("the backward", cpu_error, npu_error)
    if cpu_error is not None:
        return False
    count.rounded += compare("gradient", expected, actual)
    return expected is not None


def _is_npu(value: Any) -> bool:
    device = value.device if isinstance(value, torch.Tensor) else value
    return device == "npu:0" or (isinstance(device, torch.device) and device.type == "npu")


class Compare:
    """Compares results of npu with those of CPU; `values` is False where these hold whatever the memory held."""

    def __init__(self, device: str, values: bool) -> None:
        self._device = torch.device(device)
        self._values = values

    def __call__(self, what: str, cpu: Any, npu: Any) -> int:
        """How many tensors are alike up to rounding only. Raises DifferenceError."""
        left, right = tree_leaves(cpu), tree_leaves(npu)
        if len(left) != len(right):
            raise DifferenceError(f"{what}: {len(right)} values instead of {len(left)}")
        return sum(self._leaf(what, one, other) for one, other in zip(left, right, strict=True))

    def _leaf(self, what: str, cpu: Any, npu: Any) -> int:
        if not isinstance(cpu, torch.Tensor):
            alike = npu == cpu or (isinstance(cpu, float) and math.isnan(cpu) and math.isnan(npu))
            if isinstance(cpu, torch.device):
                alike = npu == self._device
            if type(npu) is not type(cpu) or not alike:
                raise DifferenceError(f"{what}: {npu!r} instead of {cpu!r}")
            return 0
        if not isinstance(npu, torch.Tensor):
            raise DifferenceError(f"{what}: a {type(npu).__name__} instead of a tensor")
        if npu.device != self._device:
            raise DifferenceError(f"{what}: lies on {npu.device}")
        for attribute in ("dtype", "shape", "layout", "requires_grad"):
            if getattr(npu, attribute) != getattr(cpu, attribute):
                raise DifferenceError(
                    f"{what}: {attribute} {getattr(npu, attribute)} instead of {getattr(cpu, attribute)}"
                )
        if cpu.layout == torch.strided:
            for method in ("stride", "storage_offset", "is_conj", "is_neg"):
                if getattr(npu, method)() != getattr(cpu, method)():
                    raise DifferenceError(
                        f"{what}: {method} {getattr(npu, method)()} instead of {getattr(cpu, method)()}"
                    )
        if not self._values:
            return 0
        expected, actual = cpu.detach(), npu.detach().cpu()
        if cpu.layout == torch.strided and torch.equal(_bits(expected), _bits(actual)):
            return 0
        try:
            torch.testing.assert_close(actual, expected, equal_nan=True)
        except AssertionError as error:
            raise DifferenceError(f"{what}: {error}") from None
        return 1


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    # clone: what counts as contiguous may still have odd strides in dimensions of one element.
    plain = tensor.resolve_conj().resolve_neg().reshape(-1)
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)
