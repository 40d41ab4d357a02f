"""Operators: the bits of CPU, aliasing kept, device mistakes refused, autograd and transforms."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Make:
    """Tensors on a device, from numbers that are the same for every device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(3)

    def __call__(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            host = torch.randn(shape, generator=self.generator, dtype=dtype)
        else:
            host = torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=self.generator, dtype=dtype)
        return host.to(self.device)

    def of(self, values: Any, **settings: Any) -> torch.Tensor:
        return torch.tensor(values, device=self.device, **settings)

    def positive(self, *shape: int) -> torch.Tensor:
        return self(*shape).abs() + 0.1


def raw(tensor: torch.Tensor) -> bytes:
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return host.view(torch.uint8).numpy().tobytes()


def same(npu: Any, cpu: Any, device: str = "npu:0") -> None:
    """Asserts that `npu` is what `cpu` is, bit for bit and in layout, and lies on `device`."""
    if isinstance(cpu, torch.Tensor):
        assert npu.device == torch.device(device)
        assert (npu.dtype, npu.shape) == (cpu.dtype, cpu.shape)
        assert (npu.stride(), npu.storage_offset()) == (cpu.stride(), cpu.storage_offset())
        assert (npu.is_conj(), npu.is_neg()) == (cpu.is_conj(), cpu.is_neg())
        assert raw(npu) == raw(cpu)
    elif isinstance(cpu, list | tuple):
        assert type(npu) is type(cpu)
        assert len(npu) == len(cpu)
        for one, other in zip(npu, cpu, strict=True):
            same(one, other, device)
    else:
        assert npu == cpu


Operator = Callable[[Make], Any]

