"""The detector against brute force, on random small programs: every legal order of a program is tried."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from torch_vnpu import _C

BASE, SIZE = 1 << 20, 24
ACTORS = (0, 1, 2)  # streams of device 0
HOST = -1


@dataclass(frozen=True)
class Step:
    """One call of the host."""

    kind: str  # access, host, record, wait, event_sync, stream_sync, device_sync, reuse, record_stream
    stream: int = 0
    event: int = 0
    written: bool = False
    offset: int = 0
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @property
    def bytes(self):
        places = {self.offset}
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = {place + i * stride for place in places for i in range(size)}
        return places


@st.composite
def accesses(draw, kind="access"):
    sizes, strides, room = [], [], SIZE - 1
    for _ in range(draw(st.integers(0, 3))):
        stride = draw(st.integers(0, 8))
        size = draw(st.integers(0, 1 + (room // stride if stride else 3)))
        sizes.append(size)
        strides.append(stride)
        room -= stride * max(size - 1, 0)
    offset = draw(st.integers(0, room))
    return Step(kind, draw(st.sampled_from(ACTORS)), 0, draw(st.booleans()), offset, tuple(sizes), tuple(strides))


def steps(reuse=False):
    stream, event = st.sampled_from(ACTORS), st.integers(0, 1)
    kinds = [
        accesses(),
        accesses(),
        accesses(),
        st.builds(Step, st.just("record"), stream, event),
        st.builds(Step, st.just("wait"), stream, event),
        st.builds(Step, st.just("event_sync"), event=event),
        st.builds(Step, st.just("stream_sync"), stream),
    ]
    if reuse:
        kinds += [st.just(Step("reuse")), st.builds(Step, st.just("record_stream"), st.sampled_from((1, 2)))]
    else:
        kinds += [accesses("host"), st.just(Step("device_sync"))]
    return st.lists(st.one_of(kinds), max_size=9)


def happens_in_some_order(program):
    """The pairs (a, b) for which there is a legal order in which the access a is done and b is not yet.

    The host makes its calls one by one; each stream works off what was given to it; a wait, of a stream or the host, goes on
    when the record that it stands for is reached.
    """
    queues = {stream: [] for stream in ACTORS}  # (step, what it waits for: a place in a queue)
    host = []  # (step, how far each queue has to be)
    latest = {}
    for number, step in enumerate(program):
        needs = {}
        if step.kind == "access":
            queues[step.stream].append((number, None))
        elif step.kind == "record":
            latest[step.event] = (step.stream, len(queues[step.stream]))
        elif step.kind == "wait" and step.event in latest:
            queues[step.stream].append((None, latest[step.event]))
        elif step.kind == "event_sync" and step.event in latest:
            needs = dict([latest[step.event]])
        elif step.kind == "stream_sync":
            needs = {step.stream: len(queues[step.stream])}
        elif step.kind == "device_sync":
            needs = {stream: len(queue) for stream, queue in queues.items()}
        host.append((step, needs, {stream: len(queue) for stream, queue in queues.items()}))

    number_of = [number for number, step in enumerate(program) if step.kind in ("access", "host")]
    pairs, seen, todo = set(), set(), [(0, (0,) * len(ACTORS))]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        calls, done = state
        finished = {n for n in range(calls) if program[n].kind == "host"}
        finished |= {n for stream in ACTORS for n, _ in queues[stream][: done[stream]] if n is not None}
        pairs |= {(a, b) for a in finished for b in number_of if b not in finished}
        if calls < len(program):
            needs = host[calls][1]
            if all(done[stream] >= place for stream, place in needs.items()):
                todo.append((calls + 1, done))
        given_so_far = host[calls - 1][2] if calls else dict.fromkeys(ACTORS, 0)
        for stream in ACTORS:
            if done[stream] < given_so_far[stream]:
                waits_for = queues[stream][done[stream]][1]
                if waits_for is None or done[waits_for[0]] >= waits_for[1]:
                    todo.append((calls, tuple(n + (s == stream) for s, n in zip(ACTORS, done, strict=True))))
    return pairs


def races(program):
    """The pairs of accesses, in program order, that conflict and that nothing orders."""
    possible = happens_in_some_order(program)
    found = set()
    for a, b in possible:
        if a < b and (b, a) in possible:
            one, other = program[a], program[b]
            if (one.written or other.written) and one.bytes & other.bytes and "access" in (one.kind, other.kind):
                found.add((a, b))
    return found


def detect(program):
    """(kind, first, second) of each finding; accesses are known by their place in the program."""
    detector = _C.Detector(0)
    detector.alloc(BASE, SIZE, 0, 0)
    for number, step in enumerate(program):
        operand = ("x", BASE, SIZE, 0, step.offset, 1, step.sizes, step.strides, step.written)
        match step.kind:
            case "access":
                detector.launch(0, step.stream, "op", [operand], False, number + 1)
            case "host":
                detector.host_access("host", [operand], number + 1)
            case "record":
                detector.event_record(step.event, 0, step.stream)
            case "wait":
                detector.event_wait(step.event, 0, step.stream)
            case "event_sync":
                detector.event_synchronize(step.event)
            case "stream_sync":
                detector.stream_synchronize(0, step.stream)
            case "device_sync":
                detector.device_synchronize(0)
            case "reuse":
                detector.free(BASE, 0, 0)
                detector.alloc(BASE, SIZE, 0, 0)
            case "record_stream":
                detector.record_stream(BASE, 0, step.stream)
    return {(kind, first[5] - 1, second[5] - 1) for kind, first, second, *_ in detector.take()}


@settings(max_examples=600, deadline=None)
@given(steps())
def test_races_are_those_of_some_legal_order(program):
    expected, found = races(program), detect(program)
    assert {(a, b) for _, a, b in found} <= expected
    # An access that races with several may be told with one of them, the latest, only.
    assert {b for _, _, b in found} == {b for _, b in expected}
    for kind, a, b in found:
        assert (kind == "host_race") == ("host" in (program[a].kind, program[b].kind))


@settings(max_examples=400, deadline=None)
@given(steps(reuse=True))
def test_memory_that_is_used_again(program):
    reuses = [number for number, step in enumerate(program) if step.kind == "reuse"]

    def generation(number):
        return sum(reuse < number for reuse in reuses)

    def kept(a, b):  # the allocator waits for a recorded stream before it hands the memory out
        life = [step for number, step in enumerate(program) if generation(number) == generation(a)]
        return any(step.kind == "record_stream" and step.stream == program[a].stream for step in life)

    expected = set()
    for a, b in races(program):
        if generation(a) == generation(b):
            expected.add(("race", a, b))
        elif not kept(a, b):
            expected.add(("use_after_free" if program[a].stream else "race", a, b))
    found = detect(program)
    assert found <= expected
    assert {generation(b) for _, _, b in found} == {generation(b) for _, _, b in expected}
    within = {(a, b) for _, a, b in expected if generation(a) == generation(b)}
    assert {b for _, a, b in found if generation(a) == generation(b)} == {b for _, b in within}


@settings(max_examples=1000, deadline=None)
@given(accesses(), accesses())
def test_strided_sets_are_compared_byte_by_byte(one, other):
    program = [
        Step("access", 1, 0, True, one.offset, one.sizes, one.strides),
        Step("access", 2, 0, True, other.offset, other.sizes, other.strides),
    ]
    assert bool(detect(program)) == bool(program[0].bytes & program[1].bytes)
