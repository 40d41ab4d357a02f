"""Two observations of one case, compared channel by channel: equal, different or not comparable, with words for people.

It knows nothing of arms or verdicts. Operators have no global order (each thread has its own), so they are compared
as a multiset of per-thread sequences; tensors are compared by their bytes, so that a NaN equals itself.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Literal

from msgspec import Struct

from unpatch.ablate.distance import largest_difference
from unpatch.model import Channel, ErrorInfo, Observation, TensorInfo, ThreadRecord
from unpatch.observe.tensors import load_tensors

#: Differences shown per channel; the observations themselves stay in the study's store.
SHOWN = 6
DIFF_LINES = 16
#: Aligning costs the square of the length, so that longer sequences are compared by counts alone.
ALIGNED = 2000

Keys = tuple[str, str]


class Comparison(Struct, frozen=True):
    """What one channel of two observations says."""

    channel: Channel
    state: Literal["equal", "differs", "not_compared"]
    detail: str = ""


def compare(left: Observation, right: Observation, folder: Path) -> dict[Channel, Comparison]:
    """Compare two observations of the same case; `folder` is what their `tensor_file` is relative to."""
    comparisons = [_exceptions(left, right), _messages(left, right), _warnings(left, right)]
    if left.outcome == right.outcome == "passed":
        comparisons += [_operators(left, right), _keys(left, right), _tensors(left, right, folder)]
    else:
        reason = "the case did not pass in both"
        comparisons += [Comparison(channel, "not_compared", reason) for channel in _RECORDED_WHOLE]
    return {comparison.channel: comparison for comparison in comparisons}


_RECORDED_WHOLE: tuple[Channel, ...] = ("operators", "keys", "tensors")


# ------------------------------------------------------------------------------------------ how a case ended
def _exceptions(left: Observation, right: Observation) -> Comparison:
    if _ending(left) == _ending(right):
        return Comparison("exceptions", "equal")
    return Comparison("exceptions", "differs", f"{_ending_words(left)} → {_ending_words(right)}")


def _ending(observation: Observation) -> tuple[str, str, str]:
    error = observation.error
    return (observation.outcome, error.type if error else "", error.place if error else "")


def _ending_words(observation: Observation) -> str:
    words = observation.outcome.replace("_", " ")
    if observation.error is not None:
        words += f" with {observation.error.type}"
        if observation.error.place:
            words += f" at {observation.error.place}"
        if observation.error.message:
            words += f": {_shorten(observation.error.message)}"
    return words


def _messages(left: Observation, right: Observation) -> Comparison:
    before, after = _message(left.error), _message(right.error)
    if before is None and after is None:
        return Comparison("messages", "equal")
    if before is None or after is None:
        return Comparison("messages", "not_compared", "only one of them failed")
    if before == after:
        return Comparison("messages", "equal")
    return Comparison("messages", "differs", f"{_shorten(before)} → {_shorten(after)}")


def _message(error: ErrorInfo | None) -> str | None:
    return None if error is None else error.message


def _warnings(left: Observation, right: Observation) -> Comparison:
    # A case that ended early has not given all its warnings, and a dead child none.
    if (left.outcome, right.outcome) not in (("passed", "passed"), ("failed", "failed")):
        return Comparison("warnings", "not_compared", "the case did not end alike in both")
    before = Counter(f"{warning.category}: {warning.message}" for warning in left.warnings)
    after = Counter(f"{warning.category}: {warning.message}" for warning in right.warnings)
    return _multiset("warnings", before, after)


def _multiset(channel: Channel, before: Counter[str], after: Counter[str]) -> Comparison:
    if before == after:
        return Comparison(channel, "equal")
    lines = [f"- {_times(_shorten(text), count)}" for text, count in (before - after).items()]
    lines += [f"+ {_times(_shorten(text), count)}" for text, count in (after - before).items()]
    return Comparison(channel, "differs", _lines(lines, SHOWN))


# ------------------------------------------------------------------------------------------ operators and keys
def _not_recorded(channel: Channel, left: Observation, right: Observation) -> Comparison | None:
    """Not comparable when neither was recorded. When only one was, that is itself a difference."""
    if left.operators_note and right.operators_note:
        return Comparison(channel, "not_compared", left.operators_note)
    if left.operators_note or right.operators_note:
        side = "first" if right.operators_note else "second"
        note = left.operators_note or right.operators_note
        return Comparison(channel, "differs", f"recorded in the {side} only: {note}")
    return None


def _operators(left: Observation, right: Observation) -> Comparison:
    unrecorded = _not_recorded("operators", left, right)
    if unrecorded is not None:
        return unrecorded
    before = Counter((thread.role, thread.device, thread.operators) for thread in left.threads)
    after = Counter((thread.role, thread.device, thread.operators) for thread in right.threads)
    if before == after:
        return Comparison("operators", "equal")
    lines = [f"{_count_operators(left)} → {_count_operators(right)} operators"]
    removed, added = before - after, after - before
    for role, device in sorted({(role, device) for role, device, _ in (*removed, *added)}):
        lines.append(f"{role} {device}:".replace(" :", ":"))
        pairs = zip_longest(_sequences(removed, role, device), _sequences(added, role, device), fillvalue=())
        for one, other in pairs:
            lines += _sequence_diff(one, other)
    return Comparison("operators", "differs", _lines(lines, DIFF_LINES))


def _count_operators(observation: Observation) -> int:
    return sum(len(thread.operators) for thread in observation.threads)


def _sequences(records: Counter[tuple[str, str, tuple[str, ...]]], role: str, device: str) -> list[tuple[str, ...]]:
    """The sequences of one kind of thread; sorted, so that like stands beside like whatever thread came first."""
    return sorted(sequence for kind, place, sequence in records.elements() if (kind, place) == (role, device))


def _sequence_diff(one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff that differ, runs of the same line counted: `- aten.add.Tensor ×3`."""
    one, other = _without_common_ends(one, other)
    if max(len(one), len(other)) > ALIGNED:
        fewer, more = Counter(one) - Counter(other), Counter(other) - Counter(one)
        one, other = sorted(fewer.elements()), sorted(more.elements())
        if not one and not other:
            yield "the same operators in another order"
    diff = difflib.unified_diff(one, other, lineterm="", n=0)
    body = (line for line in diff if not line.startswith(("---", "+++", "@@")))
    for line, run in groupby(body):
        yield _times(f"{line[0]} {line[1:]}", sum(1 for _ in run))


