"""Small programs with known truth about their order, each run under the sanitizer; a script prints what was found as JSON.

A program is added by a function under `@program(row, expected kinds)`. Run as `python stream_programs.py`: its results are for
the mode of execution that the environment says.
"""

import json
import sys
import threading
import time

import torch

import torch_vnpu  # noqa: F401
from torch_vnpu.sanitizer import sanitizer

PROGRAMS = {}


def program(row, *kinds):
    """Registers a program of the row `row` of the table, in which findings of exactly these kinds are to be found."""

    def register(function):
        PROGRAMS[f"{row}: {function.__name__}"] = (kinds, function)
        return function

    return register


def streams(count=2):
    """The default stream, and `count` - 1 others."""
    return [torch.npu.default_stream(), *(torch.npu.Stream() for _ in range(count - 1))]


def on(stream):
    return torch.npu.stream(stream)


def fresh(*sizes):
    """Memory that nothing has touched, in a block of its own."""
    return torch.empty(*(sizes or (64,)), device="npu")


# ---- streams ----


@program(1, "race")
def unordered_write_and_read():
    _, s = streams()
    x = fresh()
    x.fill_(1)
    with on(s):
        x.sum()


@program(2, "race")
def same_pointer_other_length():
    _, s = streams()
    x = fresh()
    x[:4].fill_(1)
    with on(s):
        x[:8].fill_(2)


@program(3)
def wait_stream_between():
    d, s = streams()
    x = fresh()
    x.fill_(1)
    s.wait_stream(d)
    with on(s):
        x.sum()


@program(4)
def event_between():
    d, s = streams()
    x = fresh()
    x.fill_(1)
    event = torch.npu.Event()
    event.record(d)
    s.wait_event(event)
    with on(s):
        x.sum()


@program(4, "race")
def event_recorded_too_early():
    d, s = streams()
    x = fresh()
    event = torch.npu.Event()
    event.record(d)
    x.fill_(1)
    s.wait_event(event)
    with on(s):
        x.sum()


@program(4, "race")
def event_never_recorded():
    _, s = streams()
    x = fresh()
    x.fill_(1)
    s.wait_event(torch.npu.Event())
    with on(s):
        x.sum()


@program(4)
def event_recorded_again():
    d, s = streams()
    x = fresh()
    event = torch.npu.Event()
    event.record(d)
    x.fill_(1)
    event.record(d)
    s.wait_event(event)
    with on(s):
        x.sum()


@program(5)
def disjoint_slices():
    _, s = streams()
    x = fresh()
    x[:32].fill_(1)
    with on(s):
        x[32:].fill_(2)


@program(6)
def interleaved_columns():
    _, s = streams()
    x = fresh(8, 8)
    x[:, 0].fill_(1)
    x[:, 4:6].fill_(1)
    with on(s):
        x[:, 1].fill_(2)
        x[:, 2:4].sum()


@program(6, "race")
def a_column_and_a_row():
    _, s = streams()
    x = fresh(8, 8)
    x[:, 3].fill_(1)
    with on(s):
        x[5].fill_(2)


@program(7, "race")
def overlapping_slices():
    _, s = streams()
    x = fresh()
    x[:32].fill_(1)
    with on(s):
        x[16:48].sum()


# ---- the host ----


@program(8, "host_race")
def host_reads_the_target_of_a_copy():
    _, s = streams()
    x = fresh()
    x.fill_(1)
    torch.npu.synchronize()
    with on(s):
        host = x.to("cpu", non_blocking=True)
    host.sum()


@program(8)
def host_waits_for_the_copy():
    _, s = streams()
    x = fresh()
    x.fill_(1)
    torch.npu.synchronize()
    with on(s):
        host = x.to("cpu", non_blocking=True)
    s.synchronize()
    host.sum()


@program(9, "host_race")
def host_overwrites_the_source_of_a_copy():
    _, s = streams()
    host = torch.ones(64).pin_memory()
    with on(s):
        host.to("npu", non_blocking=True)
    host.fill_(2)


@program(9)
def host_reads_the_source_of_a_copy_or_writes_another_part():
    _, s = streams()
    host = torch.ones(64).pin_memory()
    with on(s):
        host[:32].to("npu", non_blocking=True)
    host.sum()
    host[32:].fill_(2)


