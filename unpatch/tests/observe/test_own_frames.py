"""Frames of the recorder: gone from what a report quotes, and nothing else with them."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unpatch.observe.errors import describe_error
from unpatch.observe.operators import record_operators
from unpatch.observe.own_frames import frames_of, without_frames, without_ours
from unpatch.observe.text import normalise


def failing() -> BaseException:
    try:
        torch.ones(2) + torch.ones(3)
    except RuntimeError as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture(params=[False, True], ids=["eager", "with Dynamo loaded"])
def dynamo(request: pytest.FixtureRequest) -> None:
    """Dynamo, once loaded, stands between the workload and the recorder."""
    if request.param:
        import torch._dynamo  # noqa: F401


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_traceback_reads_as_if_nobody_had_recorded(dynamo: None) -> None:
    with record_operators():
        recorded = failing()
    assert "unpatch/observe" in told(recorded)
    assert without_ours(told(recorded)) == told(failing())
    assert normalise(told(recorded)) == normalise(told(failing()))


def test_the_same_holds_in_a_thread_and_for_the_innermost_function(dynamo: None) -> None:
    found: list[BaseException] = []
    with record_operators():
        thread = threading.Thread(target=lambda: found.append(failing()))
        thread.start()
        thread.join()
    assert without_ours(told(found[0])) == told(failing())
    info = describe_error(found[0], Path(__file__).parent)
    assert info.raised_at == "test_own_frames.py:failing"


def test_a_group_of_exceptions(dynamo: None) -> None:
    with record_operators():
        recorded = failing()
    shown = told(ExceptionGroup("several", [recorded]))
    assert "unpatch/observe" not in without_ours(shown)
    assert "in failing" in without_ours(shown)


@given(st.text())
def test_what_is_no_traceback_is_left_as_it_is(text: str) -> None:
    assert without_ours(text) == text
    assert without_frames(text) == text or frames_of(text)


def test_text_between_frames_stays() -> None:
    text = (
        'Caught:\n  File "a.py", line 3, in f\n    x()\n    ^^^\nValueError: no\n\n'
        'from user code:\n   File "b.py", line 4, in <lambda>\n    y\nSet X=1\n'
    )
    assert without_frames(text) == "Caught:\nValueError: no\n\nfrom user code:\nSet X=1\n"
    assert frames_of(text) == ["a.py in f", "b.py in <lambda>"]
