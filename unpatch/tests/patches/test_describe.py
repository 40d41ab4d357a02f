"""A patch as a record: where it is written, its source text, and nothing of this machine."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

import pytest

from unpatch.patches import Origin, PatchManager
from unpatch.patches.describe import describe

HERE = Path(__file__).parent


@pytest.fixture
def manager():
    return PatchManager("toy")


def test_everything_that_was_declared_is_in_the_record(manager):
    @manager.patch(
        "toy.f",
        "toy.g",
        id="p",
        group="api",
        reason="because",
        title="A patch",
        origin=Origin("brought", "gone", "a note"),
        versions="torch>=2.1",
        remove_when="torch>=2.13",
        risk="little",
        rollback="revert the commit",
    )
    def replacement(x):
        return x + 1

    info = describe(manager.get("p"), HERE)
    assert (info.id, info.group, info.reason, info.title) == ("p", "api", "because", "A patch")
    assert info.targets == ("toy.f", "toy.g")
    assert (info.origin.introduced, info.origin.removed, info.origin.note) == ("brought", "gone", "a note")
    assert (info.versions, info.remove_when, info.risk, info.rollback) == (
        "torch>=2.1",
        "torch>=2.13",
        "little",
        "revert the commit",
    )
    assert info.source == f"test_describe.py:{replacement.__code__.co_firstlineno}"
    assert info.code.startswith("@manager.patch(")
    assert info.code.endswith("def replacement(x):\n    return x + 1")


def test_what_is_left_out_is_unknown(manager):
    info = describe(manager.declare(id="p", group="api", reason="r"), HERE)
    assert (info.title, info.versions, info.code) == ("p", "", "")
    assert (info.origin.introduced, info.origin.removed) == ("unknown", "unknown")


def test_every_distinct_replacement_is_shown_once(manager):
    patch = manager.declare(id="p", group="api", reason="r")

    def first():
        return 1

    @staticmethod
    def second():
        return 2

    class Third:
        pass

    fourth = property(functools.partial(first))
    for n, value in enumerate((first, first, second, Third, fourth, 5, len, object())):
        patch.add(f"toy.x{n}", value)
    patch.delete("toy.gone")
    code = describe(patch, HERE).code
    assert code.startswith("# 3 replacements of one text: toy.x0, toy.x1, toy.x4\ndef first():")
    assert code.count("def first") == 1
    assert code.count("def second") == 1
    assert "class Third:\n    pass" in code
    assert code.endswith(
        "toy.x5 = 5  # added: int\n\n"
        "toy.x6 = <built-in function len>  # added: builtin_function_or_method, without Python source\n\n"
        "toy.x7 = <object object>  # added: object"
    )


def test_functions_that_differ_only_in_what_they_close_over_are_one_text(manager):
    def refusing(name):
        def refuse():
            raise RuntimeError(name)

        return refuse

    patch = manager.declare(id="p", group="api", reason="r")
    for name in ("f", "g"):
        patch.replace(f"toy.{name}", refusing(name))
    assert describe(patch, HERE).code == (
        "# 2 replacements of one text, each with its own name: toy.f, toy.g\n"
        "def refuse():\n    raise RuntimeError(name)"
    )


HELPED = """
class Counter:
    def count(self, x):
        return x + 1 if x else x

counter = Counter()

def helper(x):
    def inner():
        if x > 5: return x
        return 0
    return inner()

def unused(x):
    return x

def replacement(x):
    if x is None:
        return counter.count(x)
    return helper(x)
"""


def load(tmp_path, source):
    path = tmp_path / "helped.py"
    path.write_text(source)
    space = {}
    exec(compile(source, str(path), "exec"), space)
    return space


def test_the_helpers_that_count_as_its_own_are_shown_and_their_branches_named(manager, tmp_path):
    manager.declare(id="p", group="api", reason="r").replace("toy.f", load(tmp_path, HELPED)["replacement"])
    info = describe(manager.get("p"), tmp_path)
    first, second, third = info.code.split("\n\n")
    assert first.startswith("def replacement(x):")
    assert second == "# of Counter\ndef count(self, x):\n    return x + 1 if x else x"
    assert third.startswith("def helper(x):")
    assert third.endswith("    return inner()")
    assert [(line.place, line.text) for line in info.branches] == [
        ("helped.py:10", "return x"),
        ("helped.py:11", "return 0"),
        ("helped.py:19", "return counter.count(x)"),
        ("helped.py:20", "return helper(x)"),
    ]


def test_branches_that_share_a_line_have_names_of_their_own(manager, tmp_path):
    source = "def f(x):\n    if x: a = 1; return a\n    return 2\n"
    manager.declare(id="p", group="api", reason="r").replace("toy.f", load(tmp_path, source)["f"])
    places = [line.place for line in describe(manager.get("p"), tmp_path).branches]
    assert places == ["helped.py:2:11", "helped.py:2:18", "helped.py:3"]


def test_a_wrapper_shows_its_own_text_and_not_what_it_wraps(manager):
    @functools.wraps(inspect.getsource)
    def wrapper(*args):
        return "mine"

    manager.declare(id="p", group="api", reason="r").replace("toy.f", wrapper)
    info = describe(manager.get("p"), HERE)
    assert 'return "mine"' in info.code
    assert info.source.startswith("test_describe.py:")


def test_without_source_text_the_place_of_the_declaration_is_given(manager):
    line = inspect.currentframe().f_lineno + 1
    patch = manager.declare(id="p", group="api", reason="r")
    patch.delete("toy.gone")
    patch.add("toy.made", eval("lambda: 1"))
    info = describe(patch, HERE)
    assert info.source == f"test_describe.py:{line}"
    assert "<lambda>" in info.code
    assert "0x" not in info.code


def test_an_opaque_function_is_its_own_source(manager):
    @manager.register_patch("api")
    def opaque():
        return None

    info = describe(manager.patches[0], HERE.parent)
    assert info.source == f"patches/test_describe.py:{opaque.__code__.co_firstlineno}"
    assert info.targets == ()
    assert info.code.endswith("def opaque():\n    return None")


def test_files_outside_of_the_root_are_named_by_import_path(manager, tmp_path):
    patch = manager.declare(id="p", group="api", reason="r")
    patch.replace("toy.f", functools.wraps)
    source = describe(patch, tmp_path).source
    assert source.startswith("functools.py:")
    patch = manager.declare(id="q", group="api", reason="r")
    patch.replace("toy.f", pytest.Session.listchain)
    assert describe(patch, tmp_path).source.startswith("_pytest/nodes.py:")


def test_a_file_that_nothing_leads_to_is_named_without_an_absolute_path(manager, tmp_path):
    path = tmp_path / "loose.py"
    path.write_text("def f():\n    return 1\n")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    manager.declare(id="p", group="api", reason="r").replace("toy.f", space["f"])
    assert describe(manager.get("p"), tmp_path / "study").source.endswith("loose.py:1")
    assert not describe(manager.get("p"), tmp_path / "study").source.startswith("/")