OPERATORS: dict[str, Operator] = {
    # arithmetic
    "add": lambda t: t(3, 4) + t(3, 4),
    "broadcast": lambda t: t(3, 1) * t(4) - t(2, 1, 1),
    "division": lambda t: [t(5) / t(5), t(5) // t(5), t(5) % 3, torch.div(t(5), 2, rounding_mode="trunc")],
    "integer": lambda t: [t(5, dtype=torch.int64) // 2, t(5, dtype=torch.int32) << 2, ~t(5, dtype=torch.int64)],
    "comparison": lambda t: [t(5) < t(5), t(5) == 0, torch.isclose(t(5), t(5)), t(5).ne(t(5)).any().item()],
    "logic": lambda t: t(5, dtype=torch.bool) & t(5, dtype=torch.bool) | ~t(5, dtype=torch.bool),
    "unary": lambda t: [
        getattr(t(7), f)() for f in ("sin", "exp", "tanh", "abs", "neg", "sign", "floor", "sigmoid", "erf")
    ],
    "unary, positive": lambda t: [
        getattr(t.positive(7), f)() for f in ("sqrt", "log", "rsqrt", "lgamma", "digamma", "frac")
    ],
    "power": lambda t: [t.positive(5) ** t(5), t(5) ** 2, 2 ** t(5)],
    "addcmul": lambda t: [torch.addcmul(t(4), t(4), t(4), value=0.5), torch.addcdiv(t(4), t(4), t.positive(4))],
    "lerp": lambda t: [torch.lerp(t(4), t(4), 0.3), torch.lerp(t(4), t(4), t(4))],
    "clamp": lambda t: [t(9).clamp(-0.5, 0.5), t(9).clamp(min=t(9)), F.relu(t(9)), F.hardtanh(t(9))],
    "where": lambda t: [
        torch.where(t(6) > 0, t(6), t(6)),
        torch.where(t(6) > 0, 1.0, t(6)),
        torch.where(t(6) > 0, t(6), 0),
    ],
    "special": lambda t: [
        torch.special.expm1(t(5)),
        torch.special.ndtr(t(5)),
        torch.special.i0(t(5)),
        torch.nan_to_num(t(5) / 0),
    ],
    "physical conjugate": lambda t: [
        t(5, dtype=torch.complex64).conj_physical_(),
        t(5, dtype=torch.complex64)[::2].conj_physical(),
        t(5).conj_physical_(),
    ],
    # types
    "0-dim CPU operand": lambda t: [
        t(3) + torch.tensor(2.0),
        torch.tensor(2.0) * t(3),
        t(3, dtype=torch.int32) * torch.tensor(1.5),
    ],
    "wrapped numbers": lambda t: [
        t(3, dtype=torch.float16) * 2.5,
        t(3, dtype=torch.int64) + 1.5,
        t(3, dtype=torch.bfloat16) + 1,
    ],
    "0-dim operands": lambda t: [
        t() + t(3, dtype=torch.float16),
        t(dtype=torch.float64) * t(3),
        t(3, dtype=torch.int32) + t(dtype=torch.int64),
    ],
    "promotion": lambda t: [
        t(3, dtype=torch.int32) + t(3),
        t(3, dtype=torch.bool) + t(3, dtype=torch.uint8),
        t(3) + t(3, dtype=torch.float64),
    ],
    "casts": lambda t: [
        t(5).to(d) for d in (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64)
    ],
    "scalars": lambda t: [t(1).item(), int(t(1, dtype=torch.int64)), bool(t(1) > 9), t(2, 2).tolist(), float(t())],
    # reductions
    "sum": lambda t: [
        t(4, 5).sum(),
        t(4, 5).sum(1),
        t(4, 5).sum((0, 1), keepdim=True),
        t(4, 5, dtype=torch.int32).sum(),
    ],
    "mean": lambda t: [t(4, 5).mean(0), t(4, 5).var(1), t(4, 5).std(), *torch.var_mean(t(4, 5), 1)],
    "extremes": lambda t: [
        t(4, 5).max(),
        t(4, 5).argmax(1),
        t(4, 5).amin(0),
        *t(4, 5).min(1),
        *t(4, 5).median(0),
        t(5).aminmax(),
    ],
    "logical reductions": lambda t: [
        t(4, 5, dtype=torch.bool).any(1),
        t(4, 5, dtype=torch.bool).all(),
        t(4, 5).count_nonzero(),
    ],
    "cumulative": lambda t: [t(4, 5).cumsum(1), t(4, 5).cumprod(0), *t(4, 5).cummax(1), t(4, 5).logcumsumexp(0)],
    "norms": lambda t: [
        t(4, 5).norm(),
        t(4, 5).norm(1, dim=1),
        torch.linalg.vector_norm(t(4, 5), 3),
        t(4, 5).logsumexp(0),
    ],
    "products": lambda t: [t(4, 5).prod(), t(4, 5).prod(1), t(3, 3).trace(), t(4).dot(t(4))],
    "histogram": lambda t: [
        t(20).histc(5),
        t(9, dtype=torch.int64).bincount(),
        torch.bucketize(t(5), t.of([-1.0, 0.0, 1.0])),
    ],
    # linear algebra
    "matmul": lambda t: [
        t(3, 4) @ t(4, 5),
        t(2, 3, 4) @ t(4, 5),
        t(4) @ t(4),
        t(3, 4).mv(t(4)),
        t(2, 3, 4).bmm(t(2, 4, 5)),
    ],
    "matmul of transposes": lambda t: [
        t(4, 3).t() @ t(5, 4).t(),
        torch.addmm(t(5), t(3, 4), t(4, 5), beta=0.5, alpha=2),
    ],
    "einsum": lambda t: [
        torch.einsum("bij,bjk->bik", t(2, 3, 4), t(2, 4, 5)),
        torch.einsum("ii", t(3, 3)),
        torch.tensordot(t(2, 3), t(3, 4), 1),
    ],
    "baddbmm": lambda t: [
        torch.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
        torch.outer(t(3), t(4)),
        torch.kron(t(2, 2), t(2, 2)),
    ],
    "linalg": lambda t: [
        torch.linalg.inv(t(3, 3)),
        torch.linalg.det(t(3, 3)),
        *torch.linalg.qr(t(4, 3)),
        *torch.linalg.slogdet(t(3, 3)),
    ],
    "decompositions": lambda t: [
        torch.linalg.svdvals(t(4, 3)),
        torch.linalg.cholesky(torch.eye(3, device=t.device) * 2),
        torch.linalg.eigvalsh(t(3, 3)),
    ],
    "solve": lambda t: [
        torch.linalg.solve(t(3, 3), t(3, 2)),
        torch.linalg.matrix_exp(t(3, 3)),
        torch.linalg.pinv(t(4, 3)),
        torch.cdist(t(4, 3), t(5, 3)),
    ],
    # neural networks
    "conv1d": lambda t: F.conv1d(t(2, 3, 9), t(4, 3, 3), t(4), stride=2, padding=1),
    "conv2d": lambda t: [
        F.conv2d(t(2, 4, 7, 7), t(6, 2, 3, 3), t(6), padding=1, groups=2),
        F.conv2d(t(1, 3, 5, 5), t(2, 3, 1, 1)),
    ],
    "conv3d": lambda t: F.conv3d(t(1, 2, 4, 4, 4), t(3, 2, 2, 2, 2), dilation=2),
    "conv transpose": lambda t: F.conv_transpose2d(t(1, 3, 4, 4), t(3, 2, 3, 3), t(2), stride=2, output_padding=1),
    "channels last": lambda t: F.conv2d(t(2, 3, 6, 6).to(memory_format=torch.channels_last), t(4, 3, 3, 3)) + 1,
    "pooling": lambda t: [
        F.max_pool2d(t(1, 2, 6, 6), 2),
        F.avg_pool2d(t(1, 2, 6, 6), 3, 2),
        F.adaptive_avg_pool2d(t(1, 2, 5, 7), 3),
    ],
    "pooling with indices": lambda t: [
        *F.max_pool2d(t(1, 2, 6, 6), 2, return_indices=True),
        *F.adaptive_max_pool1d(t(1, 2, 7), 3, return_indices=True),
    ],
    "norm layers": lambda t: [
        F.layer_norm(t(3, 4), (4,), t(4), t(4)),
        F.group_norm(t(2, 4, 5), 2),
        F.instance_norm(t(2, 3, 5)),
        F.rms_norm(t(3, 4), (4,)),
    ],
    "batch norm": lambda t: F.batch_norm(t(4, 3, 5), t(3), t.positive(3), t(3), t(3), training=True),
    "batch norm, eval": lambda t: F.batch_norm(t(4, 3, 5), t(3), t.positive(3)),
    "activations": lambda t: [
        f(t(9)) for f in (F.gelu, F.silu, F.elu, F.softplus, F.mish, F.leaky_relu, F.logsigmoid, F.hardswish)
    ],
    "softmax": lambda t: [F.softmax(t(3, 5), 1), F.log_softmax(t(3, 5), 0), F.softmin(t(3, 5), 1), F.glu(t(3, 6))],
    "losses": lambda t: [
        F.mse_loss(t(5), t(5)),
        F.cross_entropy(t(4, 3), t.of([0, 2, 1, 0])),
        F.nll_loss(t(4, 3), t.of([0, 2, -100, 0])),
        F.huber_loss(t(5), t(5)),
    ],
    "probability losses": lambda t: [
        F.binary_cross_entropy_with_logits(t(5), t(5).sigmoid()),
        F.kl_div(t(5), t(5).softmax(0), reduction="sum"),
        F.ctc_loss(t(6, 2, 4).log_softmax(2), t.of([[1, 2], [3, 1]]), (6, 6), (2, 2)),
    ],
    "embedding": lambda t: [
        F.embedding(t.of([[0, 2], [1, 1]]), t(4, 3)),
        F.one_hot(t.of([0, 2])),
        *F.embedding_bag(t.of([0, 2, 1]), t(4, 3), t.of([0, 2])).split(1),
    ],
    "resampling": lambda t: (
        [F.interpolate(t(1, 2, 4, 4), scale_factor=2, mode=m) for m in ("nearest", "bilinear", "bicubic")]
        + [F.pixel_shuffle(t(1, 4, 2, 2), 2)]
    ),
    "padding": lambda t: [F.pad(t(1, 2, 4), (1, 2), mode=m) for m in ("constant", "reflect", "replicate", "circular")],
    "grid": lambda t: F.grid_sample(t(1, 2, 4, 4), t(1, 3, 3, 2).tanh(), align_corners=False),
    "fold": lambda t: [F.unfold(t(1, 2, 5, 5), 3), F.fold(t(1, 8, 4), (3, 3), 2)],
    # indexing
    "index": lambda t: [
        t(5, 4)[t.of([0, 4, 2])],
        t(5, 4)[:, t.of([[1, 0], [3, 3]])],
        t(5, 4)[t.of([1, 2]), t.of([0, 3])],
        t(5, 4)[None, ..., 1],
    ],
    "index by CPU tensors": lambda t: [
        t(5, 4)[torch.tensor([0, 4])],
        t(5, 4)[torch.arange(5) > 2],
        t(5, 4)[t.of([1, 2]), torch.tensor([0, 3])],
        t(5)[torch.tensor(2)],
    ],
    "mask": lambda t: [
        t(5, 4)[t(5, 4) > 0],
        t(5, 4)[t(5, dtype=torch.bool)],
        t(5, 4).masked_select(t(4) > 0),
        t(5, 4).masked_fill(t(5, 1) > 0, 7),
    ],
    "write by index": lambda t: _written(
        t(5, 4),
        lambda x: [
            x.__setitem__(t.of([0, 2]), 7.0),
            x.__setitem__((slice(None), torch.tensor([1])), t(5, 1)),
            x.__setitem__(x > 1, 0),
        ],
    ),
    "write from CPU": lambda t: _written(
        t(5, 4), lambda x: [x.__setitem__(0, torch.ones(4)), x.__setitem__((slice(2), 1), torch.tensor([3, 4]))]
    ),
    "index_put": lambda t: [
        t(5).index_put((t.of([0, 0, 1]),), t(3), accumulate=True),
        t(5).index_put_((torch.tensor([1]),), t()),
    ],
    "gather": lambda t: [
        t(3, 4).gather(1, t.of([[0, 3], [1, 1], [2, 0]])),
        t(3, 4).scatter(1, t.of([[0], [1], [2]]), 5.0),
        t(3, 4).scatter_add(0, t.of([[0, 1, 2, 0]]), t(1, 4)),
    ],
    "select": lambda t: [
        t(3, 4).index_select(1, t.of([3, 0])),
        t(3, 4).take(t.of([0, 11])),
        t(3, 4).take_along_dim(t.of([[1]]), 1),
        t(3, 4).index_add(0, t.of([0, 0]), t(2, 4)),
    ],
    "index fill and copy": lambda t: [
        t(3, 4).index_fill(0, t.of([1]), 2.0),
        t(3, 4).index_copy(1, t.of([0, 2]), t(3, 2)),
        t(3, 4).masked_scatter(t(3, 4) > 0, t(12)),
    ],
    # sorting and searching
    "sort": lambda t: [
        *t(4, 5).sort(1),
        *t(9).sort(descending=True, stable=True),
        t(4, 5).argsort(0),
        *t(9).topk(3),
        *t(3, 5).kthvalue(2),
    ],
    "named tuples": lambda t: [
        t(4, 5).sort(1).values,
        t(9).topk(3).indices,
        t(4, 5).max(0).values,
        torch.linalg.qr(t(3, 3)).R,
        torch.mode(t(9, dtype=torch.int64)).values,
    ],
    "searchsorted": lambda t: [
        torch.searchsorted(t.of([0.0, 1.0, 2.0]), t(5)),
        torch.searchsorted(t.of([0.0, 1.0]), 0.5),
        torch.isin(t.of([1, 2]), t.of([2])),
    ],
    "nonzero": lambda t: [
        t(4, 5, dtype=torch.bool).nonzero(),
        *t(4, 5, dtype=torch.bool).nonzero(as_tuple=True),
        t(4, 5).gt(0).argwhere(),
    ],
    "unique": lambda t: [
        *t(20, dtype=torch.int64).unique(return_inverse=True, return_counts=True),
        *t(9, dtype=torch.int64).unique_consecutive(return_counts=True),
    ],
    # shape
    "split": lambda t: [
        t(5, 4).split(2),
        t(5, 4).split([1, 4]),
        t(5, 4).chunk(3, 1),
        t(5, 4).unbind(1),
        t(6, 4).tensor_split(4),
        t(4, 4).hsplit(2),
    ],
    "join": lambda t: [
        torch.cat([t(2, 3), t(1, 3)]),
        torch.stack([t(3), t(3)], 1),
        torch.hstack([t(3), t(2)]),
        torch.cat([t(2), t(2, dtype=torch.int64)]),
        torch.block_diag(t(2, 2), t(1, 3)),
    ],
    "rearrangements": lambda t: [
        t(2, 3).flip(0),
        t(4, 5).roll(2, 1),
        t(3, 3).rot90(),
        t(2, 3).repeat(2, 2),
        t(4).repeat_interleave(2),
        t(3).repeat_interleave(t.of([1, 0, 2])),
    ],
    "triangles": lambda t: [
        t(4, 4).tril(-1),
        t(4, 4).triu(),
        torch.tril_indices(3, 3, device=t.device),
        t(3).diag(),
        t(3, 3).diagonal(),
        torch.diag_embed(t(3)),
    ],
    "meshes": lambda t: [
        *torch.meshgrid(t(2), t(3), indexing="ij"),
        torch.cartesian_prod(t(2), t(2)),
        torch.combinations(t(3)),
        *torch.broadcast_tensors(t(2, 1), t(3)),
    ],
    "views": lambda t: [
        t(4, 6)[::2, 1::3],
        t(4, 6).t(),
        t(2, 3, 4).permute(2, 0, 1),
        t(4, 6).view(3, 8),
        t(1, 3, 1).squeeze(),
        t(3).expand(2, 3),
        t(9).unfold(0, 3, 2),
        t(4, 6).as_strided((2, 2), (6, 1), 3),
    ],
    "contiguity": lambda t: [
        t(4, 6).t().contiguous(),
        t(4, 6).t().clone(),
        t(4, 6).t().reshape(-1),
        t(4, 6).t() + t(4, 6).t(),
        t(2, 3, 4, 4).to(memory_format=torch.channels_last).relu(),
    ],
    "dtype views": lambda t: [
        t(4).view(torch.int32),
        t(4, dtype=torch.float64).view(torch.float32),
        t(8, dtype=torch.uint8).view(torch.int64),
    ],
    # making
    "factories": lambda t: [
        torch.zeros(3, device=t.device),
        torch.full((2,), 7, device=t.device),
        torch.arange(1, 9, 2, device=t.device),
        torch.linspace(0, 1, 5, device=t.device),
        torch.eye(3, device=t.device),
        torch.logspace(0, 2, 3, device=t.device),
    ],
    "alike": lambda t: [
        torch.zeros_like(t(2, 3)),
        torch.ones_like(t(4, 2).t()),
        torch.full_like(t(3), 2, dtype=torch.int64),
        t(3).new_tensor([1, 2]),
        t(3).new_zeros(2),
        t(3).new_ones(2),
        torch.zeros_like(t(2), dtype=torch.float64),
    ],
    "windows": lambda t: [
        torch.hann_window(5, device=t.device),
        torch.kaiser_window(5, device=t.device),
        torch.vander(t(3)),
    ],
    "random fills": lambda t: _drawn(
        t,
        lambda: [
            torch.rand(5, device=t.device),
            torch.rand_like(t(3)),
            torch.empty(4, device=t.device).normal_(),
            torch.randperm(6, device=t.device),
            torch.bernoulli(t.positive(4).clamp(max=1)),
        ],
    ),
    # writing
    "in place": lambda t: [
        t(4).add_(1),
        t(4).mul_(t(4)),
        t(4).clamp_(0),
        t(2, 3).t_(),
        t(4).zero_(),
        t(4).fill_(3),
        t(4).fill_(torch.tensor(2)),
        t(3, 3).fill_diagonal_(1),
        t(4).copy_(t(4)),
        t(3).sub_(torch.tensor(1.0)),
    ],
    "in place on views": lambda t: _written(
        t(4, 6),
        lambda x: [
            x[1].add_(1),
            x.t()[2].mul_(0),
            x[::2, ::3].copy_(t(2, 2)),
            x.view(-1)[-1:].fill_(9),
            x.diagonal().zero_(),
        ],
    ),
    "out": lambda t: [
        torch.add(t(3), t(3), out=t(3)),
        torch.mm(t(2, 3), t(3, 2), out=t(2, 2)),
        torch.where(t(3) > 0, t(3), t(3), out=t(3)),
        torch.sum(t(2, 3), 0, out=t(3)),
        torch.cat([t(2), t(1)], out=t(3)),
    ],
    "out of another type": lambda t: [
        torch.add(t(3), t(3), out=t(3, dtype=torch.float64)),
        torch.gt(t(3), 0, out=t(3)),
    ],
    "out of an empty tensor": lambda t: [
        torch.add(t(2, 3), 1, out=t.of([])),
        torch.sort(t(5), out=(t.of([]), t.of([], dtype=torch.int64))),
        torch.arange(5, out=t.of([], dtype=torch.int64)),
    ],
    "out of a view": lambda t: _written(
        t(4, 6),
        lambda x: [
            torch.sin(t(4), out=x[:, 2]),
            torch.matmul(t(2, 3), t(3, 3), out=x[1:3, :3]),
            torch.nonzero(t(3) > 0, out=t.of([], dtype=torch.int64)),
        ],
    ),
    "foreach": lambda t: [
        torch._foreach_add([t(2), t(3)], 1.0),
        torch._foreach_mul([t(2), t(3)], [t(2), t(3)]),
        torch._foreach_norm([t(2), t(3)]),
        torch._foreach_sqrt([t.positive(2)]),
        torch._foreach_add([t(2)], torch.tensor(2.0)),
    ],
    "foreach in place": lambda t: _all_written(
        [t(2), t(3)],
        lambda xs: [
            torch._foreach_add_(xs, xs, alpha=2),
            torch._foreach_addcmul_(xs, xs, xs),
            torch._foreach_copy_(xs, [t(2), t(3)]),
            torch._foreach_zero_(xs[:1]),
        ],
    ),
    "resize_": lambda t: [
        _filled(t(4).resize_(2, 2)),
        _filled(t(2).resize_(3, 3)),
        _filled(t(4)[1:].resize_(5)),
        t(6).resize_(2, 2),
        _filled(t(0).resize_(2, 3, 4, 4, memory_format=torch.channels_last)),
    ],
    "set_": lambda t: [
        t(2).set_(t(4)),
        t(2).set_(),
        t(2).set_(t(6).untyped_storage(), 1, (2, 2), (2, 1)),
        t(2).set_(t(6).untyped_storage()),
    ],
    "data": lambda t: _written(t(4), lambda x: setattr(x, "data", t(2, 3))),
    # complex
    "complex": lambda t: [
        t(3, dtype=torch.complex64) * t(3, dtype=torch.complex64),
        t(3, dtype=torch.complex64).abs(),
        torch.view_as_real(t(3, dtype=torch.complex64)),
        torch.view_as_complex(t(3, 2)),
        torch.complex(t(3), t(3)),
        torch.polar(t.positive(3), t(3)),
    ],
    "conjugates": lambda t: [
        t(3, dtype=torch.complex64).conj(),
        t(3, dtype=torch.complex64).conj() * 2,
        t(2, 3, dtype=torch.complex64).mH @ t(2, 3, dtype=torch.complex64),
        t(3, dtype=torch.complex64).conj().resolve_conj(),
        t(3, dtype=torch.complex64).conj().sum(),
    ],
    "negative views": lambda t: [
        t(3, dtype=torch.complex64).conj().imag,
        t(3, dtype=torch.complex64).conj().imag + 1,
        t(3, dtype=torch.complex64).real,
        t(3, dtype=torch.complex64).conj().imag.resolve_neg(),
    ],
    "write through conjugates": lambda t: _written(
        t(3, dtype=torch.complex64),
        lambda x: [
            x.conj().mul_(2),
            x.conj().imag.fill_(1),
            x.imag.copy_(t(3)),
            x.conj().copy_(t(3, dtype=torch.complex64)),
        ],
    ),
    "fft": lambda t: [
        torch.fft.fft(t(8)),
        torch.fft.rfft(t(8)),
        torch.fft.irfft(t(5, dtype=torch.complex64)),
        torch.fft.fft2(t(4, 4)),
        torch.stft(t(32), 8, return_complex=True, window=torch.ones(8, device=t.device)),
    ],
    # emptiness and size
    "empty": lambda t: [
        t(0) + 1,
        t(0, 3).sum(),
        t(0, 3).sum(0),
        t(3, 0) @ t(0, 2),
        torch.cat([t(0), t(2)]),
        t(0).sort().values,
        t(0, 3).t(),
        t(2, 0).view(0),
        torch.nonzero(t(0)),
        t(5)[t(5) > 99],
    ],
    "0-dim": lambda t: [
        t() * 2,
        t().view(1),
        t().sum(),
        t().sort().values,
        t().unsqueeze(0),
        torch.stack([t(), t()]),
        t().clone().fill_(2),
        t()[None],
        t()[...],
    ],
    "large": lambda t: [
        t(300, 200).sum(1),
        t(120, 70) @ t(70, 90),
        t(1000).sort().values,
        t(70000).cumsum(0)[-3:].clone(),
    ],
    "half precision": lambda t: (
        [t(3, 4, dtype=d) @ t(4, 2, dtype=d) for d in (torch.float16, torch.bfloat16)]
        + [t(5, dtype=torch.bfloat16).softmax(0)]
    ),
    # several outputs, some of them undefined
    "optional outputs": lambda t: [
        x
        for x in torch.ops.aten.native_layer_norm_backward(
            t(3, 4), t(3, 4), [4], t(3, 1), t(3, 1), t(4), None, [True, True, False]
        )
        if x is not None
    ],
    "optional outputs of convolution": lambda t: [
        x
        for x in torch.ops.aten.convolution_backward(
            t(1, 2, 3, 3),
            t(1, 3, 5, 5),
            t(2, 3, 3, 3),
            None,
            [1, 1],
            [0, 0],
            [1, 1],
            False,
            [0, 0],
            1,
            [False, True, False],
        )
        if x is not None
    ],
}


def _written(x: torch.Tensor, write: Callable[[torch.Tensor], object]) -> torch.Tensor:
    write(x)
    return x


def _all_written(xs: list[torch.Tensor], write: Callable[[list[torch.Tensor]], object]) -> list[torch.Tensor]:
    write(xs)
    return xs


def _filled(x: torch.Tensor) -> torch.Tensor:
    return x.fill_(4)  # memory that was never written differs


def _drawn(t: Make, draw: Callable[[], Any]) -> Any:
    torch.manual_seed(12)
    return draw()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("device", ["npu:0", "npu:1"])
def test_an_operator_gives_the_bits_of_cpu(name, device):
    same(OPERATORS[name](Make(device)), OPERATORS[name](Make("cpu")), device)


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t(3) + t(4),
        lambda t: t(3, 4) @ t(3, 4),
        lambda t: t(3)[5],
        lambda t: t(3)[t.of([7])],
        lambda t: t(3).view(2),
        lambda t: t(3, 4).t().view(-1),
        lambda t: t(3).as_strided((5,), (1,)),
        lambda t: t(3).expand(2, 4),
        lambda t: t(3).to(torch.bool).add_(1.5),
        lambda t: t(3, dtype=torch.int64).add_(1.5),
        lambda t: t(3, dtype=torch.int64).mean(),
        lambda t: torch.add(t(3), 1, out=t(3, dtype=torch.int64)),
        lambda t: torch.linalg.inv(t.of([[0.0, 0.0], [0.0, 0.0]])),
        lambda t: torch.linalg.cholesky(-torch.eye(2, device=t.device)),
        lambda t: F.nll_loss(t(2, 3), t.of([0, 5])),
        lambda t: F.embedding(t.of([9]), t(4, 3)),
        lambda t: F.conv2d(t(1, 3, 5, 5), t(2, 4, 3, 3)),
        lambda t: torch.cat([t(2, 3), t(2, 4)]),
        lambda t: t(3).expand(2, 3).add_(1),
        lambda t: t(4)[:3].copy_(t(4)),
        lambda t: torch.multinomial(t.of([-1.0, 1.0]), 1),
        lambda t: t(2).item(),
        lambda t: t.of([1, 2]) // t.of([0, 1]),
        lambda t: t(3).index_put_((t.of([0, 1]),), t(3)),
        lambda t: torch.sort(t(3), out=(t(3), t(3))),
        lambda t: t(4).requires_grad_().add_(1),
    ],
)
def test_a_mistake_is_the_error_that_it_is_on_cpu(use):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        use(Make("cpu"))
    with pytest.raises(expected.type) as found:
        use(Make("npu"))
    first = str(expected.value).split("\n")[0]
    assert str(found.value).split("\n")[0].replace("npu:0", "cpu").replace("npu.", "") == first


