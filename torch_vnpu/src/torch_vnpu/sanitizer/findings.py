"""What the sanitizer found, as data: two accesses to the same bytes, and the order that is missing between them."""

import shlex
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field
from typing import Any, Literal

from torch_vnpu.sanitizer.frames import Frame, shown

Kind = Literal["race", "host_race", "use_after_free"]


#: Tells the frames of a stack by its number, innermost first.
Frames = Callable[[int], Iterable[tuple[str, str, int]]]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two accesses. `device` is -1 for the host; `stack` is a number that `Finding.frames` understands."""

    operation: str
    argument: str
    device: int
    stream: int
    written: bool
    stack: int

    @property
    def is_host(self) -> bool:
        return self.device < 0

    @property
    def where(self) -> str:
        """`stream 3 of npu:0`, `the default stream of npu:0`, `the host`."""
        return "the host" if self.is_host else _stream_text(self.device, self.stream)

    @property
    def what(self) -> str:
        """`aten::add_.Tensor writes 'self'`, or what was done to the memory without an operator."""
        if not self.argument:
            return self.operation
        verb = "writes" if self.written else "reads"
        return (
            f"{self.operation} {verb} its result"
            if self.argument == "return"
            else f"{self.operation} {verb} '{self.argument}'"
        )


def _stream_text(device: int, stream: int) -> str:
    return f"{'the default stream' if stream == 0 else f'stream {stream}'} of npu:{device}"


def _stream_code(device: int, stream: int) -> str:
    return f"torch.npu.default_stream({device})" if stream == 0 else f"stream_{stream}"


@dataclass(frozen=True, slots=True)
class Finding:
    """Two accesses in program order, at least one of which writes, to bytes that both touch; nothing orders them.

    `race`: by two streams. `host_race`: one of them by the host. `use_after_free`: the first by another stream than the one for
    which the memory was allocated, which was freed before the two streams were ordered; the second is the access that used the
    memory again, or the free itself. `base` and `bytes` are of the memory of the first access.
    """

    kind: Kind
    first: Side
    second: Side
    owner: tuple[int, int] | None  # device and stream for which the memory was allocated
    base: int
    bytes: int
    memory_device: int
    reused: bool
    allocated: int
    freed: int
    frames_of: Frames = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: tuple[Any, ...], frames_of: Frames) -> "Finding":
        """From what the native detector tells."""
        kind, first, second, owner_device, owner_stream, base, size, memory_device, reused, allocated, freed = raw
        owner = None if owner_device < 0 else (owner_device, owner_stream)
        return cls(
            kind, Side(*first), Side(*second), owner, base, size, memory_device, reused, allocated, freed, frames_of
        )

    def raw(self) -> tuple[Any, ...]:
        """What `of` takes: numbers, texts and tuples of them."""
        owner = (-1, 0) if self.owner is None else self.owner
        sides = (astuple(self.first), astuple(self.second))
        memory = (self.base, self.bytes, self.memory_device, self.reused, self.allocated, self.freed)
        return (self.kind, *sides, *owner, *memory)

    @property
    def stacks(self) -> tuple[int, int, int, int]:
        """The numbers of its stacks: of the first access, the second, the allocation and the free; 0 where there is none."""
        return self.first.stack, self.second.stack, self.allocated, self.freed

    def all_frames(self, stack: int) -> list[Frame]:
        """The Python stack with this number, innermost call first; empty where there was none."""
        return [Frame(*frame) for frame in self.frames_of(stack)] if stack else []

    def frames(self, stack: int) -> list[Frame]:
        """As `all_frames`, without the calls that are not the program's."""
        return shown(self.all_frames(stack))

    @property
    def allocation_is_unseen(self) -> bool:
        """Whether the memory is known to be no allocation that was seen: it was there before, or comes from elsewhere."""
        return not self.allocated and self.owner is None and self.memory_device >= 0

    @property
    def missing(self) -> str:
        """In one sentence, which order is missing."""
        first, second = self.first, self.second
        if self.kind == "use_after_free":
            owner = _stream_text(*self.owner) if self.owner else "its own stream"
            then = "is used again" if self.reused else "may be used again"
            return (
                f"The memory was freed, and {then} by {owner}, while {first.operation} on {first.where} may still "
                f"{'write' if first.written else 'read'} it: the allocator does not know of that stream, and nothing orders "
                "the two."
            )
        if second.is_host:
            return f"The host does not wait for {first.operation} on {first.where} before {second.operation}."
        through = " The memory was freed and handed out again in between." if self.reused else ""
        return f"Nothing makes {second.where} wait for {first.operation} on {first.where}.{through}"

    @property
    def fix(self) -> str:
        """A line that would order them, with where it belongs."""
        first, second = self.first, self.second
        one = _stream_code(first.device, first.stream)
        if self.kind == "use_after_free":
            owner = _stream_code(*self.owner) if self.owner else "owner"
            return f"tensor.record_stream({one})  # or {owner}.wait_stream({one}), before the tensor is freed"
        if second.is_host:
            return f"{one}.synchronize()  # or an event's, before {second.operation}"
        return f"{_stream_code(second.device, second.stream)}.wait_stream({one})  # before {second.operation}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""

        def side(one: Side) -> dict[str, Any]:
            return {
                "operation": one.operation,
                "argument": one.argument,
                "device": None if one.is_host else one.device,
                "stream": None if one.is_host else one.stream,
                "access": "write" if one.written else "read",
                "stack": stack(one.stack),
            }

        def stack(number: int) -> list[dict[str, Any]]:
            return [frame._asdict() for frame in self.frames(number)]

        return {
            "kind": self.kind,
            "first": side(self.first),
            "second": side(self.second),
            "missing_order": self.missing,
            "fix": self.fix,
            "memory": {
                "address": self.base,
                "bytes": self.bytes,
                "device": None if self.memory_device < 0 else self.memory_device,
                "allocated_for_stream": None if self.owner is None else self.owner[1],
                "reused": self.reused,
                "allocation_stack": stack(self.allocated),
                "free_stack": stack(self.freed),
            },
        }


@dataclass(frozen=True, slots=True)
class Process:
    """A process that the checked program started and that used npu. `reported`: it ended so that it could tell its findings."""

    pid: int
    argv: tuple[str, ...]
    reported: bool = False
    findings: tuple[Finding, ...] = ()
    suppressed: int = 0

    @property
    def title(self) -> str:
        return f"process {self.pid} ({shlex.join(self.argv)})"


def tell_each(raw: Iterable[tuple[Any, ...]], report: Callable[[tuple[Any, ...]], object]) -> None:
    """Report all of them, and raise afterwards what the first failing report raised, as one in mode `raise` does."""
    raised: Exception | None = None
    for one in raw:
        try:
            report(one)
        except Exception as error:
            raised = raised or error
    if raised is not None:
        raise raised
