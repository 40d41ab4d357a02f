"""Schedulers for attention and FFN workers that run apart (attention/FFN disaggregation).

Attention workers ("sessions") and FFN workers exchange the tokens of micro-batches; a schedule context is a tensor in which
flags say what has arrived, and into which a scheduler writes what is to be computed next. It is an ordinary int64 tensor, so
it can be on npu, and be sent to other processes, which then share it.

`attention_worker_scheduler` and `ffn_worker_scheduler` are also operators of `torch.ops.npu`. They read the context on the
host: they wait for the device's current stream, and are no part of a compiled graph's kernels.

Layout: 8 words of header, then one flag for each session and micro-batch (tokens for the FFN), one for each micro-batch
(results for the attention worker), and one word for each session (the sessions that the FFN scheduler chose).
"""

import time
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ScheduleContext", "Scheduled", "attention_worker_scheduler", "ffn_worker_scheduler"]

_MAGIC = 0x4146_4401  # "AFD", version 1
_HEADER = 8
# Words of the header: what it is, its sizes, whether it is stopped; the micro-batch that each scheduler chose last, and for
# how many sessions it did so in its last call.
_KIND, _SESSIONS, _MICRO_BATCHES, _STOPPED, _ATTENTION, _ATTENTION_CHOSEN, _FFN, _FFN_CHOSEN = range(_HEADER)
_NOTHING = -1
_POLL_SECONDS = 0.0005


class Scheduled(NamedTuple):
    """What is to be computed next: a micro-batch (None where nothing is ready) and the sessions whose tokens it has."""

    micro_batch: int | None
    sessions: tuple[int, ...] = ()


class ScheduleContext:
    """A context and what workers do with it.

    Args:
        sessions: how many attention workers there are.
        micro_batches: into how many a batch is split.
        device: where the context is.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(self, sessions: int, micro_batches: int, device: str | torch.device = "npu") -> None:
        if sessions < 1 or micro_batches < 1:
            raise ValueError(f"a schedule context needs sessions and micro-batches, not {sessions} and {micro_batches}")
        words = [0] * (_HEADER + sessions * micro_batches + micro_batches + sessions)
        words[:_HEADER] = [_MAGIC, sessions, micro_batches, 0, _NOTHING, 0, _NOTHING, 0]
        self.tensor = torch.tensor(words, dtype=torch.int64, device=device)
        self._at = _Places(sessions, micro_batches)

    @classmethod
    def over(cls, tensor: Tensor) -> "ScheduleContext":
        """The context in `tensor`, which another process may have made. Raises ValueError where there is none."""
        made = cls.__new__(cls)
        made._at = _places(tensor, tensor.tolist())
        made.tensor = tensor
        return made

    def deliver_to_ffn(self, session: int, micro_batch: int) -> None:
        """Tell that the tokens of a micro-batch have arrived from an attention worker. Raises IndexError."""
        self.tensor[self._at.token(session, micro_batch)] = 1

    def deliver_to_attention(self, micro_batch: int) -> None:
        """Tell that the FFN's results of a micro-batch have arrived. Raises IndexError."""
        self.tensor[self._at.result(micro_batch)] = 1

    def stop(self) -> None:
        """Let schedulers that wait return with nothing."""
        self.tensor[_STOPPED] = 1

    def for_ffn(self) -> Scheduled:
        """What `ffn_worker_scheduler` chose last."""
        words = self.tensor.tolist()
        start = self._at.chosen
        chosen = words[_FFN_CHOSEN]
        return Scheduled(words[_FFN], tuple(words[start : start + chosen])) if chosen else Scheduled(None)

    def for_attention(self) -> Scheduled:
        """What `attention_worker_scheduler` chose last."""
        words = self.tensor.tolist()
        return Scheduled(words[_ATTENTION] if words[_ATTENTION_CHOSEN] else None)


