"""What the NPU sanitizer's stream check costs.

An operator and a training step with it on, as ratios on/off; how many launches a second its detector takes, against that of
PyTorch's CUDA sanitizer fed the same; and its memory over 20 000 reads.

On and off alternate in one process; a ratio is that of the fastest of all rounds, since other work on the machine only adds.
Launches run at once (TASK_QUEUE_ENABLE=0) unless the variable says otherwise: a queue would hide what the host does.

    python benchmarks/sanitizer.py [--rounds N]
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("TASK_QUEUE_ENABLE", "0")

import torch
from op_overhead import Step, convnet_step
from torch.cuda._sanitizer import EventHandler

from torch_vnpu import _C
from torch_vnpu.sanitizer import Sanitizer

DEPTHS = (5, 40)


def at_depth(depth: int, work: Callable[[], float]) -> float:
    """What `work` returns, called below `depth` Python frames."""
    return work() if depth <= 1 else at_depth(depth - 1, work)


def seconds(step: Step, times: int) -> float:
    """Processor time of a step, of all threads: what else a shared machine does is not in it."""
    start = time.process_time()
    for _ in range(times):
        step()
    torch.npu.synchronize()
    return (time.process_time() - start) / times


def off_and_on(step: Step, times: int, rounds: int, depth: int) -> tuple[float, float]:
    """Seconds a step takes without and with the stream check."""
    off = on = float("inf")
    step()
    for _ in range(rounds):
        off = min(off, at_depth(depth, lambda: seconds(step, times)))
        with Sanitizer("collect", stack_depth=64) as check:
            on = min(on, at_depth(depth, lambda: seconds(step, times)))
        assert not check.findings, check.text()
    return off, on


def tiny_operators() -> dict[str, Step]:
    a, b = torch.ones(4, device="npu"), torch.ones(4, device="npu")
    return {
        "add": lambda: a + b,
        "add a number": lambda: a + 1.0,
        "sum": lambda: a.sum(),
        "in place": lambda: a.mul_(b),
    }


def operators(rounds: int) -> None:
    print("tiny operators: µs off, µs on, on/off")
    for name, step in tiny_operators().items():
        for depth in DEPTHS:
            off, on = off_and_on(step, 500, rounds, depth)
            print(f"  {name:14} depth {depth:2}   {off * 1e6:6.2f}  {on * 1e6:6.2f}   {on / off:5.2f}")


def events(rounds: int, count: int = 2000) -> None:
    """Launches on two ordered streams, two operands read and one written, told call by call with the Python stack."""
    tensors = [(1 << 20) + 4096 * i for i in range(16)]

    def operand(name: str, base: int, written: bool) -> tuple[object, ...]:
        return (name, base, 4096, 0, 0, 4, (1024,), (1,), written)

    launches = []
    for i in range(count):
        a, b, c = tensors[i % 16], tensors[(i + 5) % 16], tensors[(i + 9) % 16]
        launches.append(
            (i % 2 + 1, a, b, c, [operand("self", a, False), operand("other", b, False), operand("out", c, True)])
        )

    def ours() -> float:
        detector = _C.Detector(64)
        start = time.perf_counter()
        for event, (stream, _, _, _, operands) in enumerate(launches):
            detector.launch(0, stream, "aten::add.out", operands, False, detector.capture())
            detector.event_record(event, 0, stream)
            detector.event_wait(event, 0, 3 - stream)
        spent = time.perf_counter() - start
        assert not detector.take()
        return spent

    def theirs() -> float:
        handler = EventHandler()
        for stream in (1, 2):
            handler._handle_stream_creation(stream)
        start = time.perf_counter()
        for event, (stream, a, b, c, _) in enumerate(launches):
            names = {a: ["self"], b: ["other"], c: ["out"]}
            assert not handler._handle_kernel_launch(stream, {a, b}, {c}, {c}, "aten::add.out", names)
            handler._handle_event_creation(event)
            handler._handle_event_record(event, stream)
            handler._handle_event_wait(event, 3 - stream)
        return time.perf_counter() - start

    print("detector: launches a second of PyTorch's handler and of ours, ours/theirs")
    for depth in DEPTHS:
        best = [min(at_depth(depth, work) for _ in range(max(rounds // 4, 2))) for work in (theirs, ours)]
        print(f"  depth {depth:2}   {count / best[0]:9.0f}  {count / best[1]:9.0f}   {best[0] / best[1]:5.1f}")


def memory() -> None:
    x = torch.ones(30_000, device="npu")
    print("20 000 reads of one tensor, each of another slice: records held after 5 000, 10 000, 15 000, 20 000")
    held = []
    with Sanitizer("collect") as check:
        for i in range(20_000):
            x[i : i + 100].sum()
            if (i + 1) % 5000 == 0:
                held.append(check.statistics["records"])
    print("  ", *held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    operators(rounds)
    off, on = off_and_on(convnet_step("npu"), 10, rounds, 5)
    print(f"convnet step: {off * 1e6:.0f} µs off, {on * 1e6:.0f} µs on, on/off {on / off:.2f}")
    events(rounds)
    memory()


if __name__ == "__main__":
    main()
