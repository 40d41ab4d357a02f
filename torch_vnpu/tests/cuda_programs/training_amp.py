"""Mixed precision with a scaled loss; the optimizer is made before the model moves."""

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model.cuda()
scaler = GradScaler(init_scale=2.0**10)
inputs = torch.randn(64, 8, device="cuda")
targets = inputs.sum(1, keepdim=True)
losses = []
for _ in range(60):
    optimizer.zero_grad(set_to_none=True)
    with autocast():
        outputs = model(inputs)
        loss = nn.functional.mse_loss(outputs.float(), targets)
    assert outputs.dtype is torch.float16
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert scaler.is_enabled()
assert scaler.get_scale() > 1
assert next(model.parameters()).is_cuda
print("loss falls:", losses[-1] < losses[0] / 4)
