"""Special methods whose C slot would not come back are refused, and only those.

The oracle is the type itself: its memory before a special method was written, and after it was put back.
"""

from __future__ import annotations

import ctypes
import datetime
import pathlib
import subprocess
import sys
import types

import pytest

from unpatch.patches import NotRevertibleError, PatchManager, WriteRefusedError, slots

NAMES = sorted(
    {name for kind in (int, list, dict, str, bytearray, set) for name in dir(kind) if name.startswith("__")}
    | {
        "__getattr__",
        "__get__",
        "__set__",
        "__next__",
        "__call__",
        "__matmul__",
        "__radd__",
        "__imatmul__",
        "__await__",
    }
    - {"__class__", "__dict__", "__doc__"}
)


class InPython:
    def __new__(cls, *args):
        return object.__new__(cls)

    def __getitem__(self, index):
        return index

    def __len__(self):
        return 1

    def __add__(self, other):
        return self


class Initialised:
    def __init__(self, value):
        self.value = value


def _memory(kind: type) -> list[int | None]:
    words = type.__basicsize__ // ctypes.sizeof(ctypes.c_void_p)
    return list((ctypes.c_void_p * words).from_address(id(kind)))


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="reads the memory of types of CPython")
@pytest.mark.parametrize(
    "base",
    [
        object, InPython, Initialised, list, dict, int, float, str, bytes, tuple, set, bytearray, types.SimpleNamespace,
        datetime.date, pathlib.PurePath, Exception,
    ],
    ids=lambda base: base.__name__,
)  # fmt: skip
def test_whatever_changes_the_type_for_good_is_known_to_last(base):
    for name in NAMES:
        kind = type("Kind", (base,), {})
        foreseen = slots.lasting(kind, name)
        before = _memory(kind)
        try:
            setattr(kind, name, lambda self, *args: None)
            delattr(kind, name)
        except (AttributeError, TypeError):
            continue
        changed = _memory(kind) != before
        assert not changed or foreseen, f"{base.__name__}.{name} does not come back, and nobody said so"


@pytest.mark.parametrize(
    ("base", "name"),
    [(InPython, "__getitem__"), (InPython, "__new__"), (InPython, "__len__"), (InPython, "__add__"), (int, "__add__"),
     (dict, "__getitem__"), (list, "__repr__"), (str, "__eq__"), (object, "__init__"), (object, "__getitem__")],
)  # fmt: skip
def test_what_comes_back_is_not_refused(base, name):
    assert slots.lasting(type("Kind", (base,), {}), name) == ""


@pytest.fixture
def manager(toy):
    toy.Thing = type("Thing", (dict,), {})
    return PatchManager("toy")


def test_such_a_write_is_refused_with_the_reason_and_nothing_changes(manager, toy):
    manager.declare(id="p", group="g", reason="r").replace(f"{toy.__name__}.Thing.__setitem__", lambda *args: None)
    with pytest.raises(
        WriteRefusedError, match=r"patch 'toy/p' cannot be applied.*Thing\.__setitem__.*two C slots.*permanent=True"
    ):
        manager.apply_all()
    assert "__setitem__" not in vars(toy.Thing)


def test_who_accepts_that_it_lasts_can_apply_but_not_revert(manager, toy):
    patch = manager.declare(id="p", group="g", reason="r", permanent=True)
    value = patch.replace(f"{toy.__name__}.Thing.__setitem__", lambda self, key, value: None)
    manager.apply_all()
    thing = toy.Thing()
    thing["a"] = 1
    assert thing == {}
    with pytest.raises(
        NotRevertibleError, match=r"'toy/p' cannot be reverted in this process.*two C slots.*fresh process"
    ):
        manager.revert("p")
    assert vars(toy.Thing)["__setitem__"] is value
    assert patch.applied


def test_upon_a_write_that_lasts_others_come_and_go(manager, toy):
    lasting = manager.declare(id="p", group="g", reason="r", permanent=True)
    lower = lasting.replace(f"{toy.__name__}.Thing.__setitem__", lambda self, key, value: None)
    manager.declare(id="q", group="g", reason="r").replace(f"{toy.__name__}.Thing.__setitem__", lambda *args: 1 / 0)
    manager.apply_all()
    with pytest.raises(ZeroDivisionError):
        toy.Thing()["a"] = 1
    manager.revert("q")
    assert vars(toy.Thing)["__setitem__"] is lower
    toy.Thing()["a"] = 1


def test_a_patch_that_fails_later_puts_the_attribute_back_at_least(manager, toy):
    patch = manager.declare(id="p", group="g", reason="r", permanent=True)
    patch.replace(f"{toy.__name__}.Thing.__setitem__", lambda *args: None)
    patch.replace(f"{toy.__name__}.absent", 1)
    with pytest.raises(Exception, match="absent"):
        manager.apply_all()
    assert "__setitem__" not in vars(toy.Thing)


def test_the_tensor_keeps_its_slots():
    code = """
import torch
from unpatch.patches import PatchManager, WriteRefusedError
manager = PatchManager("toy")
manager.declare(id="p", group="g", reason="r").replace("torch.Tensor.__getitem__", lambda self, index: 0)
try:
    manager.apply_all()
except WriteRefusedError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch.Tensor.__getitem__ is implemented in C, and the name stands for two C slots" in done.stdout
