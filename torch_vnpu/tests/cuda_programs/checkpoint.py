"""Checkpoints: one that a machine with CUDA wrote (its path is the argument), and one's own."""

import io
import sys

import torch

state = torch.load(sys.argv[1])
assert state["weight"].device == torch.device("cuda:1")
for place in (
    "cpu",
    "cuda:0",
    torch.device("cuda", 0),
    {"cuda:1": "cuda:0"},
    lambda storage, location: storage.cuda(0),
):
    weight = torch.load(sys.argv[1], map_location=place)["weight"]
    assert weight.device == torch.device("cpu" if place == "cpu" else "cuda:0"), place

model = torch.nn.Linear(2, 2).to("cuda:1")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model(torch.ones(1, 2, device="cuda:1")).sum().backward()
optimizer.step()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
saved = torch.load(file, map_location={"cuda:1": "cuda:0"}, weights_only=True)
other = torch.nn.Linear(2, 2, device="cuda:0")
other.load_state_dict(saved["model"])
assert saved["model"]["weight"].device == other.weight.device == torch.device("cuda:0")
assert torch.equal(other.weight.cpu(), model.weight.cpu())
print("loaded")
