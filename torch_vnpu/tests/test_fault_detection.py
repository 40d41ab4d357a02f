"""Faults that a device may make: a bit of a gradient or of a product is flipped, and must be found; sound work must not be."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import torch_vnpu
from torch_vnpu import asd
from torch_vnpu.asd.gradients import WARM_UP

INTEGERS = {torch.float32: (torch.int32, 32), torch.bfloat16: (torch.int16, 16), torch.float64: (torch.int64, 64)}


def flipped(tensor, place, bit):
    """`tensor` with one bit of one element flipped."""
    kind, bits = INTEGERS[tensor.dtype]
    words = tensor.detach().cpu().flatten().view(kind).clone()
    words[place] ^= (1 << bit) if bit < bits - 1 else torch.iinfo(kind).min
    return words.view(tensor.dtype).view(tensor.shape).to(tensor.device)


class FlipInBackward(torch.autograd.Function):
    """The identity, whose backward pass is hit by a fault."""

    @staticmethod
    def forward(context, x, bit):
        context.bit = bit
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return flipped(gradient, 3, context.bit), None


@pytest.fixture
def watching():
    asd.enable()
    yield
    asd.disable()
    asd.set_asd_loss_scale(1)
    assert not asd.is_enabled()


def trained(steps, bit=None, device="npu", scale=1.0):
    """Train for some steps; where `bit` is given, it is flipped in the last backward pass."""
    torch.manual_seed(0)
    first, second = nn.Linear(8, 16).to(device), nn.Linear(16, 2).to(device)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.01)
    for step in range(steps):
        optimizer.zero_grad()
        hidden = first(torch.randn(4, 8).to(device)).relu()
        if bit is not None and step == steps - 1:
            hidden = FlipInBackward.apply(hidden, bit)
        (second(hidden).pow(2).mean() * scale).backward()
        optimizer.step()
    return first.weight.detach().cpu()


@pytest.mark.usefixtures("watching")
@pytest.mark.parametrize("device", ["npu:0", "npu:1"])
def test_a_flipped_bit_in_a_backward_pass_is_found(device):
    with pytest.raises(
        asd.SilentDataCorruptionError, match=r"the gradient of Linear\.(weight|bias) \[16(, 8)?\]"
    ) as caught:
        trained(WARM_UP + 1, bit=30, device=device)
    assert "ERR00003" in str(caught.value)
    trained(1)  # the next pass starts afresh


def test_the_same_fault_goes_unseen_without_the_watch():
    assert not asd.is_enabled()
    assert trained(WARM_UP + 1, bit=30).abs().max() > 1e20


@pytest.mark.usefixtures("watching")
def test_sound_training_is_not_reported_and_not_changed():
    watched = trained(30)
    asd.disable()
    assert torch.equal(watched, trained(30))


@pytest.mark.usefixtures("watching")
def test_a_gradient_that_is_not_finite_is_found_at_once_unless_a_loss_scale_explains_it():
    with pytest.raises(asd.SilentDataCorruptionError, match=r"is (inf|nan)"):
        trained(1, scale=float("inf"))
    asd.set_asd_loss_scale(2.0**16)
    trained(1, scale=float("inf"))


@pytest.mark.usefixtures("watching")
def test_a_new_loss_scale_is_no_jump_once_it_is_told():
    model = nn.Linear(4, 1).npu()
    x = torch.ones(2, 4, device="npu")
    for _ in range(WARM_UP + 1):
        model(x).sum().backward()
    asd.set_asd_loss_scale(2.0**20)
    (model(x).sum() * 2.0**20).backward()
    asd.set_asd_loss_scale(1)
    with pytest.raises(asd.SilentDataCorruptionError):
        (model(x).sum() * 2.0**20).backward()


def test_an_activation_is_watched_by_a_hook_of_its_own():
    weight = torch.ones(4, device="npu", requires_grad=True)

    def step(factor):
        x = torch.ones(4, device="npu", requires_grad=True) * 1
        asd.register_asd_hook(x, weight)
        (x * weight * factor).sum().backward()

    for _ in range(WARM_UP):
        step(1.0)
    with pytest.raises(asd.SilentDataCorruptionError, match="an activation"):
        step(1e9)
    step(1.0)
    with pytest.raises(ValueError, match="does not require one"):
        asd.register_asd_hook(torch.ones(1), weight)


@pytest.mark.parametrize("scale", [0, -1, float("inf"), float("nan"), "2", None, True])
def test_a_loss_scale_that_is_none_is_refused(scale):
    with pytest.raises(ValueError, match="must be a positive number"):
        asd.set_asd_loss_scale(scale)


@pytest.mark.parametrize(("value", "on"), [("1", True), ("0", False)])
def test_the_variable_switches_the_watch_on(with_torch, value, on):
    run = with_torch("import torch_vnpu.asd; print(torch_vnpu.asd.is_enabled())", NPU_ASD_ENABLE=value)
    assert run.passed().lines == [str(on)]


# ------------------------------------------------------------------------------------------- matmul_checksum
@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 9)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_a_sound_product_is_never_reported(shape, dtype, scale, seed):
    m, k, n = shape
    generator = torch.Generator().manual_seed(seed)
    a = (torch.randn(m, k, generator=generator) * scale).to(dtype).npu()
    b = torch.randn(k, n, generator=generator).to(dtype).npu()
    found = torch_vnpu.matmul_checksum(a, b, a @ b)
    assert (found.dtype, found.shape, found.device.type) == (torch.bool, (), "npu")
    assert not found


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(list(INTEGERS)), seed=st.integers(0, 1000))
def test_a_flipped_bit_of_sign_or_exponent_is_found(data, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    a = (torch.rand(6, 20, generator=generator) + 0.5).to(dtype).npu()
    b = (torch.rand(20, 5, generator=generator) + 0.5).to(dtype).npu()
    c = a @ b
    bits, mantissa = INTEGERS[dtype][1], {torch.float32: 23, torch.bfloat16: 7, torch.float64: 52}[dtype]
    bit = data.draw(st.integers(mantissa, bits - 1))
    assert torch_vnpu.matmul_checksum(a, b, flipped(c, data.draw(st.integers(0, 29)), bit))


def test_products_of_batches_and_products_with_overflow():
    a, b = torch.rand(3, 1, 4, 5, device="npu"), torch.rand(2, 5, 6, device="npu")
    c = a @ b
    assert not torch_vnpu.matmul_checksum(a, b, c)
    c[2, 1, 3, 5] += 1
    assert torch_vnpu.matmul_checksum(a, b, c)
    large = torch.full((2, 2), 300.0, dtype=torch.float16, device="npu")
    assert not torch_vnpu.matmul_checksum(large, large, large @ large)  # infinite by right
    assert torch_vnpu.matmul_checksum(large / 300, large / 300, large @ large)
    assert not torch_vnpu.matmul_checksum(large / 0, large, large @ large)  # cannot be checked


def test_what_is_no_product_is_refused():
    a = torch.ones(2, 3)
    with pytest.raises(ValueError, match="but got shapes"):
        torch_vnpu.matmul_checksum(a, torch.ones(2, 3), a)
    with pytest.raises(ValueError, match="but got shapes"):
        torch_vnpu.matmul_checksum(a, torch.ones(3, 4), torch.ones(2, 3))
    with pytest.raises(TypeError, match="floating point"):
        torch_vnpu.matmul_checksum(a.int(), a.int(), a.int())
