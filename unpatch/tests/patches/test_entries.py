"""Entries of mappings as targets: registries that a library keeps."""

from __future__ import annotations

import os
import types
import weakref
from collections import defaultdict

import pytest

from unpatch.patches import (
    ForeignWriteError,
    PatchManager,
    TargetExistsError,
    TargetNotFoundError,
    WriteRefusedError,
    original,
)


@pytest.fixture
def manager():
    return PatchManager("toy")


@pytest.fixture
def table(toy):
    toy.TABLE = {
        "plain": len,
        3: "three",
        -1: "last",
        ("a", 1): "pair",
        toy.Thing: "thing",
        (toy.Thing, int): "two",
        None: 0,
    }
    toy.Thing.registry = {"outer": {"inner": 1}}
    return toy.TABLE


def _replace(manager, target, value=abs, id="p"):
    manager.declare(id=id, group="g", reason="r").replace(target, value)
    manager.apply(id)


@pytest.mark.parametrize(
    ("brackets", "key"),
    [
        ("['plain']", "plain"),
        ('["plain"]', "plain"),
        ("[3]", 3),
        ("[-1]", -1),
        ("[('a', 1)]", ("a", 1)),
        ("['a', 1]", ("a", 1)),
        ("[None]", None),
    ],
)
def test_a_key_is_written_as_in_python(manager, toy, table, brackets, key):
    before = dict(table)
    _replace(manager, f"{toy.__name__}.TABLE{brackets}")
    assert table == {**before, key: abs}
    manager.revert_all()
    assert table == before


def test_a_key_may_be_named_by_its_path(manager, toy, table):
    name = toy.__name__
    _replace(manager, f"{name}.TABLE[{name}.Thing]")
    _replace(manager, f"{name}:TABLE[{name}.Thing, builtins.int]", id="q")
    assert (table[toy.Thing], table[toy.Thing, int]) == (abs, abs)


def test_a_mapping_in_a_mapping_of_a_class(manager, toy, table):
    _replace(manager, f"{toy.__name__}.Thing.registry['outer']['inner']", 2)
    assert toy.Thing.registry == {"outer": {"inner": 2}}


def test_adding_and_deleting_entries(manager, toy, table):
    before = dict(table)
    patch = manager.declare(id="p", group="g", reason="r")
    patch.add(f"{toy.__name__}.TABLE['new']", 1)
    patch.delete(f"{toy.__name__}.TABLE['plain']")
    manager.apply_all()
    assert table == {key: value for key, value in before.items() if key != "plain"} | {"new": 1}
    manager.revert_all()
    assert table == before


def test_entries_stack_in_any_order_and_know_their_original(manager, toy, table):
    def lower(value):
        return ("lower", original(lower)(value))

    def upper(value):
        return ("upper", original(upper)(value))

    _replace(manager, f"{toy.__name__}.TABLE['plain']", lower, "lower")
    _replace(manager, f"{toy.__name__}:TABLE['plain']", upper, "upper")
    assert table["plain"]("ab") == ("upper", ("lower", 2))
    manager.revert("lower")
    assert table["plain"]("ab") == ("upper", 2)
    manager.revert("upper")
    assert table["plain"] is len


def test_somebody_elses_entry_is_not_destroyed(manager, toy, table):
    _replace(manager, f"{toy.__name__}.TABLE['plain']")
    table["plain"] = print
    with pytest.raises(ForeignWriteError, match=r"TABLE\['plain'\] has since been written by somebody else"):
        manager.revert("p")
    assert table["plain"] is print


def test_other_mappings_that_can_be_written(manager, toy):
    class Key:
        pass

    toy.key = Key()
    toy.WEAK = weakref.WeakKeyDictionary({toy.key: 1})
    toy.DEFAULT = defaultdict(list)
    _replace(manager, f"{toy.__name__}.WEAK[{toy.__name__}.key]", 2)
    assert toy.WEAK[toy.key] == 2
    with pytest.raises(TargetNotFoundError, match=r"cannot replace 'x': .*DEFAULT has no such entry"):
        _replace(manager, f"{toy.__name__}.DEFAULT['x']", id="q")
    assert not toy.DEFAULT, "looking made no entry"


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        ("{}.TABLE['absent']", TargetNotFoundError, r"TABLE has no such entry"),
        ("{}.NOTHING['x']", TargetNotFoundError, "has no attribute 'NOTHING'"),
        ("{}.TABLE['absent']['x']", TargetNotFoundError, "no entry 'absent' on the way"),
        ("{0}.TABLE[{0}.Nothing]", TargetNotFoundError, "has no attribute 'Nothing'"),
        ("{}.FROZEN['x']", WriteRefusedError, "mappingproxy"),
        ("{}.LIST[0]", WriteRefusedError, "an object of type list"),
        ("os.environ['PATH']", WriteRefusedError, "another object at each look"),
    ],
)
def test_what_is_missing_or_cannot_be_written_is_said(manager, toy, table, target, error, says):
    toy.FROZEN, toy.LIST = types.MappingProxyType({"x": 1}), [1]
    path = os.environ["PATH"]
    with pytest.raises(error, match=says):
        _replace(manager, target.format(toy.__name__))
    assert os.environ["PATH"] == path


def test_an_added_entry_must_not_exist(manager, toy, table):
    manager.declare(id="p", group="g", reason="r").add(f"{toy.__name__}.TABLE['plain']", 1)
    with pytest.raises(TargetExistsError, match=r"cannot add 'plain': .*TABLE has it already"):
        manager.apply_all()


@pytest.mark.parametrize(
    "brackets", ["[", "[]", "['a'", "['a'].b", "[name]", "[f()]", "[1:2]", "[a + b]", "['a']]", "[-'a']"]
)
def test_what_is_no_key_is_refused_where_it_is_written(manager, brackets):
    with pytest.raises(ValueError, match="is no target"):
        manager.declare(id="p", group="g", reason="r").replace(f"toy.TABLE{brackets}", 1)
