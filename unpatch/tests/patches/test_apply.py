"""Applying and reverting: exact values, all or nothing, any order, and other people's writes left alone."""

from __future__ import annotations

import pytest

from unpatch.patches import (
    AlreadyAppliedError,
    ForeignWriteError,
    NotAppliedError,
    NotRevertibleError,
    PatchManager,
    TargetExistsError,
    TargetNotFoundError,
    WriteRefusedError,
    original,
)


@pytest.fixture
def manager():
    return PatchManager("toy", order=("monkey", "api"))


def _replacing(manager, id, *targets, group="monkey"):
    """Declare a patch that replaces each target by a function of its own, and return those functions."""
    patch = manager.declare(id=id, group=group, reason="because")
    return [patch.replace(target, lambda *args, name=f"{id}{n}": name) for n, target in enumerate(targets)]


def test_the_bare_function_is_written_and_returned_unchanged(manager, toy):
    def replacement():
        return "patched"

    before = dict(vars(replacement))
    assert manager.patch(f"{toy.__name__}.greet", id="p", group="api", reason="r")(replacement) is replacement
    assert toy.greet() == "hello"
    manager.apply_all()
    assert toy.greet is replacement
    assert vars(replacement) == before


@pytest.mark.parametrize("name", ["method", "static", "make", "size", "inherited"])
def test_every_kind_of_class_attribute_comes_back_exactly(manager, toy, name):
    before = dict(toy.Thing.__dict__)
    (value,) = _replacing(manager, "p", f"{toy.__name__}.Thing.{name}")
    manager.apply_all()
    assert toy.Thing.__dict__[name] is value
    assert "inherited" in toy.Base.__dict__
    manager.revert("p")
    after = dict(toy.Thing.__dict__)
    assert after.keys() == before.keys()
    assert all(after[key] is before[key] for key in before)


def test_add_and_delete_and_their_undoing(manager, toy):
    patch = manager.declare(id="p", group="api", reason="r")
    method = toy.Thing.__dict__["method"]
    assert patch.add(f"{toy.__name__}.Thing.method_raw", method) is method
    patch.delete(f"{toy.__name__}:Thing.static")
    patch.replace(f"{toy.__name__}.Thing.method")(lambda self: "patched " + self.method_raw())
    manager.apply_all()
    assert toy.Thing().method() == "patched method"
    assert not hasattr(toy.Thing, "static")
    manager.revert_all()
    assert toy.Thing.__dict__["method"] is method
    assert toy.Thing.static(1) == ("static", 1)
    assert not hasattr(toy.Thing, "method_raw")


def test_a_later_write_may_rest_on_an_earlier_one_of_the_same_patch(manager, toy):
    patch = manager.declare(id="p", group="api", reason="r")
    added = patch.add(f"{toy.__name__}.Extra", type("Extra", (), {}))
    patch.add(f"{toy.__name__}.Extra.flag", True)
    manager.apply_all()
    assert toy.Extra is added
    assert toy.Extra.flag is True
    manager.revert_all()
    assert "flag" not in vars(added)
    assert "Extra" not in vars(toy)


def test_a_patch_of_several_writes_is_applied_all_or_nothing(manager, toy):
    before, class_before = dict(vars(toy)), dict(vars(toy.Thing))
    _replacing(manager, "first", f"{toy.__name__}.Base.inherited")
    _replacing(manager, "p", f"{toy.__name__}.greet", f"{toy.__name__}.Thing.inherited", f"{toy.__name__}.Thing.absent")
    with pytest.raises(TargetNotFoundError, match=r"patch 'toy/p' cannot be applied.*'absent'"):
        manager.apply_all()
    assert vars(toy) == before
    assert dict(vars(toy.Thing)) == class_before
    assert [patch.id for patch in manager.applied] == ["first"]
    assert not manager.get("p").applied


