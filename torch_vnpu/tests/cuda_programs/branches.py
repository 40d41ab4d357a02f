"""The branches that programs take to find their device."""

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.zeros(3, device=device)
assert x.is_cuda
assert x.device == torch.device("cuda:0")
assert x.to("cuda") is x
assert x.cuda() is x
assert not x.cpu().is_cuda
assert isinstance(device, torch.device)

model = torch.nn.Linear(3, 3)
if torch.cuda.device_count() > 1:
    model = torch.nn.DataParallel(model, device_ids=[0, 1])
model = model.to(device)
assert model(torch.ones(4, 3).to(device)).shape == (4, 3)

dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
if torch.cuda.get_device_capability() >= (8, 0):
    raise AssertionError("no GPU of that kind is here")
assert torch.cuda.get_device_properties("cuda").name == torch.cuda.get_device_name(0)
for name in ("cuda", "cuda:1", 1):
    torch.cuda.set_device(name)
    assert torch.ones(2, device="cuda").get_device() == torch.cuda.current_device()
with torch.device("cuda:0"):
    assert torch.ones(2).get_device() == 0
torch.set_default_device("cuda")
assert torch.ones(2).is_cuda
assert torch.ones(2).type() == torch.ones(2).type("torch.cuda.FloatTensor").type()
print("device count:", torch.cuda.device_count(), dtype)
