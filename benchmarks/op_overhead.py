"""What an operator costs on npu, as ratios npu/cpu: a tiny add, a large matmul, a gradient, an MLP step and a convnet step.

Both devices are measured alternately in one process; the ratio is the median over the rounds. One intra-op thread, unless
--threads says otherwise, so that the two share a machine fairly. Launches are queued unless TASK_QUEUE_ENABLE=0; a round ends
when the device has done its work.

    python benchmarks/op_overhead.py [--threads N] [--rounds N]
"""

import argparse
import copy
import os
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.nn.functional as F
from torch import nn

import torch_vnpu  # noqa: F401

Step = Callable[[], object]
DEVICES = ("cpu", "npu")


def tiny_add(device: str) -> Step:
    a, b = torch.randn(4, device=device), torch.randn(4, device=device)
    return lambda: a + b


def matmul(device: str) -> Step:
    a = torch.randn(1024, 1024, device=device)
    return lambda: a @ a


def gradient(device: str) -> Step:
    """Forward and backward of one sum. PyTorch computes the gradients of a device on a thread of their own, which is woken."""
    x = torch.randn(4, device=device, requires_grad=True)
    return lambda: torch.autograd.grad(x.sum(), x)


def on_this_thread(make: Callable[[str], Step]) -> Callable[[str], Step]:
    """The same with gradients computed on the calling thread."""

    def made(device: str) -> Step:
        inner = make(device)

        def step() -> None:
            with torch.autograd.set_multithreading_enabled(False):
                inner()

        return step

    return made


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


_MLP = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
_CONVNET = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
)


def mlp(device: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A small model, its input and its targets."""
    x, y = torch.randn(32, 64, device=device), torch.randint(0, 10, (32,), device=device)
    return copy.deepcopy(_MLP).to(device), x, y


def mlp_step(device: str) -> Step:
    model, x, y = mlp(device)
    return _training(model, torch.optim.Adam(model.parameters()), x, y)


def convnet_step(device: str) -> Step:
    model = copy.deepcopy(_CONVNET).to(device)
    x, y = torch.randn(8, 3, 32, 32, device=device), torch.randint(0, 10, (8,), device=device)
    return _training(model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), x, y)


#: What is measured, and how many calls make one round.
CASES: dict[str, tuple[Callable[[str], Step], int]] = {
    "add, 4 elements": (tiny_add, 5000),
    "matmul, 1024 x 1024": (matmul, 3),
    "gradient of a sum": (gradient, 1000),
    "  on this thread": (on_this_thread(gradient), 1000),
    "MLP step, Adam": (mlp_step, 50),
    "  gradients here": (on_this_thread(mlp_step), 50),
    "convnet step, SGD": (convnet_step, 10),
}


def microseconds(step: Step, calls: int) -> float:
    """Mean time of one of `calls` calls."""
    start = time.perf_counter()
    for _ in range(calls):
        step()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads (1)")
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds per case (15)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    mode = "synchronous" if os.environ.get("TASK_QUEUE_ENABLE") == "0" else "queued"
    print(f"torch {torch.__version__}, {mode}, {arguments.threads} thread(s), median of {arguments.rounds} rounds")
    print(f"{'case':22}{'cpu, µs':>12}{'npu, µs':>12}{'npu/cpu':>10}")
    for name, (make, calls) in CASES.items():
        torch.manual_seed(0)
        steps = {device: make(device) for device in DEVICES}
        for device in DEVICES:
            microseconds(steps[device], calls)
        rounds = [[microseconds(steps[device], calls) for device in DEVICES] for _ in range(arguments.rounds)]
        cpu, npu = (median(column) for column in zip(*rounds, strict=True))
        print(f"{name:22}{cpu:12.1f}{npu:12.1f}{median(npu / cpu for cpu, npu in rounds):10.2f}")


if __name__ == "__main__":
    main()
