"""One of two processes that train and communicate on npu: `distributed_ranks.py RANK FOLDER`. Prints what it saw as JSON.

Every case runs in both processes, in this order; test_distributed.py says what each must return.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

RANK, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
CASES: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES[function.__name__] = function
    return function


def mine(*values: float, **options: Any) -> torch.Tensor:
    """Values of this rank: 0 has them as they are, 1 ten more."""
    return torch.tensor([value + 10 * RANK for value in values], device="npu", **options)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [str(value.device), value.tolist()]
    return [shown(element) for element in value] if isinstance(value, list | tuple) else value


@case
def names() -> Any:
    group = dist.group.WORLD
    return [dist.get_backend(), group.name(), dist.get_rank(), dist.get_world_size()]


@case
def all_reduce() -> Any:
    totals = []
    for operator in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
        totals.append(mine(1.0, 2.0))
        dist.all_reduce(totals[-1], op=operator)
    return totals


@case
def average_through_a_future() -> Any:
    value = mine(1.0, 2.0)
    return [*dist.all_reduce(value, op=dist.ReduceOp.AVG, async_op=True).get_future().wait(), value]


@case
def broadcast() -> Any:
    value = mine(3.0)
    dist.broadcast(value, 1)
    return value


@case
def reduce() -> Any:
    value = mine(3.0)
    dist.reduce(value, 1)
    return value if RANK == 1 else None


@case
def all_gather() -> Any:
    parts, whole = [torch.zeros(2, device="npu") for _ in range(2)], torch.zeros(4, device="npu")
    dist.all_gather(parts, mine(1.0, 2.0))
    dist.all_gather_single(whole, mine(1.0, 2.0))
    return [*parts, whole]


@case
def gather_and_scatter() -> Any:
    parts, part = [torch.zeros(1, device="npu") for _ in range(2)], torch.zeros(1, device="npu")
    dist.gather(mine(1.0), parts if RANK == 0 else None)
    dist.scatter(part, list(mine(5.0, 6.0).split(1)) if RANK == 0 else None)
    return [parts if RANK == 0 else None, part]


@case
def reduce_scatter() -> Any:
    part, single = torch.zeros(1, device="npu"), torch.zeros(1, device="npu")
    dist.reduce_scatter(part, list(mine(1.0, 2.0).split(1)))
    dist.reduce_scatter_single(single, mine(1.0, 2.0), op=dist.ReduceOp.AVG)
    return [part, single]


@case
def all_to_all() -> Any:
    single, parts = torch.zeros(2, device="npu"), [torch.zeros(1, device="npu"), torch.zeros(1, device="npu")]
    dist.all_to_all_single(single, mine(1.0, 2.0))
    dist.all_to_all(parts, list(mine(1.0, 2.0).split(1)))
    return [single, *parts]


@case
def send_and_receive() -> Any:
    value = mine(1.0) if RANK == 0 else torch.zeros(1, device="npu")
    if RANK == 0:
        dist.send(value, 1)
    else:
        dist.recv(value, 0)
    swapped = torch.zeros(1, device="npu")
    pair = [dist.P2POp(dist.isend, mine(4.0), 1 - RANK), dist.P2POp(dist.irecv, swapped, 1 - RANK)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return [value, swapped]


@case
def coalesced() -> Any:
    values = [mine(1.0), mine(2.0)]
    with dist._coalescing_manager(device=torch.device("npu", RANK), async_ops=True) as together:
        for value in values:
            dist.all_reduce(value)
    together.wait()
    return values


@case
def objects() -> Any:
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, {"rank": RANK})
    return everyone


@case
def strided_and_empty() -> Any:
    column = torch.zeros(3, 2, device="npu")
    view = column.view(-1)[2:4]  # an offset into the storage
    view += 1 + RANK
    dist.all_reduce(view)
    empty = torch.zeros(0, device="npu")
    dist.all_reduce(empty)
    return [column, empty]


@case
def on_cpu() -> Any:
    value = torch.tensor([1.0 + RANK])
    dist.all_reduce(value)
    return value


@case
def queued_work_comes_first() -> Any:
    """A long queue on the current stream, a collective on it at once, and a kernel on the default stream after the wait."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        big = torch.ones(400, 400, device="npu")
        for _ in range(20):
            big = big @ torch.full((400, 400), 1 / 400, device="npu")
        total = big[:1, :2].contiguous()
        work = dist.all_reduce(total, async_op=True)
    work.wait()
    return [(total * 2).round(), work.is_completed()]


@case
def a_failed_kernel_is_told_by_the_collective() -> Any:
    table = torch.ones(2, 2, device="npu")
    torch.nn.functional.embedding(torch.tensor([1], device="npu"), table)  # a first call of its look would run at once
    rows = torch.nn.functional.embedding(torch.tensor([5], device="npu"), table)
    try:
        dist.all_reduce(rows)
    except RuntimeError as error:
        return "index out of range" in str(error)
    return rows


@case
def functional() -> Any:
    from torch.distributed import _functional_collectives

    return _functional_collectives.all_reduce(mine(1.0), "sum", dist.group.WORLD) + 1


@case
def new_group() -> Any:
    group = dist.new_group([0, 1], backend="lccl")
    value = mine(1.0)
    dist.all_reduce(value, group=group)
    return [dist.get_backend(group), value]


def trained(device: str, **options: Any) -> torch.Tensor:
    torch.manual_seed(0)
    layers = (nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(device), **options)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    torch.manual_seed(5 + RANK)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 8).to(device)).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()


@case
def data_parallel() -> Any:
    gloo = dist.new_group([0, 1], backend="gloo")
    wanted = trained("cpu", process_group=gloo)
    got = [trained("npu"), trained("npu", gradient_as_bucket_view=True), trained("npu", bucket_cap_mb=0.0001)]
    return [torch.equal(values, wanted) for values in got] + [len(set(wanted.tolist())) > 50]


@case
def profiled() -> Any:
    """Kernels of the rank's own device with as many flows."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.PrivateUse1]
    with torch.profiler.profile(activities=activities) as profiler:
        trained("npu")
    file = Path(FOLDER) / f"trace{RANK}.json"
    profiler.export_chrome_trace(str(file))
    events = json.loads(file.read_text())["traceEvents"]
    runs = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    starts, ends = ([e for e in events if e.get("cat") == "ac2g" and e["ph"] == phase] for phase in "sf")
    return [len(runs) == len(starts) == len(ends) > 100, {event["pid"] for event in runs} == {RANK}]


@case
def fully_sharded() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    gradients = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).to(device)
        fully_shard(model, mesh=init_device_mesh(device, (2,)))
        model(torch.ones(4, 8).to(device) + RANK).sum().backward()
        gradients.append(model[0].weight.grad.full_tensor().cpu())
    return torch.equal(*gradients)


def main() -> None:
    torch.set_num_threads(1)
    where = {"rank": RANK, "world_size": 2}
    dist.init_process_group("hccl", init_method=f"file://{FOLDER}/named", **where)
    torch.npu.set_device(RANK)
    seen = {}
    for name, function in CASES.items():
        seen[name] = shown(function())
        dist.barrier()
    dist.destroy_process_group()
    # Where no backend is named, npu's is the first that was registered for it. The group is left for the exit to end.
    dist.init_process_group(init_method=f"file://{FOLDER}/default", **where)
    seen["default"] = [dist.group.WORLD.name(), shown(all_reduce()[0])]
    rest = dist.all_reduce(torch.ones(1000, device="npu"), async_op=True)
    rest.wait()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