def test_a_revert_that_is_refused_half_way_changes_nothing(manager, toy):
    class Stubborn(type):
        def __delattr__(cls, name):
            raise RuntimeError("not this one")

    toy.Rock = Stubborn("Rock", (), {})
    patch = manager.declare(id="p", group="api", reason="r")
    patch.add(f"{toy.__name__}.Rock.flag", 1)
    (value,) = _replacing(manager, "q", f"{toy.__name__}.greet", group="later")
    patch.replace(f"{toy.__name__}.greet", len)
    patch.replace(f"{toy.__name__}.greet", print)
    manager.apply_all()
    with pytest.raises(WriteRefusedError, match="not this one"):
        manager.revert("p")
    assert toy.greet is value
    assert toy.Rock.flag == 1
    assert manager.get("p").applied
    with pytest.raises(NotRevertibleError, match="1 of the patches"):
        manager.revert_all()
    assert toy.greet is print, "q lay upon it and is gone"
    assert original(print) is len


@pytest.mark.parametrize(
    ("write", "error", "says"),
    [
        (lambda p, toy: p.add(f"{toy}.Thing.inherited", 1), TargetExistsError, "has it already"),
        (lambda p, toy: p.add(f"{toy}.greet", 1), TargetExistsError, "has it already"),
        (lambda p, toy: p.delete(f"{toy}.Thing.inherited"), TargetNotFoundError, "only inherits it"),
        (lambda p, toy: p.delete(f"{toy}.nothing"), TargetNotFoundError, "has no such attribute"),
    ],
)
def test_writes_that_do_not_fit_what_is_there_are_refused(manager, toy, write, error, says):
    write(manager.declare(id="p", group="api", reason="r"), toy.__name__)
    with pytest.raises(error, match=says):
        manager.apply("p")
    assert manager.applied == ()


def test_a_patch_can_be_applied_alone_reverted_and_applied_again(manager, toy):
    (value,) = _replacing(manager, "p", f"{toy.__name__}.greet")
    assert manager.apply("p") is True
    assert manager.apply("p") is False
    manager.revert("p")
    assert toy.greet() == "hello"
    assert manager.apply("p") is True
    assert toy.greet is value


def test_a_patch_beneath_a_deletion_can_be_taken_away(manager, toy):
    static = toy.Thing.__dict__["static"]
    _replacing(manager, "p", f"{toy.__name__}.Thing.static")
    manager.declare(id="gone", group="api", reason="r").delete(f"{toy.__name__}.Thing.static")
    manager.apply_all()
    manager.revert("p")
    assert not hasattr(toy.Thing, "static")
    manager.revert("gone")
    assert toy.Thing.__dict__["static"] is static


def test_the_original_is_known_before_the_write_and_revert_all_goes_backwards(manager, toy):
    seen = []

    class Watching(type):
        def __setattr__(cls, name, value):
            super().__setattr__(name, value)
            seen.append((value, original(value) if value is not genuine else None))

    class Watched(metaclass=Watching):
        def f(self): ...

    genuine = Watched.__dict__["f"]
    toy.Watched = Watched
    (lower,) = _replacing(manager, "lower", f"{toy.__name__}.Watched.f")
    (upper,) = _replacing(manager, "upper", f"{toy.__name__}.Watched.f")
    manager.apply_all()
    manager.revert_all()
    assert seen == [(lower, genuine), (upper, lower), (lower, genuine), (genuine, None)]


def test_there_must_be_something_to_revert(manager, toy):
    _replacing(manager, "p", f"{toy.__name__}.greet")
    with pytest.raises(NotAppliedError, match="nothing to revert"):
        manager.revert("p")


def test_an_opaque_function_cannot_be_reverted_and_the_rest_is(manager, toy):
    @manager.register_patch("monkey")
    def opaque():
        """Do something to somebody."""

    _replacing(manager, "p", f"{toy.__name__}.greet")
    manager.apply_all()
    id = manager.applied[0].id
    assert id.endswith("opaque")
    assert manager.get(id).reason == "Do something to somebody."
    with pytest.raises(NotRevertibleError, match="opaque function"):
        manager.revert(id)
    with pytest.raises(NotRevertibleError, match=r"1 of the patches.*opaque function"):
        manager.revert_all()
    assert [patch.id for patch in manager.applied] == [id]
    assert toy.greet() == "hello"
    with pytest.raises(NotRevertibleError, match="takes no writes"):
        manager.get(id).add("toy.x", 1)


