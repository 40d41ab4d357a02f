"""A small network trained on npu and on CPU: the losses are the same, since the kernels are.

python examples/training.py
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def losses(model: nn.Module, device: str, images: torch.Tensor, targets: torch.Tensor) -> list[float]:
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    images, targets = images.to(device), targets.to(device)
    seen = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    data = torch.randn(16, 3, 16, 16), torch.randint(0, 4, (16,))
    cpu, npu = (losses(network, device, *data) for device in ("cpu", "npu"))
    for step, (on_cpu, on_npu) in enumerate(zip(cpu, npu, strict=True)):
        print(f"step {step}: cpu {on_cpu:.6f}  npu {on_npu:.6f}")
    print("the same, bit for bit" if cpu == npu else "different")
    print(f"peak memory on npu: {torch.npu.max_memory_allocated()} bytes")