@program(9)
def pageable_memory_is_read_before_the_copy_returns():
    _, s = streams()
    host = torch.ones(64)
    with on(s):
        host.to("npu", non_blocking=True)
    host.fill_(2)


@program(9)
def blocking_copies_wait():
    _, s = streams()
    host = torch.ones(64).pin_memory()
    with on(s):
        x = host.to("npu")
        host.fill_(2)
        host.copy_(x)
    host.sum()


@program(9)
def pinned_memory_is_handed_out_again():
    _, s = streams()
    x = fresh()
    for _ in range(3):
        host = torch.empty(64, pin_memory=True)
        host.fill_(1)
        with on(s):
            x.copy_(host, non_blocking=True)
        del host
        torch.npu.synchronize()


# ---- threads ----


def _in_a_thread(work):
    failures = []

    def run():
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


@program(10, "race")
def operator_of_another_thread():
    _, s = streams()
    x = fresh()
    x.fill_(1)

    def work():
        with on(s):
            x.sum()

    _in_a_thread(work)


@program(10)
def threads_in_order():
    d, s = streams()
    x = fresh()
    _in_a_thread(lambda: x.fill_(1))

    def work():
        d.synchronize()
        with on(s):
            x.sum()

    _in_a_thread(work)


class _ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, leaf, other, stream):
        ctx.other, ctx.stream = other, stream
        return leaf * 1

    @staticmethod
    def backward(ctx, gradient):
        with on(ctx.stream):
            ctx.other.sum()
        return gradient, None, None


@program(10, "race")
def operator_of_a_backward_thread():
    _, s = streams()
    leaf = torch.ones(4, device="npu", requires_grad=True)
    other = fresh()
    result = _ReadsInBackward.apply(leaf, other, s).sum()
    other.fill_(1)
    result.backward()


@program(10)
def backward_on_the_streams_of_forward():
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # meant here
    d, s = streams()
    a = torch.ones(4, 4, device="npu", requires_grad=True)
    b = torch.ones(4, 4, device="npu", requires_grad=True)
    s.wait_stream(d)
    with on(s):
        x = (a @ b).relu()
    d.wait_stream(s)
    x.record_stream(d)
    (x * a).sum().backward()
    assert a.grad.sum().item()
    assert b.grad.sum().item()


@program(11, "race")
def write_after_write_behind_a_read():
    d, s, s2 = streams(3)
    x = fresh()
    x.fill_(1)
    s.wait_stream(d)
    with on(s):
        x.sum()
    with on(s2):
        x.fill_(2)


@program(12)
def metadata_only():
    _, s = streams()
    x = fresh(4, 4)
    x.fill_(1)
    with on(s):
        torch.empty_like(x)
        torch.zeros_like(x)
        torch.full_like(x, 3)
        x.new_empty(3)
        x.new_zeros(3)
        x.new_ones(3)
        x.view(2, 8).t()[0].detach().expand(2, 2)
        x.is_set_to(x)
        x[4:].sum()


@program(13)
def host_polls_an_event():
    d, s = streams()
    x = fresh()
    x.fill_(1)
    event = torch.npu.Event()
    event.record(d)
    while not event.query():
        time.sleep(0.0005)
    with on(s):
        x.sum()


@program(13)
def host_polls_a_stream():
    d, s = streams()
    x = fresh()
    x.fill_(1)
    while not d.query():
        time.sleep(0.0005)
    with on(s):
        x.sum()


# ---- freed memory ----


def _free_and_use_again(before_use=lambda x, d, s: None, before_free=lambda x, d, s: None, reuse=True):
    d, s = streams()
    x = fresh()
    before_use(x, d, s)
    with on(s):
        x.sum()
    before_free(x, d, s)
    address = x.data_ptr()
    del x
    if reuse:
        y = fresh()
        if y.data_ptr() != address:  # record_stream keeps it; nothing else does
            assert before_free.__name__ == "recorded", "the block was to be handed out again"
        y.fill_(1)


def recorded(x, d, s):
    x.record_stream(s)


@program(14, "use_after_free")
def freed_while_another_stream_reads():
    _free_and_use_again()


@program(14, "use_after_free")
def freed_and_never_ordered():
    _free_and_use_again(reuse=False)
    torch.npu.synchronize()


@program(14, "use_after_free")
def freed_and_never_ordered_until_the_end(check):
    _free_and_use_again(reuse=False)
    check.finish()


