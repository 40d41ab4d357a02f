"""What the profiler costs: a training step with it on, as a ratio to it off, and the time for each event that it records.

On and off alternately in one process; each round with it is compared with the one before, without, and the quartiles are
printed: where they lie far apart (a busy machine) or a cost is negative, the run says nothing. Starting and stopping, and
exporting (milliseconds), are told apart.

    python benchmarks/profiler.py [--rounds N] [--steps N]
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler would say each time that it starts

import torch
from op_overhead import convnet_step
from torch.profiler import ProfilerActivity, profile
from training_steps import mlp_step

from torch_vnpu.profiler.checking import check


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    into.append(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    print(
        f"{'case':<10} {'on/off: median (quartiles)':>28} {'µs/event':>22} {'events':>7} {'start+stop':>10} {'export':>7} "
        f"{'check MB/s':>10}"
    )
    for name, step in (("MLP 128", mlp_step(128, "npu")), ("convnet", convnet_step("npu"))):
        off: list[float] = []
        on: list[float] = []
        around: list[float] = []
        export: list[float] = []
        checked: list[float] = []

        def work(step=step) -> None:
            for _ in range(options.steps):
                step()
            torch.npu.synchronize()

        work()
        for _ in range(options.rounds):
            with timed(off):
                work()
            with timed(around):
                with profile(activities=activities) as profiler:
                    with timed(on):
                        work()
            around[-1] -= on[-1]
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "trace.json")
                with timed(export):
                    profiler.export_chrome_trace(str(file))
                with timed(checked):
                    report = check(file)
                assert not report.failed, json.dumps(list(report.problems))
                events, size = report.slices, file.stat().st_size
        ratios = quantiles([with_it / without for with_it, without in zip(on, off, strict=True)], n=4)
        costs = quantiles([(with_it - without) * 1e6 / events for with_it, without in zip(on, off, strict=True)], n=4)
        print(
            f"{name:<10} {_spread(ratios):>28} {_spread(costs):>22} {events:>7} {median(around) * 1e3:>10.0f} "
            f"{median(export) * 1e3:>7.0f} {size / 1e6 / median(checked):>10.1f}"
        )


def _spread(quartiles: list[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
