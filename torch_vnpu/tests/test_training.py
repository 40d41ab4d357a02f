"""Training: models and optimisers as on CPU, mixed precision, and data parallelism over the two devices."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torch_vnpu import _C


class Residual(nn.Module):
    """A small residual convnet with batch norm, pooling and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, padding=1)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.stem(x)).relu(), 2)
        x = F.relu(x + self.block(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """Causal self-attention on tokens, with tied embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.projection = nn.Linear(16, 48)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.projection(x).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return F.linear(x, self.embedding.weight).mean(1)


class Recurrent(nn.Module):
    """An LSTM and a GRU, two layers, both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(10, 4, num_layers=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, c) = self.lstm(x)
        z, last = self.gru(y)
        return z.mean(1) + h.mean() + c.mean() + last.sum()


def encoder() -> nn.Module:
    return nn.Sequential(
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
        ),
        nn.Flatten(),
        nn.Linear(16 * 7, 5),
    )


#: model, input, and whether PyTorch runs the same kernels on npu as on CPU: then the bits are the same.
MODELS = {
    "convnet": (Residual, lambda: torch.randn(4, 3, 8, 8), True),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5)),
        lambda: torch.randn(4, 6),
        True,
    ),
    "encoder": (encoder, lambda: torch.randn(4, 7, 16), False),
    "attention": (Attention, lambda: torch.randint(11, (4, 9)), False),
    "recurrent": (Recurrent, lambda: torch.randn(4, 7, 6), False),
}

OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam foreach": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "adam loop": lambda p: torch.optim.Adam(p, 0.01, foreach=False),
    "adam fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "adamw amsgrad": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
}


def train(model: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor, steps: int = 4) -> list[float]:
    target = torch.arange(len(x), device=x.device) % 4
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
    return losses


def trained(name: str, optimiser: str, device: str) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.manual_seed(1)
    make, data, _ = MODELS[name]
    model, x = make().to(device), data().to(device)
    losses = train(model, OPTIMISERS[optimiser](model.parameters()), x)
    assert {tensor.device for tensor in model.state_dict().values()} == {torch.device(device)}
    return losses, {key: value.cpu() for key, value in model.state_dict().items()}


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", MODELS)
def test_training_is_cpus(name, optimiser):
    losses, state = trained(name, optimiser, "npu:1")
    expected, expected_state = trained(name, optimiser, "cpu")
    assert expected[-1] != expected[0]
    if MODELS[name][2]:
        assert losses == expected
        assert all(torch.equal(state[key], value) for key, value in expected_state.items())
    else:
        assert losses == pytest.approx(expected, abs=1e-4)


def test_a_training_goes_on_from_its_checkpoint(tmp_path):
    def parts(device):
        model = Residual().to(device)
        return model, torch.optim.Adam(model.parameters(), 0.01)

    x = torch.randn(4, 3, 8, 8, device="npu")
    model, optimiser = parts("npu")
    train(model, optimiser, x)
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, tmp_path / "checkpoint.pt")
    expected = train(model, optimiser, x)
    saved = torch.load(tmp_path / "checkpoint.pt", map_location="cpu")
    model, optimiser = parts("npu")
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    assert train(model, optimiser, x) == expected


# ---- mixed precision ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_the_types_that_its_lists_promise(dtype):
    x = torch.randn(4, 4, device="npu")
    low = x.to(dtype)
    image, kernel = torch.randn(1, 2, 5, 5, device="npu"), torch.randn(2, 2, 3, 3, device="npu")
    with torch.autocast("npu", dtype=dtype):
        assert torch.is_autocast_enabled("npu")
        assert not torch.is_autocast_enabled("cpu")
        for lower in (
            x @ x,
            F.linear(x, x),
            torch.addmm(x, x, x),
            F.conv2d(image, kernel),
            torch.bmm(x[None], x[None]),
        ):
            assert lower.dtype == dtype
        for single in (
            low.exp(),
            low.softmax(0),
            low.sum(),
            F.layer_norm(low, (4,)),
            F.mse_loss(low, low),
            low.norm(),
            low.pow(2),
        ):
            assert single.dtype == torch.float32
        assert torch.cat([x, low]).dtype == torch.addcmul(low, x, low).dtype == torch.float32
        assert (low + low).dtype == low.relu().dtype == dtype
        with torch.autocast("npu", enabled=False):
            assert (x @ x).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        assert (x.cpu() @ x.cpu()).dtype == torch.float32
    assert (x @ x).dtype == torch.float32
    assert dtype in torch.npu.get_amp_supported_dtype()


def test_autocast_in_its_other_forms():
    x = torch.randn(4, 4, device="npu")
    with torch.npu.amp.autocast():
        assert (x @ x).dtype == torch.float16
    with torch.npu.amp.autocast(dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with torch.npu.amp.autocast(enabled=False):
        assert (x @ x).dtype == torch.float32

    @torch.autocast("npu", dtype=torch.bfloat16)
    def product(y):
        return y @ y

    assert product(x).dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="not supported"), torch.autocast("npu", dtype=torch.float64):
        assert (x @ x).dtype == torch.float32


