"""A loader with workers and pinned memory; copies that do not block."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    data = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
    seen = []
    for features, labels in DataLoader(data, batch_size=5, num_workers=1, pin_memory=True):
        assert features.is_pinned()
        features, labels = features.cuda(non_blocking=True), labels.to("cuda:0", non_blocking=True)
        assert features.get_device() == labels.get_device() == 0
        seen.append((features.sum(1) * 0 + labels).sum())
    print("labels:", int(torch.stack(seen).sum()))
    assert torch.zeros(3, pin_memory=True).is_pinned()
    assert torch.zeros(3).pin_memory("cuda").is_pinned()


if __name__ == "__main__":
    main()
