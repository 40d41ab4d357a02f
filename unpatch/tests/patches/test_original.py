"""`original(replacement)`: what lay beneath, callable the way the target is called, and never stale."""

from __future__ import annotations

import pytest

from unpatch.patches import NoOriginalError, NotAppliedError, PatchManager, original


@pytest.fixture
def manager():
    return PatchManager("toy")


def _extend(manager, id, target, wrap=None):
    """Declare a patch whose function hands on to its original and marks the result with its id."""

    def function(*args):
        return (id, original(function)(*args))

    manager.declare(id=id, group="g", reason="r").replace(target, wrap(function) if wrap else function)
    return function


def test_functions_and_methods(manager, toy):
    greet, method = toy.greet, toy.Thing.__dict__["method"]
    function = _extend(manager, "f", f"{toy.__name__}.greet")
    other = _extend(manager, "m", f"{toy.__name__}.Thing.method")
    manager.apply_all()
    assert original(function) is greet
    assert original(other) is method
    assert toy.greet() == ("f", "hello")
    assert toy.Thing().method() == ("m", "method")


def test_static_and_class_methods_are_asked_for_by_function_or_by_descriptor(manager, toy):
    static = _extend(manager, "s", f"{toy.__name__}.Thing.static", staticmethod)
    make = _extend(manager, "c", f"{toy.__name__}.Thing.make", classmethod)
    manager.apply_all()
    assert toy.Thing.static(1) == ("s", ("static", 1))
    assert toy.Thing().static(1) == ("s", ("static", 1))
    assert toy.Thing.make() == ("c", ("make", "Thing"))
    for function, id in ((static, "s"), (make, "c")):
        assert original(manager.get(id).writes[0].replacement) is original(function)
    manager.revert_all()
    assert toy.Thing.static(1) == ("static", 1)


def test_a_property_is_the_property(manager, toy):
    size = toy.Thing.__dict__["size"]
    bigger = manager.declare(id="p", group="g", reason="r").replace(
        f"{toy.__name__}.Thing.size", property(lambda self: original(bigger).fget(self) + 1)
    )
    manager.apply_all()
    assert original(bigger) is size
    assert toy.Thing().size == 4


def test_it_is_known_while_applied_and_says_so_otherwise(manager, toy):
    function = _extend(manager, "f", f"{toy.__name__}.greet")
    for prepare in (lambda: None, lambda: (manager.apply_all(), manager.revert_all())):
        prepare()
        with pytest.raises(NotAppliedError, match="function is not applied"):
            original(function)
    with pytest.raises(NotAppliedError):
        original([])


def test_a_write_that_failed_leaves_no_original(manager):
    function = _extend(manager, "f", "builtins.int.bit_length")
    with pytest.raises(Exception, match="immutable"):
        manager.apply_all()
    with pytest.raises(NotAppliedError):
        original(function)


def test_an_added_value_has_none(manager, toy):
    def value():
        return 1

    manager.declare(id="p", group="g", reason="r").add(f"{toy.__name__}.extra", value)
    manager.apply_all()
    with pytest.raises(NoOriginalError, match="where nothing was before"):
        original(value)


def test_one_function_for_several_targets_has_no_single_original_until_one_is_left(manager, toy):
    def function(*args):
        return "same"

    manager.patch(f"{toy.__name__}.greet", id="one", group="g", reason="r")(function)
    manager.patch(f"{toy.__name__}.Thing.method", id="two", group="g", reason="r")(function)
    greet = toy.greet
    manager.apply_all()
    with pytest.raises(NoOriginalError, match=rf"several targets .*{toy.__name__}\.greet.*Thing\.method"):
        original(function)
    manager.revert("two")
    assert original(function) is greet


def test_stacked_replacements_hand_on_to_each_other_whichever_goes_first(manager, toy):
    lower = _extend(manager, "lower", f"{toy.__name__}.greet")
    upper = _extend(manager, "upper", f"{toy.__name__}.greet")
    greet = toy.greet
    manager.apply_all()
    assert toy.greet() == ("upper", ("lower", "hello"))
    assert original(upper) is lower
    manager.revert("lower")
    assert original(upper) is greet
    assert toy.greet() == ("upper", "hello")
    manager.apply("lower")
    assert toy.greet() == ("lower", ("upper", "hello"))


def test_an_override_follows_the_base_class_that_is_patched_too(manager, toy):
    derived = _extend(manager, "derived", f"{toy.__name__}.Thing.inherited")
    base = _extend(manager, "base", f"{toy.__name__}.Base.inherited")
    genuine = toy.Base.__dict__["inherited"]
    manager.apply_all()
    assert original(derived) is base
    assert toy.Thing().inherited() == ("derived", ("base", "base"))
    manager.revert("base")
    assert original(derived) is genuine
    assert toy.Thing().inherited() == ("derived", "base")


def test_with_a_transform_it_is_still_asked_for_by_the_replacement(manager, toy):
    _extend(manager, "lower", f"{toy.__name__}.greet")
    _extend(manager, "upper", f"{toy.__name__}.greet")
    manager.apply_all(transform=lambda patch, target, function: lambda *args: (f"around {patch.id}", function(*args)))
    assert toy.greet() == ("around upper", ("upper", ("around lower", ("lower", "hello"))))


def test_a_foreign_value_beneath_is_the_original(manager, toy):
    function = _extend(manager, "p", f"{toy.__name__}.greet")
    under = _extend(manager, "under", f"{toy.__name__}.greet")
    manager.apply("under")
    toy.greet = foreign = lambda: "foreign"
    manager.apply("p")
    assert original(function) is foreign
    assert original(under)() == "hello"


def test_what_a_module_computes_on_access_is_the_original(manager, toy):
    def lazy(name):
        if name == "late":
            return len
        raise AttributeError(name)

    toy.__getattr__ = lazy
    function = _extend(manager, "p", f"{toy.__name__}.late")
    manager.apply_all()
    assert original(function) is len
    assert toy.late("abc") == ("p", 3)
