"""Rows 22 and 23 of the stream check's truth with real collectives: waited for they order, otherwise they race."""

import json

PROGRAM = """
import json, torch, torch.distributed as dist
from torch_vnpu.sanitizer import sanitizer

dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
SIDE = torch.npu.Stream()

def waited(x, y):
    dist.all_reduce(x, async_op=True).wait()
    return x + 1

def waited_by_the_future(x, y):
    dist.all_reduce(x, async_op=True).get_future().wait()
    return x + 1

def blocking(x, y):
    dist.broadcast(x, 0)
    with torch.npu.stream(SIDE):
        SIDE.wait_stream(torch.npu.default_stream())
        return x + 1

def read_before_it_is_there(x, y):
    works.append(dist.all_reduce(x, async_op=True))
    return x + 1

def overwritten_while_it_is_sent(x, y):
    works.append(dist.all_gather([y], x, async_op=True))
    x.fill_(0)

def the_input_may_be_read(x, y):
    works.append(dist.all_gather([y], x, async_op=True))
    return x + 1

def not_after_another_streams_write(x, y):
    with torch.npu.stream(SIDE):
        SIDE.wait_stream(torch.npu.default_stream())
        x.fill_(2)
    dist.all_reduce(x)

found = {}
for program in (waited, waited_by_the_future, blocking, read_before_it_is_there, overwritten_while_it_is_sent,
                the_input_may_be_read, not_after_another_streams_write):
    works = []
    x, y = torch.ones(4, device="npu"), torch.zeros(4, device="npu")
    with sanitizer("collect") as check:
        result = program(x, y)
    for work in works:
        work.wait()
    torch.npu.synchronize()
    found[program.__name__] = [[f.kind, *sorted(side.operation for side in (f.first, f.second))] for f in check.findings]
print(json.dumps(found))
dist.destroy_process_group()
"""


def test_a_collective_is_an_access_on_a_stream_of_its_own(fresh):
    run = fresh(PROGRAM).passed()
    race = ["race"]
    assert json.loads(run.lines[-1]) == {
        "waited": [],
        "waited_by_the_future": [],
        "blocking": [],
        "read_before_it_is_there": [[*race, "aten::add.Tensor", "hccl::allreduce"]],
        "overwritten_while_it_is_sent": [[*race, "aten::fill_.Scalar", "hccl::allgather"]],
        "the_input_may_be_read": [],
        "not_after_another_streams_write": [[*race, "aten::fill_.Scalar", "hccl::allreduce"]],
    }
