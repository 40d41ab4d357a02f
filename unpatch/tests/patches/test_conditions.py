"""Versions and removal conditions: PEP 440, probes, prose, and what is said when they cannot be read."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from unpatch.patches import InvalidConditionError, PatchManager, State
from unpatch.patches.conditions import misfit, removal, told


@pytest.fixture(autouse=True)
def library(monkeypatch):
    module = ModuleType("toy_versioned")
    module.__version__ = "2.13.0+cpu"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("versions", "fits"),
    [
        ("", True),
        ("toy-versioned>=2.13", True),
        ("toy-versioned >=2.1, <2.14", True),
        ("toy_versioned==2.13.*", True),
        ("toy-versioned~=2.12", True),
        ("toy-versioned<2.13", False),
        ("toy-versioned!=2.13.0", False),
        ("python>=3.11", True),
        ("python<3", False),
        ("no-such-distribution-at-all>=1", False),
        ("hypothesis>=6", True),
    ],
)
def test_versions_are_compared_as_pep_440_says(versions, fits):
    assert (misfit(versions) == "") is fits


def test_why_a_version_does_not_fit_is_said():
    assert misfit("toy-versioned<2") == "it is for toy-versioned<2, and toy-versioned 2.13.0+cpu is installed"
    assert misfit("nothing-like-it<2") == "it is for nothing-like-it<2, and nothing-like-it is not installed"


@given(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "~="]))
def test_any_specifier_is_judged_as_packaging_judges_it(major, minor, operator):
    specifier = f"{operator}{major}.{minor}"
    running = ".".join(map(str, sys.version_info[:3]))
    assert (misfit(f"python{specifier}") == "") is SpecifierSet(specifier).contains(running)


def test_a_pre_release_counts(library):
    library.__version__ = "2.14.0a0+git1234567"
    assert misfit("toy-versioned>2.13") == ""
    assert misfit("toy-versioned>=2.14") != ""


@pytest.mark.parametrize(
    "versions", ["toy-versioned", "toy-versioned>=", "toy-versioned>=x", "recent ones", ">=2", "a>1 and b<2"]
)
def test_versions_that_cannot_be_read_are_refused_when_they_are_needed(toy, versions):
    manager = PatchManager("toy")
    patch = manager.declare(id="p", group="g", reason="r", versions=versions)
    patch.add(f"{toy.__name__}.flag", 1)
    with pytest.raises(InvalidConditionError, match=r"patch 'toy/p' cannot be applied: .*'torch>=2\.1,<2\.14'"):
        manager.apply_all()
    assert "flag" not in vars(toy)


def test_a_patch_for_other_versions_is_not_applied_and_says_so(toy, library):
    manager = PatchManager("toy")
    old = manager.declare(id="old", group="g", reason="r", versions="toy-versioned<2.13")
    new = manager.declare(id="new", group="g", reason="r", versions="toy-versioned>=2.13")
    for patch in (old, new):
        patch.add(f"{toy.__name__}.flag", patch.id)
    assert manager.state(old) is State.OTHER_VERSION
    assert manager.apply_all() == (new,)
    assert manager.apply("old") is False
    assert toy.flag == "new"
    assert [manager.state(patch) for patch in (old, new)] == [State.OTHER_VERSION, State.APPLIED]
    manager.revert_all()
    library.__version__ = "2.12"
    assert manager.apply_all() == (old,)


@pytest.mark.parametrize(
    ("condition", "due"),
    [
        ("toy-versioned>=2.13", True),
        ("toy-versioned>=2.14", False),
        ("not-installed-at-all>=1", False),
        ("", None),
        ("never", None),
        ("torch does it itself", None),
        (lambda: True, True),
        (lambda: False, False),
    ],
)
def test_when_a_patch_is_due(condition, due):
    assert removal(condition).due is due


def _probe():
    """The library does it itself.

    More of it.
    """
    raise OSError("no device")


def test_a_probe_is_told_by_its_first_line_and_its_failure_by_its_error():
    assert told(_probe) == "The library does it itself."
    assert told("toy>=1") == "toy>=1"
    with pytest.raises(
        InvalidConditionError, match=r"the probe .*The library does it itself.* raised OSError: no device"
    ):
        removal(_probe)
