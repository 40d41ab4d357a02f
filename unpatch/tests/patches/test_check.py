"""What `check` finds out: drift, others' patches, half pairs, what is due; and that a strict apply refuses it."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import pytest

from unpatch.patches import DriftedError, HalfOfPairError, PatchManager, State, original
from unpatch.patches.check import check

LIBRARY = """
from json import dumps
import contextlib
import functools
import typing_extensions
from typing_extensions import deprecated
from {decorators} import noted

def save(value, path, *, fast=False):
    return ("save", value)

def load(path):
    return ("load", path)

@functools.lru_cache
def cached():
    return 1

@contextlib.contextmanager
def managed():
    yield

@typing_extensions.deprecated("use save")
def old(value):
    return value

@noted("twice", 1)
@deprecated("use save")
def both(value):
    return value

@deprecated("a generator")
@contextlib.contextmanager
def old_managed():
    yield

class Thing:
    def method(self):
        return "method"

    @deprecated("use method")
    def old(self):
        return "old"

    @staticmethod
    @noted("static", 2)
    def still():
        return "still"

    @property
    @noted("property", 3)
    def size(self):
        return 3
"""
DECORATORS = """
import functools
class noted:
    def __init__(self, *said):
        self.said = said
    def __call__(self, function):
        @functools.wraps(function)
        def wrapper(*args, **options):
            return function(*args, **options)
        return wrapper
"""
FOREIGN = """
import functools
def wrap(function):
    @functools.wraps(function)
    def stranger(*args, **options):
        return function(*args, **options)
    return stranger
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two importable modules of one's own: the library, and somebody who patches it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names = [f"{kind}_{tmp_path.name}" for kind in ("checked", "foreign", "decorators")]
    library = LIBRARY.replace("{decorators}", names[2])
    for name, source in zip(names, (library, FOREIGN, DECORATORS), strict=True):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(source)
    importlib.invalidate_caches()
    yield importlib.import_module(names[0])
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def stranger(library):
    return importlib.import_module(library.__name__.replace("checked", "foreign"))


@pytest.fixture
def manager():
    manager = PatchManager("toy")
    yield manager
    manager.revert_all()


def _save(value, path, *, fast=False):
    return ("patched", value)


def _declare(manager, target, value=_save, id="p", **details):
    patch = manager.declare(id=id, group="g", reason="r", **{"remove_when": "python>=99", **details})
    patch.replace(target, value)
    return patch


def _kinds(manager, id="p"):
    (checked,) = [one for one in check(manager) if one.id == id]
    return {finding.kind: finding.message for finding in checked.findings}


def _present(manager, target):
    return {target: now for one in check(manager) for target, now in one.fingerprints.items()}[target]


@pytest.fixture(params=[False, True], ids=["not applied", "applied"])
def applying(request, manager):
    """Everything holds alike before and after a patch is applied."""
    return manager.apply_all if request.param else (lambda: None)


def test_a_patch_whose_original_is_what_it_was_has_no_findings(library, manager):
    target = f"{library.__name__}.save"
    _declare(manager, target)
    now = _present(manager, target)
    clean = PatchManager("clean")
    _declare(clean, target, fingerprints={target: now})
    assert [(one.findings, one.due) for one in check(clean)] == [((), False)]
    clean.apply_all()
    assert [(one.findings, one.due) for one in check(clean)] == [((), False)]
    clean.revert_all()


def test_without_a_fingerprint_the_present_one_is_told(library, manager, applying):
    target = f"{library.__name__}.save"
    _declare(manager, target)
    applying()
    assert _kinds(manager) == {
        "undeclared": f"no fingerprint is declared; the original's is {_present(manager, target)}"
    }


def test_a_changed_original_is_drift_and_several_versions_may_be_known(library, manager, applying):
    target = f"{library.__name__}.save"
    _declare(manager, target, fingerprints={target: "source:000000000000"})
    applying()
    now = _present(manager, target)
    assert _kinds(manager) == {
        "changed": f"the original has changed since the patch was written: source:000000000000 is now {now}"
    }
    several = PatchManager("several")
    _declare(several, target, fingerprints={target: ["source:000000000000", now]})
    assert not check(several)[0].failing


@pytest.mark.parametrize("target", ["{}.gone", "{}.Thing.gone", "{}.Nothing.method", "no_such_module_at_all.f"])
def test_a_target_that_is_gone(library, manager, target):
    _declare(manager, target.format(library.__name__))
    assert set(_kinds(manager)) == {"gone"}


def test_an_addition_that_upstream_has_made_itself(library, manager):
    manager.declare(id="p", group="g", reason="r", remove_when="python>=99").add(f"{library.__name__}.save", 1)
    assert set(_kinds(manager)) == {"exists"}


def test_what_could_not_be_undone_or_written(library, manager):
    library.Table = type("Table", (dict,), {})
    _declare(manager, f"{library.__name__}.Table.__setitem__")
    _declare(manager, f"{library.__name__}.__class__", id="q")
    assert "two C slots" in _kinds(manager)["refused"]
    assert "the interpreter keeps it" in _kinds(manager, "q")["refused"]


