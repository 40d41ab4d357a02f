"""What a training step costs on npu, as ratios npu/cpu, with launches queued and without, and without the hand-off of gradients
to the device's thread.

MLPs of three widths, a convnet and a transformer; both devices alternately in one process, a process for each mode. The mean
over a round includes the wait for the device at its end, so that a queue cannot hide work.

    python benchmarks/training_steps.py [--threads N] [--rounds N]
"""

import argparse
import copy
import os
import subprocess
import sys
from statistics import median

import torch
import torch.nn.functional as F
from op_overhead import DEVICES, Step, convnet_step, microseconds
from torch import nn


def mlp_step(width: int, device: str) -> Step:
    torch.manual_seed(0)
    layers = [nn.Linear(width, width) for _ in range(6)]
    model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())), nn.Linear(width, 10)).to(
        device
    )
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, y = torch.randn(32, width, device=device), torch.randint(0, 10, (32,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


class Language(nn.Module):
    """Embedding, two encoder layers, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


_LANGUAGE = Language()


def transformer_step(device: str) -> Step:
    model = copy.deepcopy(_LANGUAGE).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    tokens, targets = (torch.randint(0, 50, (8, 32), device=device) for _ in range(2))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()

    return step


CASES = {
    **{
        f"MLP step, width {width}": (lambda device, width=width: mlp_step(width, device), 30)
        for width in (64, 128, 256)
    },
    "convnet step": (convnet_step, 10),
    "transformer step": (transformer_step, 5),
}


#: What each column is: its title, TASK_QUEUE_ENABLE, and whether gradients are computed on the device's thread, as usual.
COLUMNS = (("synchronous", "0", True), ("gradients here", "0", False), ("queued", "1", True))


def measure(rounds: int, threads: int, device_thread: bool) -> None:
    """Print one ratio a line, for this process's mode."""
    torch.autograd.set_multithreading_enabled(device_thread)
    torch.set_num_threads(threads)
    for name, (make, calls) in CASES.items():
        steps = {device: make(device) for device in DEVICES}
        for device in DEVICES:
            microseconds(steps[device], calls)
        times = [[microseconds(steps[device], calls) for device in DEVICES] for _ in range(rounds)]
        print(f"{name}\t{median(npu / cpu for cpu, npu in times):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads (1)")
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds per case (15)")
    parser.add_argument(
        "--here", choices=("device-thread", "calling-thread"), help="measure the mode of this process only"
    )
    arguments = parser.parse_args()
    if arguments.here:
        measure(arguments.rounds, arguments.threads, arguments.here == "device-thread")
        return
    columns = []
    for _, mode, device_thread in COLUMNS:
        here = "device-thread" if device_thread else "calling-thread"
        command = [
            sys.executable,
            __file__,
            f"--here={here}",
            f"--rounds={arguments.rounds}",
            f"--threads={arguments.threads}",
        ]
        done = subprocess.run(command, env=os.environ | {"TASK_QUEUE_ENABLE": mode}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        columns.append(dict(line.split("\t") for line in done.stdout.splitlines()))
    print(f"npu/cpu, {arguments.threads} intra-op thread(s), median of {arguments.rounds} rounds")
    print(f"{'case':22}" + "".join(f"{title:>16}" for title, *_ in COLUMNS))
    for name in CASES:
        print(f"{name:22}" + "".join(f"{column[name]:>16}" for column in columns))


if __name__ == "__main__":
    main()
