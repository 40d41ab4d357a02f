"""A throw-away library to patch: a module with a function, a class with one attribute of each kind, and its base."""

from __future__ import annotations

import itertools
import sys
from types import ModuleType

import pytest

SOURCE = """
def greet():
    return "hello"

class Base:
    def inherited(self):
        return "base"

class Thing(Base):
    def method(self):
        return "method"

    @staticmethod
    def static(x):
        return ("static", x)

    @classmethod
    def make(cls):
        return ("make", cls.__name__)

    @property
    def size(self):
        return 3
"""
_numbers = itertools.count()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(f"toy_library_{next(_numbers)}")
    exec(SOURCE, module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module