def test_autocast_trains_as_on_cpu():
    def losses(device):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5)).to(device)
        optimiser, x = torch.optim.SGD(model.parameters(), 0.1), torch.randn(8, 6).to(device)
        seen = []
        for _ in range(3):
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), torch.arange(8, device=device) % 5)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            seen.append(loss.item())
        assert model[0].weight.grad.dtype == torch.float32
        return seen

    assert losses("npu") == pytest.approx(losses("cpu"), abs=2e-2)


@pytest.mark.parametrize("optimiser", ["sgd", "adam foreach", "adam fused"])
@pytest.mark.parametrize(
    "scaler", [lambda: torch.amp.GradScaler("npu", init_scale=8.0), lambda: torch.npu.amp.GradScaler(init_scale=8.0)]
)
def test_the_scaler_steps_and_skips_a_step_that_overflows(optimiser, scaler):
    scaler = scaler()
    parameter = nn.Parameter(torch.ones(3, device="npu"))
    optimiser = OPTIMISERS[optimiser]([parameter])

    def step(factor):
        optimiser.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.unscale_(optimiser)
        norm = nn.utils.clip_grad_norm_([parameter], 100.0)
        scaler.step(optimiser)
        scaler.update()
        return norm.item(), parameter.tolist(), scaler.get_scale()

    norm, first, scale = step(2.0)
    assert norm == pytest.approx(12**0.5)
    assert (first != [1, 1, 1], scale) == (True, 8.0)
    _, second, scale = step(float("inf"))
    assert (second, scale) == (first, 4.0)
    again = torch.amp.GradScaler("npu")
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == 4.0


# ---- data parallelism ----


