"""The alignment of recorded calls with a profiler's nested operators: laws, and the cases that it is for."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpatch.ops.align import align

#: Operators as trees: a name, and the operators inside.
_TREES = st.recursive(
    st.tuples(st.sampled_from("abcd"), st.just(())),
    lambda inner: st.tuples(st.sampled_from("abcd"), st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)


def _flat(trees):
    names, after = [], []
    for name, inner in trees:
        here = len(names)
        names.append(name)
        after.append(0)
        below, below_after = _flat(inner)
        names += below
        after += [here + 1 + one for one in below_after]
        after[here] = len(names)
    return names, after


@given(st.lists(st.sampled_from("abce"), max_size=8), st.lists(_TREES, max_size=5))
def test_what_is_joined_has_the_same_name_and_order_and_is_not_inside_of_another(calls, trees):
    events, after = _flat(trees)
    joined = align(calls, events, after)
    assert len(joined) == len(calls)
    free = 0
    for call, event in zip(calls, joined, strict=True):
        if event is not None:
            assert events[event] == call
            assert event >= free
            free = after[event]


@given(st.lists(st.sampled_from("abc"), max_size=9), st.lists(st.sampled_from("abc"), max_size=9))
def test_without_nesting_as_many_as_can_be_are_joined(calls, events):
    @cache
    def longest(call, event):
        if call == len(calls) or event == len(events):
            return 0
        if calls[call] == events[event]:
            return 1 + longest(call + 1, event + 1)
        return max(longest(call + 1, event), longest(call, event + 1))

    joined = align(calls, events, [index + 1 for index in range(len(events))])
    assert sum(event is not None for event in joined) == longest(0, 0)


@given(st.lists(_TREES, max_size=6), st.data())
def test_calls_that_the_profiler_does_not_see_cost_no_other_its_event(trees, data):
    names, after = _flat(trees)
    tops = [0] if names else []
    while tops and after[tops[-1]] < len(names):
        tops.append(after[tops[-1]])
    calls, expected = [], []
    for top in tops:
        for _ in range(data.draw(st.integers(0, 2))):
            calls.append("only recorded")
            expected.append(None)
        calls.append(names[top])
        expected.append(top)
    assert align(calls, names, after) == expected


@pytest.mark.parametrize(
    ("calls", "events", "joined"),
    [
        ("", "", []),
        ("", "ab", []),
        ("ab", "", [None, None]),
        ("dbd", "bd", [None, 0, 1]),  # a copy of what was saved, where a real one comes later
        ("adbdc", "abdc", [0, None, 1, 2, 3]),
    ],
)
def test_a_call_that_is_missing_waits_for_no_later_one_of_its_name(calls, events, joined):
    assert align(calls, events, list(range(1, len(events) + 1))) == joined