def test_writes_come_before_the_patch_is_applied(manager, toy):
    patch = manager.declare(id="p", group="api", reason="r")
    assert manager.apply_all() == (), "nothing to write yet"
    patch.replace(f"{toy.__name__}.greet", len)
    assert manager.apply_all() == (patch,)
    with pytest.raises(AlreadyAppliedError, match="revert it before adding"):
        patch.add(f"{toy.__name__}.more", 1)
    assert patch.targets == (f"{toy.__name__}.greet",)


def test_taking_the_lower_of_two_leaves_the_upper_and_then_the_true_original(manager, toy):
    greet = toy.greet
    other = PatchManager("other")
    _replacing(manager, "lower", f"{toy.__name__}.greet")
    (upper,) = _replacing(other, "upper", f"{toy.__name__}.greet")
    manager.apply_all()
    other.apply_all()
    manager.revert("lower")
    assert toy.greet is upper
    other.revert("upper")
    assert toy.greet is greet


def _foreign():
    return "foreign"


def test_revert_refuses_to_destroy_somebody_elses_write_and_says_whose_it_is(manager, toy):
    greet = toy.greet
    (value, _) = _replacing(manager, "p", f"{toy.__name__}.greet", f"{toy.__name__}.Thing.inherited")
    manager.apply_all()
    toy.greet = _foreign
    with pytest.raises(ForeignWriteError, match=rf"toy/p.*{toy.__name__}\.greet.*somebody else.*test_apply\._foreign"):
        manager.revert("p")
    assert toy.greet is _foreign
    assert "inherited" in vars(toy.Thing), "the other write of the patch stays too"
    toy.greet = value
    manager.revert("p")
    assert toy.greet is greet


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda thing: delattr(thing, "static"), "nothing"),
        (lambda thing: setattr(thing, "static", staticmethod(_foreign)), "_foreign"),
        (lambda thing: setattr(thing, "static", 3), r"an object of type builtins\.int"),
    ],
)
def test_whatever_the_foreign_value_is_it_can_be_named(manager, toy, write, says):
    _replacing(manager, "p", f"{toy.__name__}.Thing.static")
    manager.apply_all()
    write(toy.Thing)
    with pytest.raises(ForeignWriteError, match=says):
        manager.revert("p")


def test_a_foreign_write_between_two_of_ours_survives_the_upper_and_protects_the_lower(manager, toy):
    _replacing(manager, "lower", f"{toy.__name__}.greet")
    _replacing(manager, "upper", f"{toy.__name__}.greet")
    greet, lower = toy.greet, manager.get("lower").writes[0].replacement
    manager.apply("lower")
    toy.greet = _foreign
    manager.apply("upper")
    with pytest.raises(ForeignWriteError, match="_foreign"):
        manager.revert("lower")
    manager.revert("upper")
    assert toy.greet is _foreign
    with pytest.raises(ForeignWriteError, match="_foreign"):
        manager.revert("lower")
    toy.greet = lower
    manager.revert("lower")
    assert toy.greet is greet


def test_transform_decides_what_is_written_and_revert_takes_it_away(manager, toy):
    (value,) = _replacing(manager, "p", f"{toy.__name__}.greet")
    patch = manager.get("p")
    patch.add(f"{toy.__name__}.extra", 5)
    patch.delete(f"{toy.__name__}.Thing.static")
    static = toy.Thing.__dict__["static"]
    seen = []

    def transform(patch, target, replacement):
        seen.append((patch.id, target.rpartition(".")[2], replacement))
        return ["written", replacement]

    manager.apply_all(transform=transform)
    assert seen == [("p", "greet", value), ("p", "extra", 5)]
    assert toy.greet == ["written", value]
    assert toy.extra == ["written", 5]
    manager.revert_all()
    assert toy.greet() == "hello"
    assert "extra" not in vars(toy)
    assert toy.Thing.__dict__["static"] is static
    manager.apply_group("monkey", transform=lambda patch, target, replacement: "again")
    assert toy.greet == "again"


def test_a_transform_that_fails_leaves_no_trace(manager, toy):
    _replacing(manager, "p", f"{toy.__name__}.greet", f"{toy.__name__}.Thing.method")

    def transform(patch, target, replacement):
        if target.endswith("method"):
            raise LookupError("cannot")
        return replacement

    before = dict(vars(toy))
    with pytest.raises(LookupError):
        manager.apply_all(transform=transform)
    assert vars(toy) == before
    assert manager.applied == ()
