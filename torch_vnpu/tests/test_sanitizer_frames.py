"""Which calls of a stack are shown: the program's."""

import runpy
import subprocess
import sys
from pathlib import Path

import _pytest.python
import pluggy
import pytest
import torch
import torch.distributed.distributed_c10d as c10d
from hypothesis import given
from hypothesis import strategies as st

import torch_vnpu.cli
from torch_vnpu.cli import program
from torch_vnpu.contrib._transfer import redirect
from torch_vnpu.distributed import told
from torch_vnpu.sanitizer.frames import Frame, shown, users

OPS = str(Path(torch.__file__).with_name("_ops.py"))
LIBRARY = subprocess.__file__
USER, OTHER = "project/train.py", "project/model.py"
ENTRY = "bin/vnpu"
RUNNERS = [torch_vnpu.cli.__file__, program.__file__, runpy.__file__, "<frozen runpy>", _pytest.python.__file__]
RUNNERS += [pluggy.__file__, pytest.__file__]
FILES = [*RUNNERS, OPS, LIBRARY, USER, OTHER, ENTRY, told.__file__, redirect.__file__, "<string>"]


def stack(*files: str) -> list[Frame]:
    return [Frame(file, f"f{index}", index) for index, file in enumerate(files)]


def files(frames: list[Frame]) -> list[str]:
    return [frame.file for frame in frames]


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("entry", [(), (ENTRY,), ("<string>",)])
def test_what_started_the_program_is_hidden(runner: str, entry: tuple[str, ...]) -> None:
    assert files(shown(stack(OTHER, LIBRARY, USER, runner, runner, *entry))) == [OTHER, LIBRARY, USER]


def test_a_runner_that_the_program_calls_is_shown() -> None:
    calls = stack(OTHER, _pytest.python.__file__, USER, pluggy.__file__)
    assert shown(calls) == calls[:3]


def test_an_entry_is_shown_where_it_is_the_program() -> None:
    assert files(shown(stack(OTHER, "<string>"))) == [OTHER, "<string>"]


def test_our_own_calls_are_hidden() -> None:
    collective = stack(OPS, told.__file__, told.__file__, c10d.__file__, USER)
    assert files(shown(collective)) == [OPS, c10d.__file__, USER][1:]
    assert files(shown(stack(redirect.__file__, OTHER, redirect.__file__, USER))) == [OTHER, USER]


@pytest.mark.parametrize("file", [*RUNNERS, OPS, told.__file__])
def test_one_call_is_left(file: str) -> None:
    calls = stack(file, file)
    assert shown(calls) == calls[:1]


@given(st.lists(st.sampled_from(FILES)))
def test_laws(names: list[str]) -> None:
    calls = stack(*names)
    kept = shown(calls)
    assert kept == [call for call in calls if call in kept]  # in order, and nothing else
    assert bool(kept) == bool(calls)
    assert {call for call in calls if call.file in (USER, OTHER)} <= set(kept)


def test_the_users_own_call_is_in_no_library() -> None:
    calls = stack(c10d.__file__, LIBRARY, OTHER, USER)
    assert users(calls) == calls[2]
    assert users(calls[:2]) == calls[0]
    assert users([]) is None
    assert users(stack(sys.modules["pluggy"].__file__ or "", USER)) == Frame(USER, "f1", 1)