# ---- aliasing ----


def test_outputs_that_are_views_share_memory():
    x = torch.zeros(2, 3, device="npu")
    for view in (
        x.view(-1),
        x[1],
        x.t(),
        x.split(1)[1],
        x.unbind(1)[2],
        x.as_strided((2,), (3,), 2),
        x.detach(),
        x.view(torch.int32),
        x.unfold(1, 2, 1),
        x.expand(4, 2, 3),
        x.data,
        x.contiguous(),
        x.reshape(6),
        x.to("npu"),
    ):
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert view._version == x._version or not view._is_view()
        x.fill_(0)
        view[..., -1].fill_(1)
        assert x.sum() > 0
    x.view(-1)[0] = 9
    assert x[0, 0] == 9
    z = torch.zeros(2, dtype=torch.complex64, device="npu")
    torch.view_as_real(z)[0, 1] = 3
    z.imag[1] = 4
    assert z.tolist() == [3j, 4j]


def test_outputs_that_are_not_views_share_none():
    x = torch.zeros(2, 3, device="npu")
    for other in (x + 0, x.clone(), x.t().contiguous(), x.to(torch.float64), x.to("npu:1"), x.repeat(1, 1), x[[0, 1]]):
        other.fill_(1)
        assert x.sum() == 0


def test_an_in_place_operator_returns_the_tensor_itself():
    x = torch.ones(3, device="npu")
    assert x.add_(1) is x
    assert torch.add(x, 1, out=x) is x
    assert torch.where(x > 0, x, x, out=x) is x
    first, second = torch.ones(3, device="npu"), torch.ones(3, dtype=torch.int64, device="npu")
    result = torch.sort(x, out=(first, second))
    assert result[0] is first
    assert result[1] is second


