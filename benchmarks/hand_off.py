"""What it costs that PyTorch computes the gradients of a device on a thread of the device's own: microseconds of a backward().

The MLP of op_overhead.py, synchronous launches. `here`: gradients on the calling thread. `handed over`: as usual; then the CPU
time of either thread within backward(), and the time in which neither has a core: what passes until a thread that was woken
runs. Then both again with all threads on one core, where a hand-off wakes no other core and finds its data in the cache.
Linux only, whose schedstat tells a thread's time.

    python benchmarks/hand_off.py [--rounds N]
"""

import argparse
import os
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

os.environ["TASK_QUEUE_ENABLE"] = "0"

import torch
import torch.nn.functional as F
from op_overhead import mlp

_CALLS = 200


class Spent(NamedTuple):
    """Microseconds of one backward()."""

    wall: float
    caller: float
    device_thread: float


def device_thread_seconds() -> float:
    """CPU time of autograd's threads so far."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("pt_autograd"):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def measure(handed_over: bool) -> Spent:
    """Means over some steps of an MLP."""
    torch.autograd.set_multithreading_enabled(handed_over)
    model, x, y = mlp("npu")
    wall = caller = 0.0
    for step in range(_CALLS + 20):
        if step == 20:  # all is warm
            wall = caller = 0.0
            before = device_thread_seconds()
        loss = F.cross_entropy(model(x), y)
        started, ran = time.perf_counter(), time.thread_time()
        loss.backward()
        caller += time.thread_time() - ran
        wall += time.perf_counter() - started
        model.zero_grad()
    return Spent(*(seconds / _CALLS * 1e6 for seconds in (wall, caller, device_thread_seconds() - before)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="alternating rounds (15)")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"backward() of the MLP, medians of {rounds} rounds, µs")
    cores = os.sched_getaffinity(0)
    show(f"{len(cores)} cores", rounds)
    for task in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(task.name), {min(cores)})
    show("one core", rounds)


def show(cores: str, rounds: int) -> None:
    """Measure and print."""
    pairs = [(measure(False), measure(True)) for _ in range(rounds)]
    here = median(one.wall for one, _ in pairs)
    wall, caller, device = (median(getattr(other, name) for _, other in pairs) for name in Spent._fields)
    idle = median(other.wall - other.caller - other.device_thread for _, other in pairs)
    print(f"  {cores}: here {here:.0f}", end=", ")
    print(f"handed over {wall:.0f} (caller {caller:.0f}, device's thread {device:.0f}, neither runs {idle:.0f})")


if __name__ == "__main__":
    main()