def test_what_another_write_of_the_manager_adds_is_not_missed(library, manager):
    patch = manager.declare(id="p", group="g", reason="r", remove_when="python>=99")
    patch.add(f"{library.__name__}.Extra", type("Extra", (), {}))
    patch.add(f"{library.__name__}:Extra.flag", True)
    _declare(manager, f"{library.__name__}.Extra.flag", False, id="q")
    assert all(one.findings == () for one in check(manager))
    manager.apply_all()
    assert not any(one.failing for one in check(manager))


# ------------------------------------------------------------------------------------------ somebody else
def test_an_original_that_somebody_else_has_patched_before(library, stranger, manager, applying):
    library.save = stranger.wrap(library.save)
    _declare(manager, f"{library.__name__}.save")
    applying()
    found = _kinds(manager)
    assert found["foreign"].startswith("somebody else has patched it before: it is wrap.<locals>.stranger (")
    assert f"{stranger.__file__}:4" in found["foreign"]


def test_a_method_that_somebody_else_has_patched_before(library, stranger, manager, applying):
    library.Thing.method = stranger.wrap(library.Thing.method)
    _declare(manager, f"{library.__name__}.Thing.method", lambda self: 0)
    applying()
    assert "foreign" in _kinds(manager)


def test_what_the_author_has_seen_is_not_reported(library, stranger, manager):
    target = f"{library.__name__}.save"
    library.save = stranger.wrap(library.save)
    _declare(manager, target)
    known = PatchManager("known")
    _declare(known, target, fingerprints={target: _present(manager, target)})
    assert check(known)[0].findings == ()


@pytest.mark.parametrize("name", ["dumps", "cached", "managed"])
def test_an_import_and_a_decorator_of_the_standard_library_are_nobodys_patch(library, manager, name):
    _declare(manager, f"{library.__name__}.{name}", lambda *args, **options: 0)
    assert set(_kinds(manager)) == {"undeclared"}


_DECORATED = ("old", "both", "old_managed", "Thing.old", "Thing.still", "Thing.size")


@pytest.mark.parametrize("name", _DECORATED)
def test_a_decorator_that_the_definition_names_is_nobodys_patch(library, manager, name):
    _declare(manager, f"{library.__name__}.{name}", lambda *args, **options: 0)
    assert set(_kinds(manager)) - {"signature"} == {"undeclared"}


@pytest.mark.parametrize("name", _DECORATED[:4])
def test_a_stranger_around_what_is_decorated_is_found(library, stranger, manager, name):
    parent, _, last = name.rpartition(".")
    holder = getattr(library, parent) if parent else library
    setattr(holder, last, stranger.wrap(vars(holder)[last]))
    _declare(manager, f"{library.__name__}.{name}", lambda *args, **options: 0)
    assert "wrap.<locals>.stranger" in _kinds(manager)["foreign"]


@pytest.mark.parametrize("name", ["save", "both", "old"])
def test_the_same_decorator_put_on_by_somebody_else_is_found(library, manager, name):
    """One decorator in the source stands for one wrapper."""
    setattr(library, name, library.deprecated("by somebody")(getattr(library, name)))
    _declare(manager, f"{library.__name__}.{name}", lambda *args, **options: 0)
    assert "foreign" in _kinds(manager)


def test_what_a_wrapper_of_the_standard_library_wraps_is_somebodys(library, stranger, manager):
    library.managed = contextlib.contextmanager(stranger.wrap(library.managed.__wrapped__))
    _declare(manager, f"{library.__name__}.managed", lambda: 0)
    assert "foreign" in _kinds(manager)


def test_a_write_of_somebody_else_on_top(library, stranger, manager):
    _declare(manager, f"{library.__name__}.save")
    manager.apply_all()
    ours = library.save
    library.save = stranger.wrap(ours)
    assert "somebody else has patched it too, with wrap.<locals>.stranger" in _kinds(manager)["foreign"]
    later = PatchManager("later")
    _declare(later, f"{library.__name__}.save")
    found = _kinds(later)
    assert ("foreign" in found, found["note"]) == (True, "also patched by toy/p")
    library.save = ours


def test_another_manager_on_the_same_target_is_told_and_does_not_fail(library, manager):
    other = PatchManager("other")
    for one in (manager, other):
        _declare(one, f"{library.__name__}.save")
        one.apply_all()
    assert _kinds(manager)["note"] == "also patched by other/p"
    assert _kinds(other)["note"] == "also patched by toy/p"
    assert not any(one.failing for each in (manager, other) for one in check(each))
    other.revert_all()


# ------------------------------------------------------------------------------------------ signatures, pairs, due
def test_a_replacement_that_takes_less(library, manager, applying):
    _declare(manager, f"{library.__name__}.save", lambda value, path: 0)
    applying()
    assert "unexpected keyword argument 'fast'" in _kinds(manager)["signature"]


def _pair(manager, library):
    name = library.__name__
    manager.pair(f"{name}.save", f"{name}.load", reason="what one writes the other must read")
    return f"{name}.save", f"{name}.load"


