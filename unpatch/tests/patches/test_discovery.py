"""Modules that declare patches: discovered by name in a package, or registered and imported at the next apply."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from unpatch.patches import PatchManager, PatchModuleError


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"discovered_{tmp_path.name}"
    root = tmp_path / name
    root.mkdir()
    (root / "__init__.py").write_text("imported = []\n")
    for module in ("b_patches", "a_patches", "patches", "helpers", "a_patches_old"):
        (root / f"{module}.py").write_text(f"from {name} import imported\nimported.append('{module}')\n")
    (root / "deep_patches").mkdir()
    (root / "deep_patches" / "__init__.py").write_text(f"from {name} import imported\nimported.append('deep')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def _imported(package: str) -> list[str]:
    return sys.modules[package].imported


def test_modules_named_patches_are_imported_sorted_and_once(package):
    manager = PatchManager("toy")
    found = manager.discover(package)
    assert found == tuple(f"{package}.{name}" for name in ("a_patches", "b_patches", "deep_patches"))
    assert manager.discover(package) == found
    assert _imported(package) == ["a_patches", "b_patches", "deep"]


def test_a_package_in_several_places_is_sorted_as_a_whole(package, tmp_path):
    __import__(package)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a_first_patches.py").write_text("")
    sys.modules[package].__path__.append(str(elsewhere))
    found = PatchManager("toy").discover(package)
    assert [name.rpartition(".")[2] for name in found] == [
        "a_first_patches",
        "a_patches",
        "b_patches",
        "deep_patches",
    ]


def test_a_registered_module_is_imported_at_the_next_apply_and_once(package):
    manager = PatchManager("toy")
    manager.register_patch_module(f"{package}.b_patches")
    manager.register_patch_module(f"{package}.helpers")
    manager.register_patch_module(f"{package}.b_patches")
    assert package not in sys.modules
    manager.apply_all()
    del sys.modules[f"{package}.b_patches"]
    manager.apply_all()
    assert _imported(package) == ["b_patches", "helpers"]


@pytest.mark.parametrize("apply", [PatchManager.apply_all, lambda m: m.apply_group("api"), lambda m: m.apply("p")])
def test_every_way_of_applying_sees_what_registered_modules_declare(package, toy, monkeypatch, apply):
    manager = PatchManager("toy")
    __import__(package)
    sys.modules[package].manager = manager
    root = Path(sys.modules[package].__file__).parent
    (root / "more.py").write_text(
        f"from {package} import manager\n"
        f"manager.declare(id='p', group='api', reason='r').add('{toy.__name__}.more', 1)\n"
        "manager.apply_all()  # while it is itself being imported\n"
    )
    manager.register_patch_module(f"{package}.more")
    apply(manager)
    assert toy.more == 1


@pytest.mark.parametrize("body", ["import a_module_that_is_not_there", "raise OSError('disk')"])
def test_a_module_that_cannot_be_imported_is_named_and_tried_again(package, body):
    __import__(package)
    path = Path(sys.modules[package].__file__).with_name("sick_patches.py")
    path.write_text(body)
    manager = PatchManager("toy")
    manager.register_patch_module(f"{package}.sick_patches")
    for call in (manager.apply_all, lambda: manager.discover(package), lambda: manager.apply_group("g")):
        with pytest.raises(PatchModuleError, match=rf"'{package}\.sick_patches' cannot be imported") as caught:
            call()
        assert isinstance(caught.value.__cause__, ImportError | OSError)


def test_only_packages_can_be_discovered(package):
    manager = PatchManager("toy")
    with pytest.raises(PatchModuleError, match="is a module, not a package"):
        manager.discover(f"{package}.helpers")
    with pytest.raises(PatchModuleError, match="cannot be imported"):
        manager.discover("no_such_package_at_all")


def test_an_import_that_applies_patches_does_not_wait_for_one_that_imports(package, toy):
    """Two threads: one imports a module that applies patches, the other applies a patch to that very module."""
    manager = PatchManager("toy")
    manager.declare(id="on-target", group="a", reason="r").add(f"{package}.target.flag", 1)
    manager.declare(id="other", group="b", reason="r").add(f"{toy.__name__}.flag", 2)
    __import__(package)
    sys.modules[package].manager = manager
    sys.modules[package].started = started = threading.Event()
    sys.modules[package].go = go = threading.Event()
    root = Path(sys.modules[package].__file__).parent
    (root / "target.py").write_text(
        f"from {package} import manager, started, go\nstarted.set()\ngo.wait(1)\nmanager.apply_group('b')\n"
    )
    importing = threading.Thread(target=__import__, args=(f"{package}.target",), daemon=True)
    applying = threading.Thread(target=manager.apply_group, args=("a",), daemon=True)
    importing.start()
    started.wait(30)
    applying.start()
    # `go` is never set: the pause only gives the other thread the time to arrive at the import.
    assert not go.is_set()
    importing.join(30)
    applying.join(30)
    assert not importing.is_alive()
    assert not applying.is_alive()
    assert sys.modules[f"{package}.target"].flag == 1
    assert toy.flag == 2
