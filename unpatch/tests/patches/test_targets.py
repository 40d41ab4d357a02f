"""Which attribute a target names: modules, classes, shadowed submodules, and what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from unpatch.patches import PatchManager, TargetNotFoundError, WriteRefusedError


@pytest.fixture
def manager():
    manager = PatchManager("toy")
    yield manager
    manager.revert_all()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable package whose submodule `work` is shadowed by the function that the submodule defines."""
    name = f"shadow_{tmp_path.name}"
    root = tmp_path / name
    root.mkdir()
    (root / "__init__.py").write_text("from .work import work\nclass Holder:\n    instance = None\n")
    (root / "work.py").write_text("def work():\n    return 'original'\n\ndef helper():\n    return 'helper'\n")
    (root / "lazy.py").write_text("class Inner:\n    class Deep:\n        def f(self):\n            return 'f'\n")
    (root / "broken.py").write_text("import a_module_that_is_not_there\n")
    (root / "raising.py").write_text("raise RuntimeError('no device')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        del sys.modules[module]


def _apply(manager: PatchManager, target: str) -> object:
    value = lambda *args: "patched"  # noqa: E731
    manager.declare(id="p", group="g", reason="r").replace(target, value)
    manager.apply_all()
    return value


def test_the_attribute_is_meant_and_not_the_submodule_that_it_shadows(manager, package):
    value = _apply(manager, f"{package}.work")
    assert sys.modules[package].work is value
    assert sys.modules[f"{package}.work"].work() == "original"


@pytest.mark.parametrize("target", ["{}.work.helper", "{}.work:helper"])
def test_the_parent_is_the_submodule_although_it_is_shadowed(manager, package, target):
    value = _apply(manager, target.format(package))
    assert sys.modules[f"{package}.work"].helper is value


@pytest.mark.parametrize("target", ["{}.lazy.Inner.Deep.f", "{}.lazy:Inner.Deep.f"])
def test_modules_are_imported_as_necessary(manager, package, target):
    assert package not in sys.modules
    value = _apply(manager, target.format(package))
    assert sys.modules[f"{package}.lazy"].Inner.Deep.__dict__["f"] is value


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_package_at_all.f", "no module 'no_such_package_at_all'"),
        ("no_such_package_at_all:f", "no module 'no_such_package_at_all'"),
        ("{0}.lazy.Iner.Deep.f", r"'{0}\.lazy' has no attribute 'Iner'"),
        ("{0}.lazy:Inner.Dep.f", r"'{0}\.lazy\.Inner' has no attribute 'Dep'"),
        ("{0}.lazy.Inner.Deep.g", "Deep has no such attribute"),
        ("{0}.lazzy.f", "'{0}' has no attribute 'lazzy'"),
        ("{0}.broken.f", r"importing '{0}\.broken' failed with ModuleNotFoundError.*a_module_that_is_not_there"),
        ("{0}.raising.f", r"importing '{0}\.raising' failed with RuntimeError: no device"),
    ],
)
def test_what_is_missing_is_named(manager, package, target, says):
    with pytest.raises(TargetNotFoundError, match=says.format(package)):
        _apply(manager, target.format(package))
    assert manager.applied == ()


def test_of_several_ways_to_read_a_path_the_longest_module_is_reported(manager, package):
    __import__(f"{package}.lazy")
    del sys.modules[package].lazy
    with pytest.raises(TargetNotFoundError, match=rf"'{package}\.lazy' has no attribute 'Iner'"):
        _apply(manager, f"{package}.lazy.Iner.f")


def test_instances_are_refused(manager, package):
    __import__(package)
    sys.modules[package].Holder.instance = ModuleNotFoundError("an object")
    with pytest.raises(WriteRefusedError, match="instance of ModuleNotFoundError"):
        _apply(manager, f"{package}.Holder.instance.name")


@pytest.mark.parametrize("target", ["", "plain", ".f", "a..f", "a.b.", "a:", ":f", "a..b:f", "a b.c", "a.1", "a:b c"])
def test_what_is_no_target_is_refused_where_it_is_written(target):
    manager = PatchManager("toy")
    patch = manager.declare(id="p", group="g", reason="r")
    for call in (
        lambda: patch.replace(target, len),
        lambda: patch.replace(target),
        lambda: patch.add(target, 1),
        lambda: patch.delete(target),
        lambda: manager.patch(target, id="q", group="g", reason="r"),
    ):
        with pytest.raises(ValueError, match="is no target"):
            call()
    assert patch.writes == ()


def test_lazy_attributes_of_a_module_can_be_replaced(manager, toy):
    toy.__getattr__ = lambda name: {"lazy": "computed"}[name] if name == "lazy" else _missing(name)
    value = _apply(manager, f"{toy.__name__}.lazy")
    assert toy.lazy is value
    manager.revert_all()
    assert "lazy" not in toy.__dict__
    assert toy.lazy == "computed"


def _missing(name: str) -> object:
    raise AttributeError(name)


def test_immutable_types_refuse_with_the_reason(manager):
    with pytest.raises(WriteRefusedError, match=r"builtins\.int\.bit_length cannot be written.*immutable"):
        _apply(manager, "builtins.int.bit_length")


@pytest.mark.parametrize("name", ["Target.__name__", "Target.__qualname__", "Target.__bases__", "__class__"])
def test_what_could_be_written_but_not_undone_is_refused_untouched(manager, toy, name):
    class Base:
        pass

    toy.Target = type("Target", (Base,), {})
    with pytest.raises(WriteRefusedError, match="the interpreter keeps it"):
        _apply(manager, f"{toy.__name__}.{name}")
    assert (toy.Target.__name__, toy.Target.__bases__, type(toy)) == ("Target", (Base,), ModuleType)
    assert manager.applied == ()


def test_a_property_of_the_modules_type_is_not_called(manager, monkeypatch):
    taken = []

    class Flags(ModuleType):
        enabled = property(lambda self: True, lambda self, value: taken.append(value))

    monkeypatch.setitem(sys.modules, "toy_flags", Flags("toy_flags"))
    with pytest.raises(WriteRefusedError, match=r"computed by a property of .*Flags"):
        _apply(manager, "toy_flags.enabled")
    assert taken == []


def test_a_type_that_diverts_what_is_set_is_found_out(manager, monkeypatch):
    class Diverting(ModuleType):
        def __setattr__(self, name, value):
            pass

    module = Diverting("toy_diverting")
    module.__dict__["f"] = len
    monkeypatch.setitem(sys.modules, "toy_diverting", module)
    with pytest.raises(WriteRefusedError, match="Diverting intercepts it"):
        _apply(manager, "toy_diverting.f")
    assert manager.applied == ()
