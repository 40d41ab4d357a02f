"""Which of a profiler's operators is which recorded call: both are what one thread did, in its order.

Neither has all that the other has. The profiler sees operators around and inside the recorded ones, and a recorder is handed
copies that autograd makes of what it saved (`aten::detach`) only because it listens. So the two are aligned as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def align(calls: Sequence[Hashable], events: Sequence[Hashable], after: Sequence[int]) -> list[int | None]:
    """For each call the index of its event, or None, such that as few as can be of either are left over.

    An event that is taken is taken with all inside of it. Time and memory grow with (calls + events) times what is left over.

    Args:
        calls: names, in order.
        events: names, an event before those inside of it.
        after: of each event, the index of the first one that is not inside of it.
    """
    # Most of what a profiler sees is never recorded, and copies of what was saved are calls in nodes that make no others:
    # passing them by costs nothing.
    known, met = set(calls), set(events)
    ahead = list(range(len(events) + 1))
    for index in reversed(range(len(events))):
        if events[index] not in known:
            ahead[index] = ahead[index + 1]

    onward = list(range(len(calls) + 1))
    for index in reversed(range(len(calls))):
        if calls[index] not in met:
            onward[index] = onward[index + 1]

    def through(call: int, event: int) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        taken = []
        call, event = onward[call], ahead[event]
        while call < len(calls) and event < len(events) and calls[call] == events[event]:
            taken.append((call, event))
            call, event = onward[call + 1], ahead[after[event]]
        return (call, event), taken

    end = (len(calls), len(events))
    start, first = through(0, 0)
    came: dict[tuple[int, int], tuple[tuple[int, int] | None, list[tuple[int, int]]]] = {start: (None, first)}
    due = [start]
    while end not in came:
        further = []
        for call, event in due:
            for step in ((call + 1, event), (call, event + 1)):
                if step[0] <= end[0] and step[1] <= end[1]:
                    reached, taken = through(*step)
                    if reached not in came:
                        came[reached] = ((call, event), taken)
                        further.append(reached)
        due = further
    result: list[int | None] = [None] * len(calls)
    place: tuple[int, int] | None = end
    while place is not None:
        place, taken = came[place]
        for call, event in taken:
            result[call] = event
    return result