class _Places(NamedTuple):
    sessions: int
    micro_batches: int

    def token(self, session: int, micro_batch: int) -> int:
        self._check(session, self.sessions, "session")
        self._check(micro_batch, self.micro_batches, "micro-batch")
        return _HEADER + session * self.micro_batches + micro_batch

    def result(self, micro_batch: int) -> int:
        self._check(micro_batch, self.micro_batches, "micro-batch")
        return _HEADER + self.sessions * self.micro_batches + micro_batch

    @property
    def chosen(self) -> int:
        return _HEADER + (self.sessions + 1) * self.micro_batches

    @staticmethod
    def _check(index: int, count: int, what: str) -> None:
        if not 0 <= index < count:
            raise IndexError(f"there is no {what} {index}: there are {count}")


def _places(tensor: Tensor, words: list[int]) -> _Places:
    if tensor.dtype == torch.int64 and tensor.dim() == 1 and len(words) > _HEADER and words[_KIND] == _MAGIC:
        places = _Places(words[_SESSIONS], words[_MICRO_BATCHES])
        if len(words) == places.chosen + places.sessions:
            return places
    raise ValueError("the tensor holds no schedule context: make one with torch_vnpu._afd.ScheduleContext(...).tensor")


def attention_worker_scheduler(schedule_context: Tensor) -> None:
    """Choose the next micro-batch whose FFN results have arrived, and take its flag away. Returns at once.

    The one after the micro-batch that was chosen last comes first, then the others in turn.

    Raises:
        ValueError: the tensor holds no schedule context.
    """
    words = schedule_context.tolist()
    at = _places(schedule_context, words)
    for micro_batch in _in_turn(words[_ATTENTION], at.micro_batches):
        if words[at.result(micro_batch)]:
            schedule_context[at.result(micro_batch)] = 0
            schedule_context[_ATTENTION] = micro_batch
            schedule_context[_ATTENTION_CHOSEN] = 1
            return
    schedule_context[_ATTENTION_CHOSEN] = 0


def ffn_worker_scheduler(schedule_context: Tensor, *, sync_group_size: int = 1, execute_mode: int = 0) -> None:
    """Choose the next micro-batch for which `sync_group_size` sessions have delivered tokens, and those sessions, and take
    their flags away.

    Micro-batches come in turn; of the sessions that are ready, the first ones. With `execute_mode` 0 it returns at once,
    with 1 it waits until something is ready or the context is stopped.

    Raises:
        ValueError: the tensor holds no schedule context, the group is larger than there are sessions, or the mode is another.
    """
    while not _schedule_ffn(schedule_context, sync_group_size, execute_mode) and execute_mode:
        if schedule_context[_STOPPED].item():
            return
        time.sleep(_POLL_SECONDS)


def _schedule_ffn(schedule_context: Tensor, sync_group_size: int, execute_mode: int) -> bool:
    words = schedule_context.tolist()
    at = _places(schedule_context, words)
    if not 1 <= sync_group_size <= at.sessions or execute_mode not in (0, 1):
        raise ValueError(
            f"ffn_worker_scheduler takes a sync_group_size from 1 to {at.sessions} (the sessions) and an execute_mode of 0 or "
            f"1, not {sync_group_size} and {execute_mode}"
        )
    for micro_batch in _in_turn(words[_FFN], at.micro_batches):
        ready = [session for session in range(at.sessions) if words[at.token(session, micro_batch)]]
        if len(ready) >= sync_group_size:
            for place, session in enumerate(ready[:sync_group_size]):
                schedule_context[at.token(session, micro_batch)] = 0
                schedule_context[at.chosen + place] = session
            schedule_context[_FFN] = micro_batch
            schedule_context[_FFN_CHOSEN] = sync_group_size
            return True
    schedule_context[_FFN_CHOSEN] = 0
    return False


def _in_turn(last: int, count: int) -> list[int]:
    return [(last + 1 + step) % count for step in range(count)]