def test_a_resized_out_keeps_its_identity_and_the_views_of_it_their_memory():
    out = torch.zeros(2, device="npu")
    storage = out.untyped_storage()
    view = out[:1]
    part = out[:0]
    torch.add(torch.ones(50, device="npu"), 1, out=part)
    assert part.shape == (50,)
    assert part.untyped_storage().data_ptr() == storage.data_ptr() == out.data_ptr()
    assert (out.tolist(), view.tolist()) == ([2, 2], [2])
    part.fill_(5)
    assert (out.tolist(), view.tolist(), storage.nbytes()) == ([5, 5], [5], 200)


def test_an_out_that_a_failing_kernel_resized_is_sound():
    out = torch.zeros(2, device="npu")
    view = out[:1]
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.inv(torch.zeros(40, 40, device="npu"), out=out[:0])
    out.fill_(3)
    assert (out.tolist(), view.tolist()) == ([3, 3], [3])
    assert out.untyped_storage().cpu().nbytes() == out.untyped_storage().nbytes()


def test_storages_resize():
    x = torch.arange(4.0, device="npu:1")
    x.untyped_storage().resize_(64)
    assert x.tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(0)
    assert (x.untyped_storage().nbytes(), x.shape) == (0, (4,))
    x.untyped_storage().resize_(16)
    x.fill_(2)
    assert x.tolist() == [2] * 4
    assert x.device == torch.device("npu:1")


