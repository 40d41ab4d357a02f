"""Four mistakes that a CPU forgives and an accelerator does not. Each fails here as it would on real hardware.

python examples/device_mistake.py
"""

import torch
from torch import nn


def forgotten_input() -> None:
    model = nn.Linear(4, 2).npu()
    model(torch.randn(8, 4))  # the input was left on CPU


def forgotten_target() -> None:
    scores = torch.randn(8, 3, device="npu")
    nn.functional.cross_entropy(scores, torch.randint(0, 3, (8,)))  # the target was left on CPU


def straight_to_numpy() -> None:
    torch.randn(3, device="npu").numpy()  # NumPy cannot see device memory


def two_devices() -> None:
    torch.randn(3, device="npu:0") + torch.randn(3, device="npu:1")


if __name__ == "__main__":
    for mistake in (forgotten_input, forgotten_target, straight_to_numpy, two_devices):
        try:
            mistake()
        except (RuntimeError, TypeError) as error:
            print(f"{mistake.__name__}: {type(error).__name__}: {error}")
        else:
            raise SystemExit(f"{mistake.__name__} did not fail")
