"""A law: any program of views and writes on a base leaves the same bytes, layouts and errors on npu as on CPU."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

Step = tuple[str, int, int, int]


def _dim(x: torch.Tensor, number: int) -> int:
    return number % max(x.dim(), 1)


VIEWS: dict[str, Callable[[torch.Tensor, int, int, int], torch.Tensor]] = {
    "transpose": lambda x, a, b, c: x.transpose(_dim(x, a), _dim(x, b)),
    "select": lambda x, a, b, c: x.select(_dim(x, a), b % 3),
    "slice": lambda x, a, b, c: x[b % 2 :: c % 3 + 1],
    "narrow": lambda x, a, b, c: x.narrow(_dim(x, a), b % 3, c % 3),
    "unsqueeze": lambda x, a, b, c: x.unsqueeze(a % (x.dim() + 1)),
    "squeeze": lambda x, a, b, c: x.squeeze(),
    "expand": lambda x, a, b, c: x.unsqueeze(0).expand(a % 3, *x.shape),
    "flatten": lambda x, a, b, c: x.view(-1),
    "reshape": lambda x, a, b, c: x.reshape(-1, a % 4 + 1),
    "permute": lambda x, a, b, c: x.permute(*range(x.dim())[::-1]),
    "diagonal": lambda x, a, b, c: x.diagonal(a % 2),
    "unfold": lambda x, a, b, c: x.unfold(_dim(x, a), b % 3 + 1, c % 2 + 1),
    "as_strided": lambda x, a, b, c: x.as_strided((a % 3, b % 3), (c % 4, 1), a % 2),
    "split": lambda x, a, b, c: x.split(a % 2 + 1, _dim(x, b))[c % 2],
    "chunk": lambda x, a, b, c: x.chunk(a % 3 + 1)[0],
    "unbind": lambda x, a, b, c: x.unbind(_dim(x, a))[b % 2],
    "detach": lambda x, a, b, c: x.detach(),
    "bits": lambda x, a, b, c: x.view(torch.int32).view(torch.float32),
    "complex": lambda x, a, b, c: torch.view_as_complex(x).conj().imag,
    "itself": lambda x, a, b, c: x.contiguous(),
}

WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor, int], object]] = {
    "fill_": lambda x, y, n: x.fill_(n),
    "add_": lambda x, y, n: x.add_(n),
    "mul_ by the other": lambda x, y, n: x.mul_(y),
    "copy_ of the other": lambda x, y, n: x.copy_(y.clone()),
    "copy_ from CPU": lambda x, y, n: x.copy_(torch.arange(float(x.numel())).view(x.shape)),
    "sub out": lambda x, y, n: torch.sub(x, n, out=x),
    "cumsum_": lambda x, y, n: x.cumsum_(_dim(x, n)),
    "masked_fill_": lambda x, y, n: x.masked_fill_(x > n, -1),
    "set item": lambda x, y, n: x.__setitem__(n % 2, n),
    "set mask": lambda x, y, n: x.__setitem__(x < n, y.sum()),
    "index_fill_": lambda x, y, n: x.index_fill_(0, torch.tensor([0], device=x.device), n),
    "index_put_": lambda x, y, n: x.index_put_((torch.tensor([0, 0]),), torch.tensor(1.0), accumulate=True),
    "out of the other": lambda x, y, n: torch.neg(y.clone(), out=x),
    "foreach": lambda x, y, n: torch._foreach_add_([x, y], n),
    "swap halves": lambda x, y, n: x.copy_(x.flip(0)),
    "zero_": lambda x, y, n: x.zero_(),
}

numbers = st.integers(0, 20)
steps = st.tuples(st.sampled_from([*VIEWS, *WRITES]), numbers, numbers, numbers)


def run(program: list[Step], device: str) -> tuple[list[torch.Tensor], list[str]]:
    """The base and every view of it, after the program, and the errors on the way."""
    tensors = [torch.arange(1.0, 25.0, device=device).view(2, 3, 4)]
    errors = []
    for name, a, b, c in program:
        x, y = tensors[a % len(tensors)], tensors[b % len(tensors)]
        try:
            if name in VIEWS:
                tensors.append(VIEWS[name](x, b, c, a + b))
            else:
                WRITES[name](x, y, c)
        except (RuntimeError, IndexError) as error:
            errors.append(f"{name}: {type(error).__name__}")
    return tensors, errors


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@settings(max_examples=250, deadline=None)
@given(st.lists(steps, min_size=1, max_size=14))
def test_views_and_writes_end_as_on_cpu(program):
    cpu, expected = run(program, "cpu")
    npu, errors = run(program, "npu:1")
    assert errors == expected
    for one, other in zip(npu, cpu, strict=True):
        assert (one.shape, one.stride(), one.storage_offset()) == (other.shape, other.stride(), other.storage_offset())
        assert torch.equal(one.cpu().view(torch.int32), other.resolve_neg().view(torch.int32))
        assert (one.untyped_storage().data_ptr() == npu[0].untyped_storage().data_ptr()) == (
            other.untyped_storage().data_ptr() == cpu[0].untyped_storage().data_ptr()
        )
