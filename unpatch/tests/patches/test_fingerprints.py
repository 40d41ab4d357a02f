"""A fingerprint changes where what it is of changes, and only there."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from unpatch.patches.fingerprints import fingerprint

SOURCE = '''
import functools

def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

def plain(x):
    """Doc."""
    return x + 1

@decorated
def wrapped(x):
    return x * 2

class Thing:
    @property
    def size(self):
        return 3

    @staticmethod
    def static(x):
        return x

    @classmethod
    def make(cls):
        return cls()

    @functools.cached_property
    def lazy(self):
        return 4

partly = functools.partial(plain, 2)
NUMBER = 5
PAIR = (1, "a")
TABLE = {"a": 1}
'''
NAMES = ("plain", "wrapped", "Thing", "size", "static", "make", "lazy", "partly", "NUMBER", "PAIR", "TABLE")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a version of the library and take the fingerprint of everything in it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    count = iter(range(100))

    def load(source: str) -> dict[str, str]:
        name = f"fingerprinted_{tmp_path.name}_{next(count)}"
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        module = importlib.import_module(name)
        space = {**vars(module.Thing), **vars(module)}
        return {name: fingerprint(space[name]) for name in NAMES}

    return load


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("x + 1", "x + 2", {"plain", "partly"}),
        ("x * 2", "x * 3", {"wrapped"}),
        ("return function(*args)", "return function(*args, )", {"wrapped"}),
        ("return 3", "return 33", {"size", "Thing"}),
        ("    return x\n", "    return [x]\n", {"static", "Thing"}),
        ("return cls()", "return cls", {"make", "Thing"}),
        ("return 4", "return 44", {"lazy", "Thing"}),
        ("= 5", "= 6", {"NUMBER"}),
        ('(1, "a")', '(1, "b")', {"PAIR"}),
        ('{"a": 1}', '["a", 1]', {"TABLE"}),
        ('{"a": 1}', '{"a": 2}', set()),  # data that a program fills as it runs
        ("\ndef plain", "\n\n# moved down\n\ndef plain", set()),
        ("return x + 1\n", "return x + 1   \n", set()),
    ],
)
def test_what_changes_with_the_source(load, old, new, changes):
    before, after = load(SOURCE), load(SOURCE.replace(old, new, 1))
    assert SOURCE.replace(old, new, 1) != SOURCE
    assert {name for name in NAMES if before[name] != after[name]} == changes


def test_what_it_is_of_stands_before_it(load):
    kinds = {name: text.partition(":")[0] for name, text in load(SOURCE).items()}
    assert kinds == {
        **dict.fromkeys(NAMES, "source"), "NUMBER": "value", "PAIR": "value", "TABLE": "type"
    }  # fmt: skip


@pytest.mark.parametrize("value", [len, int.bit_length, dict.__getitem__, dict.__dict__["fromkeys"], functools.partial])
def test_functions_written_in_c_have_that_of_signature_and_doc(value):
    assert fingerprint(value).startswith(("signature:", "source:"))
    assert fingerprint(value) == fingerprint(value)


def test_that_of_different_c_functions_differs():
    assert len({fingerprint(value) for value in (len, abs, int.bit_length, int.bit_count, dict.__getitem__)}) == 5


def test_code_without_a_file_has_that_of_its_signature():
    space: dict[str, object] = {}
    exec("def f(a, b=1): return a\ndef g(a, b=2): return a\n", space)
    assert fingerprint(space["f"]).startswith("signature:")
    assert fingerprint(space["f"]) != fingerprint(space["g"])


def test_it_is_the_same_in_another_process():
    code = "import json, unpatch.patches.fingerprints as f; print(*map(f.fingerprint, (json.dumps, len, 3, json.JSONEncoder)))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