def _without_common_ends(one: Sequence[str], other: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    one, other = one[start:], other[start:]
    shared = zip(reversed(one), reversed(other), strict=False)
    end = next((i for i, (a, b) in enumerate(shared) if a != b), min(len(one), len(other)))
    return one[: len(one) - end], other[: len(other) - end]


def _keys(left: Observation, right: Observation) -> Comparison:
    unrecorded = _not_recorded("keys", left, right)
    if unrecorded is not None:
        return unrecorded
    lines = []
    for name, before, after in (
        ("before the case", left.keys_before, right.keys_before),
        ("after the case", left.keys_after, right.keys_after),
    ):
        if before != after:
            lines.append(f"{name}: {_key_change(before, after)}")
    mine, theirs = Counter(_keyed_threads(left)), Counter(_keyed_threads(right))
    if _operators(left, right).state == "equal" and mine != theirs:
        lines += _keyed_changes(mine - theirs, theirs - mine)
    if lines:
        return Comparison("keys", "differs", _lines(lines, SHOWN))
    if mine != theirs:
        return Comparison("keys", "equal", "compared before and after the case only, because the operators differ")
    return Comparison("keys", "equal")


KeyedThread = tuple[str, str, tuple[tuple[str, Keys], ...]]


def _keyed_threads(observation: Observation) -> Iterator[KeyedThread]:
    for thread in observation.threads:
        yield (thread.role, thread.device, tuple(_keyed(thread, observation)))


def _keyed(thread: ThreadRecord, observation: Observation) -> Iterator[tuple[str, Keys]]:
    for operator, index in zip(thread.operators, thread.keys, strict=True):
        yield operator, observation.key_sets[index]


def _keyed_changes(removed: Counter[KeyedThread], added: Counter[KeyedThread]) -> list[str]:
    """What changed at which operator; both sides hold the same operators, so sorting by them pairs the threads."""

    def by_operators(thread: KeyedThread) -> tuple[str, str, tuple[str, ...]]:
        return thread[0], thread[1], tuple(operator for operator, _ in thread[2])

    changes: Counter[str] = Counter()
    pairs = zip(sorted(removed.elements(), key=by_operators), sorted(added.elements(), key=by_operators), strict=True)
    for one, other in pairs:
        for (operator, before), (_, after) in zip(one[2], other[2], strict=True):
            if before != after:
                changes[f"{operator}: {_key_change(before, after)}"] += 1
    return [_times(text, count) for text, count in changes.items()]


def _key_change(before: Keys, after: Keys) -> str:
    named = zip(("included", "excluded"), before, after, strict=True)
    return ", ".join(f"{name} {one or 'none'} → {other or 'none'}" for name, one, other in named if one != other)


# ------------------------------------------------------------------------------------------ tensors and values
def _tensors(left: Observation, right: Observation, folder: Path) -> Comparison:
    if not (left.tensors or right.tensors or left.values or right.values):
        return Comparison("tensors", "not_compared", "the case hands over no tensor and no value")
    lines = [*_missing("tensor", left.tensors, right.tensors), *_missing("value", left.values, right.values)]
    for name in left.values.keys() & right.values.keys():
        if left.values[name] != right.values[name]:
            lines.append(f"{name}: {_shorten(left.values[name])} → {_shorten(right.values[name])}")
    shared = sorted(left.tensors.keys() & right.tensors.keys())
    if shared:
        before, after = load_tensors(folder / left.tensor_file), load_tensors(folder / right.tensor_file)
        for name in shared:
            lines += _tensor_change(name, left.tensors[name], right.tensors[name], before[name], after[name])
    if lines:
        return Comparison("tensors", "differs", _lines(sorted(lines), SHOWN))
    return Comparison("tensors", "equal")


def _missing(noun: str, left: Mapping[str, object], right: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(left.keys() ^ right.keys()):
        yield f"{name}: a {noun} in the {'first' if name in left else 'second'} only"


def _tensor_change(name: str, left: TensorInfo, right: TensorInfo, before: bytes, after: bytes) -> Iterator[str]:
    traits = [
        f"{trait} {getattr(left, trait)} → {getattr(right, trait)}"
        for trait in ("kind", "type", "dtype", "shape", "strides", "device", "requires_grad")
        if getattr(left, trait) != getattr(right, trait)
    ]
    if traits:
        yield f"{name}: {', '.join(traits)}"
    if (left.dtype, left.shape) == (right.dtype, right.shape) and before != after:
        finite = "" if left.finite == right.finite else f", finite {left.finite} → {right.finite}"
        yield f"{name}: {largest_difference(left, before, after)}{finite}"


# ------------------------------------------------------------------------------------------ words
def _times(text: str, count: int) -> str:
    return text if count == 1 else f"{text} ×{count}"


def _shorten(text: str, limit: int = 200) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"


def _lines(lines: Iterable[str], limit: int) -> str:
    kept = list(lines)
    if len(kept) > limit:
        kept = [*kept[:limit], f"… {len(kept) - limit} more"]
    return "\n".join(kept)
