"""What is disabled, by name or group, in the program or from the environment, is declared but never applied."""

from __future__ import annotations

import pytest

from unpatch.patches import PatchManager


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.delenv("UNPATCH_DISABLE", raising=False)


@pytest.fixture
def manager(toy):
    manager = PatchManager("toy")
    for id, group in (("one", "api"), ("two", "api"), ("three", "monkey")):
        manager.declare(id=id, group=group, reason="r").add(f"{toy.__name__}.{id}", id)
    return manager


def _ids(patches):
    return [patch.id for patch in patches]


@pytest.mark.parametrize(
    ("value", "applied"),
    [
        ("", ["one", "two", "three"]),
        ("one", ["two", "three"]),
        (" one , three ,", ["two"]),
        ("api", ["three"]),
        ("toy/one", ["two", "three"]),
        ("toy/api", ["three"]),
        ("other/one,other/api", ["one", "two", "three"]),
        ("on", ["one", "two", "three"]),
    ],
)
def test_the_environment_is_read_when_patches_are_applied(manager, toy, monkeypatch, value, applied):
    monkeypatch.setenv("UNPATCH_DISABLE", value)
    assert _ids(manager.apply_all()) == applied
    assert [id for id in ("one", "two", "three") if id in vars(toy)] == applied
    assert _ids(manager.patches) == ["one", "two", "three"]
    assert _ids(manager.disabled) == [id for id in ("one", "two", "three") if id not in applied]


def test_every_way_of_applying_skips_what_is_disabled(manager, monkeypatch):
    monkeypatch.setenv("UNPATCH_DISABLE", "one")
    assert manager.apply("one") is False
    assert _ids(manager.apply_group("api")) == ["two"]
    monkeypatch.delenv("UNPATCH_DISABLE")
    assert _ids(manager.apply_all()) == ["one", "three"]


def test_disable_takes_ids_and_groups_even_before_they_are_declared(manager, toy):
    manager.disable("toy/two", "later", "other/one")
    manager.declare(id="four", group="later", reason="r").add(f"{toy.__name__}.four", 4)
    assert _ids(manager.apply_all()) == ["one", "three"]
    assert _ids(manager.disabled) == ["two", "four"]


def test_what_is_applied_stays_until_it_is_reverted(manager, toy):
    manager.apply_all()
    manager.disable("one")
    assert toy.one == "one"
    manager.revert("one")
    assert manager.apply("one") is False
    assert "one" not in vars(toy)


def test_a_disabled_target_is_not_even_imported(monkeypatch):
    manager = PatchManager("toy")
    manager.declare(id="p", group="g", reason="r").replace("no_such_package_at_all.f", len)
    manager.disable("p")
    assert manager.apply_all() == ()


def test_opaque_functions_are_disabled_by_their_qualified_name(monkeypatch):
    manager, calls = PatchManager("toy"), []

    @manager.register_patch("g")
    def opaque():
        calls.append("called")

    monkeypatch.setenv("UNPATCH_DISABLE", f"{opaque.__module__}.{opaque.__qualname__}")
    manager.apply_all()
    assert calls == []
