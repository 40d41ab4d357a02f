"""Random numbers: CPU's numbers for CPU's seed, one generator a device, states, forks, generators as arguments."""

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn

DRAWS = {
    "rand": lambda device, g: torch.rand(7, device=device, generator=g),
    "randn": lambda device, g: torch.randn(33, device=device, generator=g),
    "randint": lambda device, g: torch.randint(100, (7,), device=device, generator=g),
    "randperm": lambda device, g: torch.randperm(9, device=device, generator=g),
    "normal_": lambda device, g: torch.empty(20, device=device).normal_(1, 2, generator=g),
    "normal": lambda device, g: torch.normal(torch.zeros(5, device=device), 2.0, generator=g),
    "uniform_": lambda device, g: torch.empty(5, device=device).uniform_(-1, 1, generator=g),
    "exponential_": lambda device, g: torch.empty(5, device=device).exponential_(2, generator=g),
    "cauchy_": lambda device, g: torch.empty(5, device=device).cauchy_(generator=g),
    "geometric_": lambda device, g: torch.empty(5, device=device).geometric_(0.3, generator=g),
    "log_normal_": lambda device, g: torch.empty(5, device=device).log_normal_(generator=g),
    "random_": lambda device, g: torch.empty(5, dtype=torch.int64, device=device).random_(generator=g),
    "bernoulli": lambda device, g: torch.bernoulli(torch.full((9,), 0.4, device=device), generator=g),
    "poisson": lambda device, g: torch.poisson(torch.full((9,), 4.0, device=device), generator=g),
    "multinomial": lambda device, g: torch.multinomial(torch.ones(9, device=device), 4, generator=g),
    "non-contiguous": lambda device, g: torch.zeros(4, 6, device=device).t()[::2].normal_(generator=g),
    "bfloat16": lambda device, g: torch.randn(9, device=device, dtype=torch.bfloat16, generator=g),
}


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("explicit", [False, True], ids=["default", "generator"])
def test_a_seed_gives_the_numbers_that_it_gives_on_cpu(draw, explicit):
    for device in ("npu:0", "npu:1"):
        torch.manual_seed(5)
        g = torch.Generator(device).manual_seed(5) if explicit else None
        host = torch.Generator().manual_seed(5) if explicit else None
        for _ in range(2):  # the second draw continues
            assert torch.equal(DRAWS[draw](device, g).cpu(), DRAWS[draw]("cpu", host))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_is_cpus(training):
    x = torch.ones(50)
    for layer in (nn.Dropout(0.3), nn.AlphaDropout(0.3), nn.FeatureAlphaDropout(0.3)):
        layer.train(training)
        shape = x.view(1, 5, 10)
        torch.manual_seed(2)
        expected = layer(shape)
        torch.manual_seed(2)
        assert torch.equal(layer(shape.npu()).cpu(), expected)


def test_each_device_has_its_own_state_and_cpus_is_untouched():
    torch.manual_seed(1)
    host = torch.get_rng_state()
    before = torch.npu.get_rng_state_all()
    torch.rand(3, device="npu:1")
    assert torch.equal(torch.npu.get_rng_state(0), before[0])
    assert not torch.equal(torch.npu.get_rng_state(1), before[1])
    assert torch.equal(torch.get_rng_state(), host)
    torch.npu.set_rng_state_all(before)
    assert torch.equal(torch.npu.get_rng_state(1), before[1])
    assert before[0].device.type == "cpu"


def test_seeding():
    torch.npu.manual_seed_all(3)
    with torch.npu.device(1):
        torch.npu.manual_seed(4)
        assert torch.npu.initial_seed() == 4
    assert torch.npu.initial_seed() == 3
    chosen = torch.npu.seed()
    assert torch.npu.initial_seed() == chosen
    torch.npu.seed_all()
    assert torch.npu.default_generators[0].initial_seed() == torch.npu.default_generators[1].initial_seed()
    torch.manual_seed(9)
    assert [g.initial_seed() for g in torch.npu.default_generators] == [9, 9]
    assert torch.npu.default_generators[1] is torch.npu.default_generators[1]


@pytest.mark.parametrize("device", ["npu:1", 1, torch.device("npu:1")])
def test_a_state_is_put_back(device):
    state = torch.npu.get_rng_state(device)
    first = torch.rand(4, device="npu:1")
    torch.npu.set_rng_state(state, device)
    assert torch.equal(torch.rand(4, device="npu:1"), first)


def test_fork_rng_restores_all_devices():
    states = torch.npu.get_rng_state_all()
    with torch.random.fork_rng(range(2), device_type="npu"):
        torch.manual_seed(77)
        torch.rand(3, device="npu:0")
        torch.rand(3, device="npu:1")
    assert all(torch.equal(*pair) for pair in zip(torch.npu.get_rng_state_all(), states, strict=True))


def test_a_generator_of_another_device_is_refused():
    def refused(draw, words):
        with pytest.raises(RuntimeError, match=words):
            draw()

    for device, own, other in (("npu:0", "npu:0", "npu:1"), ("npu:1", "npu:1", "npu:0"), ("npu", "npu:0", "npu:1")):
        foreign = torch.Generator(other)
        state = foreign.get_state()
        for draw in DRAWS.values():
            refused(partial(draw, device, foreign), f"generator of device {own}.*{other}")
        assert torch.equal(foreign.get_state(), state)
    refused(lambda: torch.rand(2, device="npu", generator=torch.Generator()), "'npu' device type.*'cpu'")
    refused(lambda: torch.rand(2, generator=torch.Generator("npu")), "'cpu' device type.*'npu'")
    refused(lambda: torch.ones(2).normal_(generator=torch.Generator("npu")), "'cpu' device type.*'npu'")


def test_a_generator_is_copied_with_its_state():
    g = torch.Generator("npu:1").manual_seed(8)
    torch.rand(5, device="npu:1", generator=g)
    for twin in (g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert twin.device == torch.device("npu:1")
        assert twin.initial_seed() == 8
        state = g.get_state()
        expected = torch.rand(3, device="npu:1", generator=g)
        g.set_state(state)
        assert torch.equal(torch.rand(3, device="npu:1", generator=twin), expected)


def test_a_generator_has_no_offset():
    g = torch.Generator("npu")
    assert g.get_offset() == 0
    with pytest.raises(NotImplementedError, match="no offset"):
        g.set_offset(4)


def test_a_state_that_is_none_is_refused():
    for state in (torch.zeros(3, dtype=torch.uint8), torch.zeros(5056)):
        with pytest.raises((RuntimeError, TypeError)):
            torch.npu.set_rng_state(state)