# ---- copies ----

DEVICES = ["cpu", "npu:0", "npu:1"]


@pytest.mark.parametrize("source", DEVICES)
@pytest.mark.parametrize("target", DEVICES)
def test_copies_between_devices(source, target):
    x = torch.arange(24.0).view(4, 6)
    for layout in (
        lambda t: t,
        lambda t: t.t(),
        lambda t: t[::2, ::3],
        lambda t: t[:, :1].expand(4, 6),
        lambda t: t[0, 0],
    ):
        given = layout(x.to(source))
        for dtype in (torch.float32, torch.int64, torch.bfloat16, torch.complex64):
            moved = given.to(target, dtype)
            assert (moved.device, moved.dtype, moved.shape) == (torch.device(target), dtype, given.shape)
            assert raw(moved) == raw(layout(x).to(dtype))
            into = torch.zeros(given.shape[::-1], dtype=dtype, device=target).t()
            assert into.copy_(given) is into
            assert raw(into) == raw(layout(x).to(dtype))
    conjugate = torch.ones(2, dtype=torch.complex64, device=source).mul_(1j).conj()
    assert conjugate.to(target).tolist() == [-1j, -1j]
    torch._foreach_copy_(into := [torch.zeros(3, device=target)], [torch.ones(3, device=source)])
    assert into[0].tolist() == [1] * 3


