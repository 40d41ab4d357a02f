"""Generators: seeded, forked, saved and restored."""

import torch

torch.manual_seed(7)
a = torch.randn(5, device="cuda")
torch.cuda.manual_seed_all(7)
b = torch.randn(5, device="cuda")
assert torch.equal(a, b)

state = torch.cuda.get_rng_state("cuda:0")
c = torch.rand(5, device="cuda")
torch.cuda.set_rng_state(state, "cuda:0")
assert torch.equal(c, torch.rand(5, device="cuda"))

own = torch.Generator(device="cuda")
own.manual_seed(3)
d = torch.randperm(10, generator=own, device="cuda")
own.manual_seed(3)
assert torch.equal(d, torch.randperm(10, generator=own, device="cuda"))
assert own.device == torch.device("cuda", 0)
assert isinstance(own, torch.Generator)
assert torch.cuda.default_generators[0].initial_seed() == torch.cuda.initial_seed() == 7

with torch.random.fork_rng(devices=[0]):
    torch.rand(100, device="cuda")
e = torch.rand(1, device="cuda")
torch.cuda.set_rng_state(state)
torch.rand(5, device="cuda")
assert torch.equal(e, torch.rand(1, device="cuda"))
print("the same numbers")
