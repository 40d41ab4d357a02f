"""An ordinary program for CUDA: a small convolutional network, trained in mixed precision.

On a machine without CUDA: vnpu run examples/cuda_train.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(count: int = 256) -> TensorDataset:
    """Images of noise, with a bright square in one of the four corners: the class is the corner."""
    images, corners = torch.randn(count, 1, 12, 12), torch.randint(0, 4, (count,))
    for image, corner in zip(images, corners, strict=True):
        row, column = divmod(int(corner), 2)
        image[0, row * 6 : row * 6 + 6, column * 6 : column * 6 + 6] += 1.5
    return TensorDataset(images, corners)


def main() -> None:
    assert torch.cuda.is_available(), "this program needs a CUDA device"
    torch.manual_seed(0)
    device = torch.device("cuda")
    loader = DataLoader(make_data(), batch_size=32, shuffle=True, pin_memory=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 10 * 10, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.cuda()
    scaler = torch.amp.GradScaler("cuda")

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for epoch in range(4):
        total = torch.zeros((), device="cuda")
        for images, corners in loader:
            images, corners = images.to(device, non_blocking=True), corners.cuda(non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(images), corners)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")
    end.record()
    torch.cuda.synchronize()
    print(
        f"{torch.cuda.get_device_name()}: {start.elapsed_time(end):.0f} ms, {torch.cuda.max_memory_allocated()} bytes"
    )


if __name__ == "__main__":
    main()