def test_a_copy_broadcasts_and_checks_as_on_cpu():
    x = torch.zeros(2, 3, device="npu")
    x.copy_(torch.arange(3.0))
    x[1] = torch.tensor(7)
    assert x.tolist() == [[0, 1, 2], [7, 7, 7]]
    for source in (torch.ones(4), torch.ones(4, device="npu:1")):
        with pytest.raises(RuntimeError, match="must match the size"):
            x.copy_(source)
    with pytest.raises(RuntimeError, match="single memory location"):
        x[:, :1].expand(2, 3).copy_(torch.ones(2, 3))


@pytest.mark.parametrize("device", ["cpu", "npu:1", "meta"])
def test_a_result_lies_where_it_was_asked_for(device):
    x = torch.ones(2, 3, device="npu:0").t()
    for make in (torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like):
        made = make(x, device=device)
        assert (made.device, made.shape, made.stride()) == (torch.device(device), (3, 2), x.stride())
    assert torch.full_like(x, 3, device=device).device == torch.device(device)
    assert x.new_zeros(2, device=device).device == torch.device(device)
    assert x.new_tensor([1.0], device=device).device == torch.device(device)
    assert torch.zeros_like(x.to(device), device="npu:0").device == torch.device("npu:0")
    if device == "npu:1":
        assert torch.zeros_like(x, device=device).add_(torch.ones(3, 2, device=device)).sum() == 6


# ---- device mistakes ----

