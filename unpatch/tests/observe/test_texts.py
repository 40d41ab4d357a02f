"""Warnings and errors in words that two runs, on two machines, share."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from unpatch.model import WarningInfo
from unpatch.observe.errors import describe_error
from unpatch.observe.text import normalise, short_path
from unpatch.observe.warned import record_warnings


def raised_by(path: Path, source: str) -> BaseException:
    """The exception that `source`, as the file `path`, ends with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    namespace: dict[str, Any] = {"torch": torch}
    try:
        exec(compile(source, str(path), "exec"), namespace)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_is_placed_in_the_study_and_in_the_library(tmp_path: Path) -> None:
    error = raised_by(
        tmp_path / "cases" / "w.py",
        "def case():\n    torch.nn.Linear(2, 2)(torch.ones(3))\n\ncase()\n",
    )
    info = describe_error(error, tmp_path)
    assert info.type == "builtins.RuntimeError"
    assert info.place == "cases/w.py:2"
    assert info.raised_at == "torch/nn/modules/linear.py:Linear.forward"


def test_an_error_outside_the_study_has_no_place(tmp_path: Path) -> None:
    error = raised_by(tmp_path / "elsewhere" / "w.py", "raise KeyError('x')\n")
    info = describe_error(error, tmp_path / "study")
    assert (info.type, info.message, info.place) == ("builtins.KeyError", "'x'", "")


def test_packages_installed_below_the_study_are_not_the_study(tmp_path: Path) -> None:
    error = raised_by(tmp_path / ".venv" / "lib" / "site-packages" / "lib.py", "raise KeyError('x')\n")
    assert describe_error(error, tmp_path).place == ""


def test_types_of_the_study_are_qualified(tmp_path: Path) -> None:
    class InnerError(Exception):
        pass

    info = describe_error(InnerError("x"), tmp_path)
    assert info.type == f"{__name__}.test_types_of_the_study_are_qualified.<locals>.InnerError"
    assert (info.place, info.raised_at) == ("", "")


def test_notes_count_and_a_broken_message_does_not_end_the_trial(tmp_path: Path) -> None:
    noted = ValueError("x")
    noted.add_note("ERR00100")
    assert describe_error(noted, tmp_path).message == "x\nERR00100"

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "RuntimeError" in describe_error(BrokenError(), tmp_path).message

    class ExitingError(Exception):
        def __str__(self) -> str:
            raise SystemExit

    assert "SystemExit" in describe_error(ExitingError(), tmp_path).message


@pytest.mark.parametrize("notes", [3, None, "text", [3, None]])
def test_notes_that_are_none_are_left_out(tmp_path: Path, notes: object) -> None:
    error = ValueError("x")
    error.__notes__ = notes  # type: ignore[assignment]
    assert describe_error(error, tmp_path).message == "x"


TORCH = os.path.dirname(torch.__file__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<object at 0x7f70e83d2800> and 0x1F", "<object at 0x…> and 0x1F"),
        (f'File "{TORCH}/nn/modules/module.py", line 12, in f', 'File "torch/nn/modules/module.py", line 12, in f'),
        ('File "{root}/study.py", line 1', 'File "study.py", line 1'),
        ("{root} is missing, see {root}/x", ". is missing, see x"),
        ("at /__w/pytorch/pytorch/aten/src/ATen/EmptyTensor.cpp:54", "at EmptyTensor.cpp:54"),
        ("see https://pytorch.org/docs/stable/notes/a.html", "see https://pytorch.org/docs/stable/notes/a.html"),
        ("aten/src/ATen/native/Linear.cpp and 1/2/3/4", "aten/src/ATen/native/Linear.cpp and 1/2/3/4"),
        ("writes to /dev/null", "writes to /dev/null"),
        (os.path.expanduser("~/deep/x.py"), "deep/x.py"),
    ],
)
def test_texts_without_addresses_and_paths(text: str, expected: str, tmp_path: Path) -> None:
    root = tmp_path / "a study (1)"
    assert normalise(text.replace("{root}", str(root)), root) == expected


def test_a_traceback_inside_a_message(tmp_path: Path) -> None:
    from torch._utils import ExceptionWrapper

    source = "def work():\n    raise RuntimeError('boom')\n\nwork()\n"
    error = raised_by(tmp_path / "w.py", source)
    with pytest.raises(RuntimeError) as caught:
        ExceptionWrapper((type(error), error, error.__traceback__), where="in replica 0").reraise()
    message = describe_error(caught.value, tmp_path).message
    assert 'File "w.py", line 2, in work' in message
    assert str(tmp_path) not in message
    assert __file__ not in message


@pytest.mark.parametrize(
    ("file", "expected"),
    [(f"{TORCH}/nn/x.py", "torch/nn/x.py"), ("<string>", "<string>"), ("/nowhere/known/x.py", "x.py")],
)
def test_short_paths(file: str, expected: str) -> None:
    assert short_path(file) == expected


def test_all_warnings_repeated_ones_too_sorted() -> None:
    def warn(text: str) -> None:
        warnings.warn(text, UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with record_warnings() as recorder:
            warn("b")
            warn("b")
            thread = threading.Thread(target=warn, args=("a",))
            thread.start()
            thread.join()
            warnings.warn(f"old {hex(id(warn))}", DeprecationWarning, stacklevel=1)
    assert recorder.warnings == (
        WarningInfo("builtins.DeprecationWarning", "old 0x…"),
        WarningInfo("builtins.UserWarning", "a"),
        WarningInfo("builtins.UserWarning", "b"),
        WarningInfo("builtins.UserWarning", "b"),
    )


def test_what_is_an_error_for_the_program_stays_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="boo")
        with record_warnings() as recorder:
            with pytest.raises(UserWarning, match="boo"):
                warnings.warn("boo", stacklevel=1)
            warnings.warn("bah", stacklevel=1)
    assert recorder.warnings == (WarningInfo("builtins.UserWarning", "bah"),)


def test_what_torch_warns_once_is_warned_in_every_case() -> None:
    def case() -> tuple[WarningInfo, ...]:
        with record_warnings() as recorder:
            torch.empty(1, dtype=torch.complex32)
        return recorder.warnings

    first, second = case(), case()
    assert first == second
    assert "ComplexHalf" in first[0].message
    assert "/" not in first[0].message


def test_warnings_are_put_back_after_an_error() -> None:
    before = (warnings.showwarning, list(warnings.filters), torch.is_warn_always_enabled())
    recorder = record_warnings()

    def fail() -> None:
        with recorder:
            warnings.warn("x", stacklevel=1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (warnings.showwarning, list(warnings.filters), torch.is_warn_always_enabled()) == before
    assert [warning.message for warning in recorder.warnings] == ["x"]


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    from unpatch.observe.keys import current_keys

    monkeypatch.setitem(sys.modules, "torch", None)
    assert current_keys() == ("", "")
    with record_warnings() as recorder:
        warnings.warn("x", stacklevel=1)
    assert len(recorder.warnings) == 1
