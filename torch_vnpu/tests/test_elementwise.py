"""The typed kernels, which take calls that run at once: the bits, layouts and errors of CPU for whatever they are given."""

PROGRAM = """
import itertools, math, torch, warnings
warnings.simplefilter("ignore")
torch.manual_seed(0)
shapes = [(), (0,), (1,), (7,), (3, 4), (2, 1, 5), (2, 3, 4, 5), (40, 70)]
dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool, torch.complex64]
binary = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "alpha": lambda a, b: torch.add(a, b, alpha=2), "minus alpha": lambda a, b: torch.sub(a, b, alpha=3),
    "radd": lambda a, b: 2 + a, "rdiv": lambda a, b: a / 3.0,
    "threshold": lambda a, b: torch.ops.aten.threshold_backward(a, b, 0),
    "relu": lambda a, b: torch.relu(a - b),
}

def layouts(x):
    yield x
    if x.dim() >= 2:
        yield x.t() if x.dim() == 2 else x.transpose(0, -1)
        yield x[::2]
        yield x.flip(0)
    if x.dim() == 4:
        yield x.contiguous(memory_format=torch.channels_last)
    if x.dim() and x.numel():
        yield x[:1].expand(x.shape)

def values(shape, dtype):
    x = torch.randn(shape) * 3
    if dtype.is_floating_point and x.numel() > 3:
        x.view(-1)[:3] = torch.tensor([math.nan, math.inf, -0.0])
    return x.to(dtype)

def bits(x):
    return x.reshape(-1).contiguous().view(torch.uint8)

def outcome(call, *operands):
    try:
        return call(*operands)
    except Exception as error:
        return type(error)

count = 0
for (name, call), shape in itertools.product(binary.items(), shapes):
    for one, other in itertools.product(dtypes, repeat=2):
        a, b = values(shape, one), values(shape, other)
        broadcast = [(a, values((), other)), (a, b[..., :1] if b.dim() else b)]
        for left, right in itertools.chain(zip(layouts(a), layouts(b)), broadcast):
            wanted = outcome(call, left, right)
            for device in ("npu:0", "npu:1"):
                # The same layout, not that of a copy.
                def there(x, of):
                    base = of.to(device)
                    return base.as_strided(x.size(), x.stride(), x.storage_offset()) if x._base is of else x.to(device)
                got = outcome(call, there(left, a), there(right, b))
                where = (name, tuple(left.shape), one, other, left.stride(), right.stride())
                if isinstance(wanted, type):
                    assert got is wanted, (where, got, wanted)
                    continue
                assert isinstance(got, torch.Tensor), (where, got)
                assert str(got.device) == device and got.dtype == wanted.dtype, where
                assert got.shape == wanted.shape and got.stride() == wanted.stride(), (where, got.stride(), wanted.stride())
                assert torch.equal(bits(got.cpu()), bits(wanted)), where
                count += 1
print(count > 10000)

x, y, c = torch.ones(3, device="npu:0"), torch.ones(3, device="npu:1"), torch.ones(3)
for call, pair in itertools.product((torch.add, torch.sub, torch.mul, torch.div), ((x, y), (x, c), (c, x))):
    try:
        call(*pair)
    except RuntimeError as error:
        assert "Expected all tensors to be on the same device" in str(error), error
    else:
        raise AssertionError((call, pair))
try:
    torch.ones(3, device="npu") + torch.ones(4, device="npu")
except RuntimeError as error:
    print(str(error))
torch.npu.set_device(0)
assert (y + y).device == torch.device("npu:1") and torch.npu.current_device() == 0
z = torch.ones(2, dtype=torch.complex64, device="npu").conj()
assert torch.equal((z + z).cpu(), torch.full((2,), 2 + 0j))
"""


def test_results_are_those_of_cpu(fresh):
    run = fresh(PROGRAM, TASK_QUEUE_ENABLE="0").passed()
    assert run.lines == [
        "True",
        "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0",
    ]