MISTAKES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "binary": lambda a, b: a + b,
    "in place": lambda a, b: a.mul_(b),
    "matmul": lambda a, b: a @ b.t(),
    "addmm": lambda a, b: torch.addmm(a, a, b),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "out": lambda a, b: torch.add(a, 1, out=b),
    "out of no element": lambda a, b: torch.add(a, 1, out=b.new_empty(0)),
    "one of two outs": lambda a, b: torch.sort(a, out=(torch.empty_like(a), b.to(torch.int64))),
    "cat": lambda a, b: torch.cat([a, b]),
    "cat, third": lambda a, b: torch.cat([a, a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "stack of 0-dim": lambda a, b: torch.stack([a[0, 0], b[0, 0]]),
    "foreach": lambda a, b: torch._foreach_add([a, a], [a, b]),
    "foreach in place": lambda a, b: torch._foreach_mul_([a, b], 2.0),
    "linear": lambda a, b: F.linear(a, b),
    "linear bias": lambda a, b: F.linear(a, a, b[0]),
    "layer norm": lambda a, b: F.layer_norm(a, (2,), b[0], b[0]),
    "conv": lambda a, b: F.conv2d(a[None, None], b[None, None]),
    "loss": lambda a, b: F.mse_loss(a, b),
    "gather": lambda a, b: a.gather(0, b.to(torch.int64)),
    "scatter": lambda a, b: a.scatter(0, a.to(torch.int64), b),
    "index_select": lambda a, b: a.index_select(0, b[0].to(torch.int64)),
    "index_put value": lambda a, b: a.index_put_((torch.tensor([0, 1]),), b),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, 1),
    "equal": lambda a, b: torch.equal(a, b),
    "embedding": lambda a, b: F.embedding(b.to(torch.int64), a),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize(
    ("first", "second"), [("npu:0", "cpu"), ("cpu", "npu:0"), ("npu:0", "npu:1"), ("npu:1", "npu:0")]
)
def test_tensors_of_two_devices_are_refused_and_nothing_is_written(name, first, second):
    a, b = torch.ones(2, 2, device=first), torch.ones(2, 2, device=second)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as error:
        MISTAKES[name](a, b)
    assert first in str(error.value)
    assert second in str(error.value)
    assert a.tolist() == b.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: x[i],
        lambda x, i: x.__setitem__(i, 0),
        lambda x, i: x.index_put_((i,), x.new_ones(1)),
        lambda x, i: x[:, i],
        lambda x, i: x[x.new_zeros(1, dtype=torch.int64), i],
        lambda x, i: x[i > -1],
    ],
)
@pytest.mark.parametrize(("tensor", "index"), [("npu:0", "npu:1"), ("npu:1", "npu:0"), ("cpu", "npu:0")])
def test_an_index_on_another_device_is_refused_unless_it_is_on_cpu(use, tensor, index):
    x = torch.ones(1, 1, device=tensor)
    i = torch.tensor([0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        use(x, i.to(index))
    use(x, i)
    use(x, i.to(tensor))


def test_a_number_in_the_form_of_a_cpu_tensor_is_an_operand_but_no_output():
    x = torch.ones(3, device="npu")
    number = torch.tensor(2.0)
    assert (x * number).tolist() == (number * x).tolist() == [2] * 3
    assert (number.double() * x).dtype == torch.float32
    with pytest.raises(RuntimeError, match="same device"):
        number.add_(torch.tensor(1.0, device="npu"))
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(1)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.tensor(1.0, device="npu:1")
    with pytest.raises(RuntimeError, match="same device"):
        torch.tensor(1.0, device="npu") + torch.ones(3)


def test_storages_of_another_device_are_refused():
    x = torch.ones(2, device="npu:0")
    for other in (torch.ones(2), torch.ones(2, device="npu:1")):
        with pytest.raises(RuntimeError, match="different device"):
            x.set_(other)
        with pytest.raises(RuntimeError, match="different device"):
            x.set_(other.untyped_storage(), 0, (2,), (1,))
    assert x.tolist() == [1, 1]


def test_cpu_autocast_is_not_for_npu():
    x = torch.randn(8, 8, device="npu")
    with torch.library._scoped_library("vnpu_test_autocast", "DEF") as library:
        library.define("square(Tensor x) -> Tensor")
        library.impl("square", lambda x: x @ x, "CPU")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            same(torch.ops.vnpu_test_autocast.square(x), (x @ x).cpu())
            assert (x @ x).dtype == torch.float32


@pytest.mark.parametrize("settings", [{}, {"is_causal": True}, {"scale": 0.3}])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_cpus_up_to_rounding(settings, masked):
    # PyTorch takes its fused kernel on CPU and its plain one here.
    def work(t):
        q, k, v = (t(2, 3, 5, 4).requires_grad_() for _ in range(3))
        mask = t(5, 5) if masked and not settings.get("is_causal") else None
        y = F.scaled_dot_product_attention(q, k, v, mask, **settings)
        y.sum().backward()
        return [y.detach(), q.grad, k.grad, v.grad]

    for npu, cpu in zip(work(Make("npu")), work(Make("cpu")), strict=True):
        assert npu.device.type == "npu"
        torch.testing.assert_close(npu.cpu(), cpu, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells_and_their_derivatives(kind, bias):
    cell = kind(3, 2, bias=bias, dtype=torch.float64)
    count = 3 if kind is nn.LSTMCell else 2
    host = [torch.randn(4, size, dtype=torch.float64) for size in (3, 2, 2)[:count]]

    def call(device, *tensors):
        x, *state = tensors
        y = copy.deepcopy(cell).to(device)(x, tuple(state) if len(state) > 1 else state[0])
        return y if isinstance(y, tuple) else (y,)

    npu = [tensor.npu().requires_grad_() for tensor in host]
    for one, other in zip(call("npu", *npu), call("cpu", *host), strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert torch.autograd.gradcheck(lambda *tensors: call("npu", *tensors), npu)
    assert torch.autograd.gradgradcheck(lambda *tensors: call("npu", *tensors), npu)
    for which in range(count - 1):  # one of the outputs alone is used
        assert torch.autograd.gradcheck(lambda *tensors, which=which: call("npu", *tensors)[which], npu)


# ---- operators of others ----


def test_an_operator_with_a_cpu_kernel_alone_works():
    with torch.library._scoped_library("vnpu_test_operators", "DEF") as library:
        library.define("twice(Tensor x, Tensor? bias=None) -> (Tensor, Tensor[])")
        library.define("halve_(Tensor(a!) x) -> Tensor(a!)")
        library.define("where_is(Device device) -> Tensor")
        seen = []

        def twice(x, bias):
            seen.append(x.device.type)
            return x * 2 + (0 if bias is None else bias), [x, x + 1]

        library.impl("twice", twice, "CPU")
        library.impl("halve_", lambda x: x.mul_(0.5), "CPU")
        ops = torch.ops.vnpu_test_operators
        x = torch.ones(3, device="npu:1")
        doubled, (itself, more) = ops.twice(x, bias=x)
        assert seen == ["cpu"]
        same([doubled, more], [torch.full((3,), 3.0), torch.full((3,), 2.0)], "npu:1")
        itself.zero_()
        assert x.sum() == 0
        x.fill_(4)
        assert ops.halve_(x) is x
        assert x.tolist() == [2] * 3
        with pytest.raises(RuntimeError, match=r"same device.*vnpu_test_operators::twice"):
            ops.twice(x, torch.ones(3))


def test_an_operator_that_is_defined_anew_is_called_by_its_new_schema():
    for round in range(4):
        with torch.library._scoped_library("vnpu_test_anew", "DEF") as library:
            if round % 2:
                library.define("f(Tensor[] xs, Tensor y, int n) -> (Tensor, Tensor)")
                library.impl("f", lambda xs, y, n: (xs[0] + n, y * n), "CPU")
            else:
                library.define("f(Tensor x) -> Tensor")
                library.impl("f", lambda x: x + 1, "CPU")
            f, x = torch.ops.vnpu_test_anew.f, torch.ones(2, device="npu")
            same(f([x], x, 3), (torch.full((2,), 4.0), torch.full((2,), 3.0))) if round % 2 else same(f(x), x.cpu() + 1)
        if hasattr(torch.ops, "vnpu_test_anew"):
            del torch.ops.vnpu_test_anew


def test_a_custom_operator_of_any_device_sees_npu_tensors():
    @torch.library.custom_op("vnpu_test_custom::sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == "npu"
        return x.sin()

    sine.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = torch.ones(2, device="npu", requires_grad=True)
    sine(x).sum().backward()
    same(x.grad, torch.ones(2).cos())


def test_an_operator_without_a_cpu_kernel_is_named():
    with torch.library._scoped_library("vnpu_test_none", "DEF") as library:
        library.define("nowhere(Tensor x) -> Tensor")
        with pytest.raises(NotImplementedError, match="no kernel for vnpu_test_none::nowhere"):
            torch.ops.vnpu_test_none.nowhere(torch.ones(1, device="npu"))
    with pytest.raises(NotImplementedError, match="aten::_cudnn_rnn"):
        torch.ops.aten._cudnn_rnn_backward(*_cudnn_arguments())


def _cudnn_arguments() -> list[Any]:
    x = torch.ones(1, device="npu")
    return [x, [x], 1, x, x, None, x, None, None, None, 0, 1, 0, 1, False, 0.0, True, False, [], None, x, [True] * 4]


# ---- autograd and transforms ----


def both(work: Callable[[Make], Any]) -> None:
    same(work(Make("npu")), work(Make("cpu")))


def test_gradients_hooks_and_retained_gradients():
    def work(t):
        x, w = t(3, 4).requires_grad_(), t(4, 2).requires_grad_()
        hidden = (x @ w).tanh()
        hidden.retain_grad()
        x.register_hook(lambda grad: grad * 2)
        seen = []
        hidden.register_hook(lambda grad: seen.append(grad.clone()))
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        (hidden.exp() * hidden).sum().backward(retain_graph=True)
        hidden.sum().backward()
        return [x.grad, w.grad, hidden.grad, *seen, hidden.grad_fn.name()]

    both(work)


def test_double_backward_and_grad_of_views_and_writes():
    def work(t):
        x = t(4, 3).requires_grad_()
        y = x * 2
        y[1] = x[0] ** 3
        y[:, 1].mul_(x[:, 2])
        y.view(-1)[::2].sin_()
        (first,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return [first.detach(), second]

    both(work)


def test_gradients_across_devices():
    x = torch.ones(3, device="npu:0", requires_grad=True)
    y = (x * 2).to("npu:1")
    z = (y * y).cpu()
    z.sum().backward()
    assert x.grad.device == torch.device("npu:0")
    assert x.grad.tolist() == [8] * 3


def test_checkpoint_equals_the_plain_backward():
    def work(t, reentrant):
        x, w = t(3, 4).requires_grad_(), t(4, 4).requires_grad_()
        torch.manual_seed(4)

        def layer(v):
            return F.dropout(v @ w, 0.5).relu()

        y = layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant)
        y.sum().backward()
        return [y.detach(), x.grad, w.grad]

    for reentrant in (False, True):
        same(work(Make("npu"), reentrant), work(Make("cpu"), None))


def test_a_function_in_python_and_gradcheck():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return 3 * ctx.saved_tensors[0] ** 2 * grad

    def work(t):
        x = t(4).requires_grad_()
        Cube.apply(x).sum().backward()
        return x.grad

    both(work)
    x = torch.randn(3, dtype=torch.float64, device="npu", requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: (v.sin() * v).cumsum(0), x)
    assert torch.autograd.gradgradcheck(lambda v: (v.sin() * v).cumsum(0), x)


def test_transforms():
    def loss(w, x):
        return (x @ w).tanh().pow(2).sum()

    def work(t):
        w, x = t(4, 2), t(5, 4)
        return [
            torch.func.grad(loss)(w, x),
            torch.vmap(torch.func.grad(loss), (None, 0))(w, x),
            torch.func.jacrev(lambda v: v.sin() * v.sum())(x[0]),
            torch.func.jacfwd(lambda v: v.sin() * v.sum())(x[0]),
            *torch.func.jvp(lambda v: v.exp() * v, (x,), (x,)),
            torch.func.hessian(lambda v: v.pow(3).sum())(x[0]),
            torch.vmap(lambda v: v[v.argmax()])(x),
        ]

    npu, cpu = work(Make("npu")), work(Make("cpu"))
    for one, other in zip(npu, cpu, strict=True):
        assert one.device.type == "npu"
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=1e-6)


def test_inference_mode_and_no_grad():
    with torch.inference_mode():
        x = torch.ones(3, device="npu") * 2
        assert x.is_inference()
        x.add_(1)
    with pytest.raises(RuntimeError, match=r"[Ii]nference tensor"):
        x.add_(torch.ones(3, device="npu", requires_grad=True))
    y = torch.ones(3, device="npu", requires_grad=True)
    with torch.no_grad():
        assert not (y * 2).requires_grad
    with pytest.raises(RuntimeError, match="leaf Variable"):
        y.add_(1)


def test_a_write_after_saving_is_detected():
    x = torch.ones(3, device="npu", requires_grad=True)
    y = x * 1
    z = y.sin()
    y.view(3).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_printing():
    assert repr(torch.arange(3, device="npu:1")) == "tensor([0, 1, 2], device='npu:1')"
    assert "grad_fn=<MulBackward0>" in repr(torch.ones(1, device="npu", requires_grad=True) * 2)


INTO_ITS_INPUT = {
    "add": lambda a, b: torch.add(a, b, out=a),
    "mul": lambda a, b: torch.mul(b, a, out=a),
    "where": lambda a, b: torch.where(b > 2, a, b, out=a),
    "addcmul": lambda a, b: torch.addcmul(b, a, b, out=a),
    "a slice": lambda a, b: torch.add(part := b[:1], b, out=part),
    "of the same shape": lambda a, b: torch.mul(b, b, out=b),
    "mm": lambda a, b: torch.mm(square := b.view(2, 2), square, out=square),
}


@pytest.mark.parametrize("name", INTO_ITS_INPUT)
def test_a_result_that_is_an_input_is_known_as_such(name):
    def outcome(device):
        a, b = torch.ones(1, device=device), torch.arange(4.0, device=device)
        try:
            return INTO_ITS_INPUT[name](a, b).tolist()
        except RuntimeError as error:
            return str(error)

    for _ in range(3):
        assert outcome("npu") == outcome("cpu")