def test_half_of_a_pair_is_refused_and_reported(library, manager):
    save, load = _pair(manager, library)
    _declare(manager, save)
    with pytest.raises(
        HalfOfPairError, match=rf"'toy/p' writes {save} but not {load}, and no patch writes that.*other must read"
    ):
        manager.apply_all()
    assert library.save(1, 2) == ("save", 1)
    assert "no patch writes that" in _kinds(manager)["pair"]


def test_a_pair_is_one_in_either_spelling(library, manager):
    save, _ = _pair(manager, library)
    _declare(manager, ":".join(save.rsplit(".", 1)))
    with pytest.raises(HalfOfPairError):
        manager.apply_all()
    assert "pair" in _kinds(manager)


def test_a_pair_that_is_disabled_in_half_is_refused_before_anything_is_written(library, manager):
    save, load = _pair(manager, library)
    _declare(manager, save)
    _declare(manager, load, lambda path: ("patched", path), id="q")
    manager.disable("q")
    with pytest.raises(HalfOfPairError, match="'q' is disabled"):
        manager.apply_all()
    assert manager.applied == ()
    manager.disable("p")
    assert manager.apply_all() == ()


def test_a_half_for_other_versions_is_no_half(library, manager):
    save, load = _pair(manager, library)
    _declare(manager, save)
    _declare(manager, load, lambda path: 0, id="q", versions="python<3")
    with pytest.raises(HalfOfPairError, match="'q' is for another version"):
        manager.apply_all()


def test_a_whole_pair_is_applied_in_one_patch_or_in_two(library, manager):
    save, load = _pair(manager, library)
    _declare(manager, save)
    _declare(manager, load, lambda path: ("patched", path), id="q")
    assert len(manager.apply_all()) == 2
    assert "pair" not in _kinds(manager)
    manager.revert("q")
    assert "not patched at the moment" in _kinds(manager)["pair"]
    one = PatchManager("one")
    _pair(one, library)
    both = _declare(one, save)
    both.replace(load, lambda path: 0)
    manager.revert_all()
    assert one.apply_all() == (both,)
    one.revert_all()


@pytest.mark.parametrize(("one", "reason"), [("nothing", "r"), ("a.b", " ")])
def test_a_pair_is_checked_where_it_is_declared(manager, one, reason):
    with pytest.raises(ValueError, match=r"is no target|say why"):
        manager.pair(one, "a.c", reason)


def test_what_is_due_fails_and_what_nobody_can_check_is_told(library, manager):
    for id, condition in (("p", "python>=3"), ("q", "never"), ("r", lambda: True), ("s", "")):
        _declare(manager, f"{library.__name__}.save", id=id, remove_when=condition)
    assert "it goes with python>=3, and python 3." in _kinds(manager, "p")["due"]
    assert "its removal condition is prose" in _kinds(manager, "q")["note"]
    assert "due" in _kinds(manager, "r")
    assert "it has no removal condition" in _kinds(manager, "s")["note"]
    assert [one.failing for one in check(manager)] == [True, False, True, False]


def test_a_patch_for_other_versions_is_left_in_peace(manager):
    _declare(manager, "no_such_module_at_all.f", versions="python<3", remove_when="python>=3")
    (checked,) = check(manager)
    assert (checked.state, checked.failing) == (State.OTHER_VERSION, False)
    assert "it is for python<3" in checked.findings[0].message


@pytest.mark.parametrize(
    "details",
    [
        {"versions": "recent ones"},
        {"remove_when": "python>="},
        {"remove_when": lambda: 1 / 0},
        {"fingerprints": {"other.target": "source:000000000000"}},
    ],
)
def test_declarations_that_cannot_be_read_are_found(library, manager, details):
    _declare(manager, f"{library.__name__}.save", **details)
    assert "invalid" in _kinds(manager)


def test_an_opaque_function_is_told(manager):
    manager.register_patch("g")(lambda: None)
    (checked,) = check(manager)
    assert [finding.kind for finding in checked.findings] == ["note", "note"]
    assert not checked.failing


# ------------------------------------------------------------------------------------------ strict
@pytest.mark.parametrize("call", ["apply_all", "apply_group", "apply"])
def test_a_strict_apply_refuses_what_has_drifted(library, manager, call):
    target = f"{library.__name__}.save"
    _declare(manager, target, fingerprints={target: "source:000000000000"})
    arguments = {"apply_all": (), "apply_group": ("g",), "apply": ("p",)}[call]
    with pytest.raises(DriftedError, match=r"'toy/p' is not applied: .*the original has changed"):
        getattr(manager, call)(*arguments, strict=True)
    assert library.save(1, 2) == ("save", 1)
    getattr(manager, call)(*arguments)
    assert library.save(1, 2) == ("patched", 1)
    assert original(_save)(1, 2) == ("save", 1)


def test_a_strict_apply_takes_what_fits(library, manager):
    target = f"{library.__name__}.save"
    _declare(manager, target)
    fitting = PatchManager("fitting")
    _declare(fitting, target, fingerprints={target: _present(manager, target)})
    assert len(fitting.apply_all(strict=True)) == 1
    fitting.revert_all()