@program(14)
def freed_and_ordered_before_any_reuse():
    d, s = streams()
    x = fresh()
    with on(s):
        x.sum()
    del x
    d.wait_stream(s)
    fresh().fill_(1)
    torch.npu.synchronize()


@program(15)
def record_stream_before_the_free():
    _free_and_use_again(before_free=recorded)


@program(16)
def wait_before_the_free():
    _free_and_use_again(before_free=lambda x, d, s: d.wait_stream(s))


@program(16)
def host_waits_before_the_free():
    _free_and_use_again(before_free=lambda x, d, s: s.synchronize())


@program(17, "use_after_free")
def wait_in_the_wrong_direction():
    _free_and_use_again(before_use=lambda x, d, s: (x.fill_(1), s.wait_stream(d)))


@program(18, "race")
def block_of_one_stream_used_again_on_another():
    _, s = streams()
    x = fresh()
    x.fill_(1)
    address = x.data_ptr()
    del x
    y = fresh()
    assert y.data_ptr() == address
    with on(s):
        y.fill_(2)


@program(18)
def block_used_again_in_order():
    d, s = streams()
    x = fresh()
    x.fill_(1)
    del x
    y = fresh()
    s.wait_stream(d)
    with on(s):
        y.fill_(2)
    d.wait_stream(s)


# ---- devices ----


@program(19, "race")
def default_streams_of_two_devices():
    host = torch.ones(64).pin_memory()
    x = torch.empty(64, device="npu:0")
    y = torch.empty(64, device="npu:1")
    host.copy_(x, non_blocking=True)
    y.copy_(host, non_blocking=True)


@program(19)
def copies_between_devices_order_both():
    x = torch.ones(64, device="npu:0")
    y = x.to("npu:1")
    x.fill_(2)
    y.add_(1)
    x.copy_(y)
    y.fill_(3)


_LIBRARY = torch.library.Library("stream_programs", "DEF")
_LIBRARY.define("view_and_fresh(Tensor(a) x) -> (Tensor(a), Tensor)")
_LIBRARY.impl("view_and_fresh", lambda x: (x[1:], x + 1), "CPU")


@program(20)
def view_and_fresh_result_of_one_operator():
    d, s = streams()
    x = fresh()
    torch.npu.synchronize()
    view, made = torch.ops.stream_programs.view_and_fresh(x)  # reads x, writes only what it makes
    with on(s):
        view.sum()
    s.wait_stream(d)
    with on(s):
        made.sum()
    d.wait_stream(s)


@program(20, "race")
def fresh_result_of_an_operator_that_returns_a_view_too():
    _, s = streams()
    x = fresh()
    torch.npu.synchronize()
    _, made = torch.ops.stream_programs.view_and_fresh(x)
    with on(s):
        made.fill_(1)
    torch.npu.synchronize()


@program(21)
def many_reads(check):
    x = torch.ones(20_100, device="npu")
    for start in range(2_000):
        x[start : start + 100].sum()
    held = check.statistics["records"]
    for start in range(18_000):
        x[start : start + 100].sum()
    assert check.statistics["records"] <= held + 300, check.statistics


# ---- collectives, as streams of their own ----


class _Collective:
    """A sum over one rank, in place, on an internal stream."""

    def __init__(self, x, stream):
        stream.wait_stream(torch.npu.current_stream())
        with on(stream):
            x.mul_(1)
            self.done = torch.npu.Event()
            self.done.record(stream)

    def wait(self):
        self.done.wait(torch.npu.current_stream())


@program(22)
def collective_waited():
    _, comm = streams()
    x = torch.ones(64, device="npu")
    _Collective(x, comm).wait()
    x.sum()


@program(23, "race")
def collective_not_waited():
    _, comm = streams()
    x = torch.ones(64, device="npu")
    _Collective(x, comm)
    x.sum()


# ---- synchronisation ----


def _synchronised(how):
    d, s, s2 = streams(3)
    x = fresh()
    x.fill_(1)
    how(d, s, s2)
    with on(s):
        x.sum()


def _event(stream):
    event = torch.npu.Event()
    event.record(stream)
    return event


@program(24)
def synchronize_the_device():
    _synchronised(lambda d, s, s2: torch.npu.synchronize())