class Branches(nn.Module):
    """Takes keywords, nested inputs and things that are no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, pair, *, scale, shift=None, name="none"):
        y = self.linear(pair[0]) * scale + pair[1]["add"]
        return {"y": y if shift is None else y + shift, "device": [pair[0].sum()[None]]}


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL support")
@pytest.mark.parametrize("batch", [6, 7, 1])
def test_data_parallel_equals_the_single_device(batch):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).npu()
    single = copy.deepcopy(model)
    parallel = nn.DataParallel(model)
    assert parallel.device_ids == [0, 1]
    x = torch.randn(batch, 4, device="npu", requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        one, other = parallel(x), single(y)
        assert one.device == torch.device("npu:0")
        torch.testing.assert_close(one, other)
        one.square().sum().backward()
        other.square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for mine, theirs in zip(model.parameters(), single.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_data_parallel_takes_batch_norm_from_the_first_device():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)).npu()
    single = copy.deepcopy(model)
    x = torch.randn(8, 3, device="npu")
    y = nn.DataParallel(model)(x)
    torch.testing.assert_close(y, torch.cat([copy.deepcopy(single)(x[:4]), single(x[4:])]))
    expected = copy.deepcopy(single[0])
    expected.load_state_dict(nn.BatchNorm1d(3).state_dict())
    expected(x[:4])
    assert torch.equal(model[0].running_mean, expected.running_mean)
    assert model[0].num_batches_tracked == 1
    model.eval()
    torch.testing.assert_close(nn.DataParallel(model)(x), model(x))


def test_data_parallel_scatters_keywords_and_gathers_structures():
    model = Branches().npu()
    x = torch.randn(5, 3, device="npu")
    pair, settings = (x, {"add": x[:, :2] * 0.5}), {"scale": torch.rand(5, 1, device="npu"), "shift": None, "name": "a"}
    got, expected = nn.DataParallel(model)(pair, **settings), model(pair, **settings)
    torch.testing.assert_close(got["y"], expected["y"])
    assert got["device"][0].shape == (2,)
    functional = nn.parallel.data_parallel(model, (pair,), [0, 1], module_kwargs=settings)
    torch.testing.assert_close(functional["y"], expected["y"])


def test_functional_data_parallel_in_its_forms():
    model, x = nn.Linear(3, 2).npu(), torch.randn(5, 3, device="npu")
    for device_ids, output in (([0, 1], None), ([0, 1], 1), ([0], 0), ([1, 0], 0), (None, None)):
        module = copy.deepcopy(model).npu(device_ids[0] if device_ids else 0)
        y = nn.parallel.data_parallel(module, x, device_ids, output)
        assert y.device == torch.device("npu", output if output is not None else 0)
        torch.testing.assert_close(y.cpu(), model(x).cpu())
    with pytest.warns(FutureWarning, match="-1 to represent CPU"):
        on_cpu = nn.parallel.data_parallel(model, x, [0, 1], output_device=-1)
    assert on_cpu.device.type == "cpu"


def test_mistakes_in_data_parallel():
    model, x = nn.Linear(3, 2), torch.randn(4, 3, device="npu")
    with pytest.raises(RuntimeError, match="module must have its parameters and buffers on device npu:0"):
        nn.DataParallel(model.npu(1), [0, 1])(x)
    with pytest.raises(RuntimeError, match=r"Caught RuntimeError in replica 0"):
        nn.DataParallel(model.npu(0))(torch.randn(4, 5, device="npu"))
    replicas = nn.parallel.replicate(model, [0, 1])
    with pytest.raises(AssertionError):
        nn.parallel.parallel_apply(replicas, [(x,)])
    assert model(x).shape == (4, 2)


# ---- the functions of torch._C that data parallelism is made of ----


def values(tensors):
    return [(str(t.device), t.tolist()) for t in tensors]


def test_broadcast():
    x = torch.arange(2.0, device="npu:0")
    copies = torch._C._broadcast(x, [0, 1, -1])
    assert values(copies) == [("npu:0", [0, 1]), ("npu:1", [0, 1]), ("cpu", [0, 1])]
    assert copies[0] is x
    out = [torch.zeros(2, device="npu:1"), torch.zeros(2), x]
    assert torch._C._broadcast_out(x, out) == out
    assert [t.tolist() for t in out] == [[0, 1]] * 3
    with pytest.raises(RuntimeError, match=r"output 1 has \(3,\)"):
        torch._C._broadcast_out(x, [torch.zeros(2), torch.zeros(3)])


def test_broadcast_coalesced():
    xs = [torch.arange(2.0, device="npu:1"), torch.ones(1, dtype=torch.int64, device="npu:1")]
    first, second = torch._C._broadcast_coalesced(xs, [1, 0], 10)
    assert all(mine is theirs for mine, theirs in zip(first, xs, strict=True))
    assert values(second) == [("npu:0", [0, 1]), ("npu:0", [1])]
    assert torch._C._broadcast_coalesced([], [0, 1], 10) == [[], []]
    with pytest.raises(RuntimeError, match=r"devices\[0\]: 0, but tensor 0 is on npu:1"):
        torch._C._broadcast_coalesced(xs, [0, 1], 10)


def test_scatter():
    x = torch.arange(5.0)
    assert values(torch._C._scatter(x, [0, 1])) == [("npu:0", [0, 1, 2]), ("npu:1", [3, 4])]
    assert values(torch._C._scatter(x, [1, -1], [1, 4])) == [("npu:1", [0]), ("cpu", [1, 2, 3, 4])]
    assert values(torch._C._scatter(x[:1], [0, 1])) == [("npu:0", [0])]
    rows = torch._C._scatter(x.view(1, 5).npu(), [0, 1], None, 1)
    assert values(rows) == [("npu:0", [[0, 1, 2]]), ("npu:1", [[3, 4]])]
    streams = [torch.npu.Stream(0), None]
    for given in (streams, streams[:1], None, []):
        assert len(torch._C._scatter(x, [0, 1], None, 0, given)) == 2
    assert torch.npu.current_device() == 0
    for arguments, words in (
        ((x, []), "at least one device"),
        ((x, [0, 1], [5]), "one chunk size a device"),
        ((x, [0, 1], [1, 1]), "add up to the size 5"),
    ):
        with pytest.raises(RuntimeError, match=words):
            torch._C._scatter(*arguments)


def test_scatter_copies_on_the_streams_that_were_given():
    stream, seen = torch.npu.Stream(1), []
    id = _C.subscribe(lambda kind, device, stream, *_: seen.append((device, stream)), ["launch"])
    try:
        torch._C._scatter(torch.arange(4.0), [0, 1], None, 0, [None, stream])
    finally:
        _C.unsubscribe(id)
    assert seen == [(0, 0), (1, stream.stream_id)]


def test_scatter_out():
    x = torch.arange(5.0, device="npu")
    out = [torch.zeros(2, device="npu:1"), torch.zeros(3)]
    assert values(torch._C._scatter_out(x, out)) == [("npu:1", [0, 1]), ("cpu", [2, 3, 4])]
    with pytest.raises(RuntimeError, match="add up to the size 5"):
        torch._C._scatter_out(x, [torch.zeros(2)])


def test_gather():
    parts = [torch.arange(2.0, device="npu:1"), torch.ones(1, device="npu:0")]
    assert values([torch._C._gather(parts, 0, 0)]) == [("npu:0", [0, 1, 1])]
    assert values([torch._C._gather(parts, 0, -1)]) == [("cpu", [0, 1, 1])]
    with torch.npu.device(1):
        assert torch._C._gather(parts, 0, None).device == torch.device("npu:1")
    out = torch.zeros(3, device="npu:1")
    assert torch._C._gather_out(parts, out, 0) is out
    assert out.tolist() == [0, 1, 1]
    with pytest.raises(RuntimeError, match="at least one tensor"):
        torch._C._gather([], 0)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch._C._gather([torch.ones(2, 2, device="npu"), torch.ones(2, 3, device="npu")], 0, 0)