@program(24, "race")
def synchronize_the_other_device():
    _synchronised(lambda d, s, s2: torch.npu.synchronize(1))


@program(24)
def synchronize_the_stream():
    _synchronised(lambda d, s, s2: d.synchronize())


@program(24, "race")
def synchronize_the_other_streams():
    _synchronised(lambda d, s, s2: (s.synchronize(), s2.synchronize()))


@program(24)
def synchronize_the_event():
    _synchronised(lambda d, s, s2: _event(d).synchronize())


@program(24, "race")
def synchronize_an_event_of_another_stream():
    _synchronised(lambda d, s, s2: _event(s2).synchronize())


@program(24)
def item_waits_for_its_stream():
    one = torch.ones(1, device="npu")
    _synchronised(lambda d, s, s2: one.item())


@program(24, "race")
def item_waits_for_no_other_stream():
    one = torch.ones(1, device="npu")
    torch.npu.synchronize()

    def elsewhere(d, s, s2):
        with on(s2):
            one.item()

    _synchronised(elsewhere)


@program(24, "race")
def copies_and_kernels_of_the_device_do_not_wait():
    x, y = torch.ones(8, device="npu"), torch.ones(8, device="npu")
    torch.npu.synchronize()
    _synchronised(lambda d, s, s2: (x.copy_(y), x.resize_(100_000)))


@program(25, "race")
def in_place_on_a_view_read_through_the_base():
    _, s = streams()
    x = fresh()
    x[2:4].add_(1)
    with on(s):
        x.sum()


# ---- pipelines, right and broken ----


def _prefetch(wait_for_copy, wait_for_use):
    d, s = streams()
    buffers = [fresh(), fresh()]
    batches = [torch.full((64,), float(i)).pin_memory() for i in range(6)]
    total = torch.zeros((), device="npu")
    s.wait_stream(d)
    for number, batch in enumerate(batches):
        buffer = buffers[number % 2]
        with on(s):
            if wait_for_use:
                s.wait_stream(d)
            buffer.copy_(batch, non_blocking=True)
        if wait_for_copy:
            d.wait_stream(s)
        total += buffer.sum()
    return total.item()


@program("prefetch")
def double_buffered():
    _prefetch(True, True)


@program("prefetch", "race")
def double_buffered_without_waiting_for_the_copy():
    _prefetch(False, True)


@program("prefetch", "race")
def double_buffered_without_waiting_for_the_use():
    _prefetch(True, False)


def _step(order):
    d, s = streams()
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    s.wait_stream(d)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(2, 4, device="npu")).sum().backward()
        if order:
            s.wait_stream(d)
        with on(s):
            optimizer.step()
        d.wait_stream(s)
    torch.npu.synchronize()


@program("optimizer")
def step_on_its_own_stream():
    _step(True)


@program("optimizer", "race")
def step_does_not_wait_for_the_gradients():
    _step(False)


def _buckets(wait):
    _, comm = streams()
    layers = [torch.nn.Linear(8, 8).npu() for _ in range(3)]
    works, held = [], []

    def reduce(parameter):
        bucket = parameter.grad.reshape(-1)
        held.append(bucket)
        works.append(_Collective(bucket, comm))

    for layer in layers:
        for parameter in layer.parameters():
            parameter.register_post_accumulate_grad_hook(reduce)
    x = torch.ones(2, 8, device="npu")
    for layer in layers:
        x = layer(x)
    x.sum().backward()
    if wait:
        for work in works:
            work.wait()
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.sub_(parameter.grad)
    torch.npu.synchronize()


@program("ddp")
def buckets():
    _buckets(True)


@program("ddp", "race")
def buckets_not_waited():
    _buckets(False)


def run(capture="native"):
    """What each program's findings are: its kinds, once each, and the text of the report."""
    results = {}
    for name, (kinds, function) in PROGRAMS.items():
        torch.npu.synchronize(0)
        torch.npu.synchronize(1)
        torch.npu.empty_cache()
        with sanitizer("collect", capture=capture) as check:
            function(*(check,) * function.__code__.co_argcount)
        results[name] = {
            "expected": sorted(kinds),
            "found": sorted({finding.kind for finding in check.findings}),
            "text": check.text(),
        }
    return results


if __name__ == "__main__":
    json.dump(run(*sys.argv[1:]), sys.stdout)
