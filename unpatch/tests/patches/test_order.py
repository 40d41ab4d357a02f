"""Groups, order, what is applied when, and that nothing is applied twice."""

from __future__ import annotations

import pytest

from unpatch.patches import AlreadyDeclaredError, ApplyFailedError, PatchManager, UnknownPatchError

ORDER = ("monkey", "api", "warning")


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def manager(calls):
    """Opaque patches in four groups, registered out of order, each of which notes its own name."""
    manager = PatchManager("toy", order=ORDER)
    for group, name in [("zeta", "z"), ("warning", "w"), ("api", "a1"), ("extra", "x"), ("monkey", "m"), ("api", "a2")]:
        _note(manager, group, name, calls)
    return manager


def _note(manager, group, name, calls):
    def function():
        calls.append(name)

    function.__qualname__ = name
    assert manager.register_patch(group)(function) is function


def test_groups_come_in_the_given_order_and_unknown_ones_after_them(manager, calls):
    manager.apply_all()
    assert calls == ["m", "a1", "a2", "w", "z", "x"]
    assert [patch.id.rpartition(".")[2] for patch in manager.patches] == calls
    assert manager.applied == manager.patches


def test_custom_order_takes_the_place_of_the_managers(manager, calls):
    manager.apply_all(order=("extra", "warning"))
    assert calls == ["x", "w", "z", "a1", "a2", "m"]


def test_one_group_alone_then_the_rest_never_twice(manager, calls):
    assert [patch.group for patch in manager.apply_group("api")] == ["api", "api"]
    manager.apply_all()
    manager.apply_all()
    assert manager.apply_group("api") == ()
    assert calls == ["a1", "a2", "m", "w", "z", "x"]


def test_late_registration_applies_only_what_is_new(manager, calls):
    manager.apply_all()
    calls.clear()
    _note(manager, "monkey", "late", calls)
    manager.apply_all()
    assert calls == ["late"]


def test_a_function_that_applies_again_is_not_entered_twice(calls):
    manager = PatchManager("toy")

    @manager.register_patch("monkey")
    def outer():
        calls.append("outer")
        manager.apply_all()

    _note(manager, "monkey", "inner", calls)
    manager.apply_all()
    assert calls == ["outer", "inner"]


def test_a_failing_function_names_itself_and_can_be_tried_again(calls):
    manager = PatchManager("toy")

    @manager.register_patch("monkey")
    def fragile():
        calls.append("tried")
        if len(calls) == 1:
            raise KeyError("no such thing")

    with pytest.raises(ApplyFailedError, match=r"toy/.*fragile.*KeyError") as caught:
        manager.apply_all()
    assert isinstance(caught.value.__cause__, KeyError)
    assert manager.applied == ()
    manager.apply_all()
    assert calls == ["tried", "tried"]


def test_an_interrupted_function_is_not_applied_and_the_interrupt_goes_on():
    manager = PatchManager("toy")

    @manager.register_patch("monkey")
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manager.apply_all()
    assert manager.applied == ()


def test_a_patch_without_a_target_is_refused():
    with pytest.raises(ValueError, match="'p' names no target"):
        PatchManager("toy").patch(id="p", group="g", reason="r")


@pytest.mark.parametrize("blank", ["", "  ", " padded", "a,b"])
def test_blank_or_unusable_names_are_refused_where_they_are_written(blank):
    manager = PatchManager("toy")
    refused = [
        lambda: PatchManager(blank),
        lambda: PatchManager("toy", order=(blank,)),
        lambda: manager.register_patch(blank),
        lambda: manager.register_patch_module(blank),
        lambda: manager.discover(blank),
        lambda: manager.apply_group(blank),
        lambda: manager.apply_all(order=(blank,)),
        lambda: manager.disable(blank),
        lambda: manager.declare(id=blank, group="g", reason="r"),
        lambda: manager.declare(id="p", group=blank, reason="r"),
        lambda: manager.patch("toy.f", id=blank, group="g", reason="r"),
        lambda: manager.patch("toy.f", id="p", group=blank, reason="r"),
    ]
    for call in refused:
        with pytest.raises(ValueError, match="not blank"):
            call()
    assert manager.patches == ()


@pytest.mark.parametrize("order", ["monkey", ("api", "api")])
def test_an_order_is_a_sequence_of_distinct_groups(order):
    with pytest.raises(ValueError, match="distinct groups"):
        PatchManager("toy", order=order)


def test_an_id_is_declared_once_and_the_error_says_where_the_first_is():
    manager = PatchManager("toy")
    first = manager.declare(id="p", group="g", reason="r")
    with pytest.raises(AlreadyDeclaredError, match=r"test_order\.py:\d+"):
        manager.declare(id="p", group="other", reason="r")
    assert manager.patches == (first,)


def test_a_decorator_is_for_one_function():
    manager = PatchManager("toy")
    decorate = manager.patch("toy.f", id="p", group="g", reason="r")
    decorate(len)
    with pytest.raises(AlreadyDeclaredError):
        decorate(print)
    assert [write.replacement for write in manager.get("p").writes] == [len]


def test_an_id_and_a_group_may_not_share_a_name():
    manager = PatchManager("toy", order=("api",))
    with pytest.raises(AlreadyDeclaredError, match="'api' is both"):
        manager.declare(id="api", group="monkey", reason="r")
    with pytest.raises(AlreadyDeclaredError, match="'same' is both"):
        manager.declare(id="same", group="same", reason="r")
    manager.declare(id="p", group="monkey", reason="r")
    with pytest.raises(AlreadyDeclaredError, match="'p' is both"):
        manager.declare(id="q", group="p", reason="r")


def test_unknown_names_are_answered_with_similar_ones():
    manager = PatchManager("toy", order=("monkey",))
    manager.declare(id="tensor-type", group="monkey", reason="r")
    for call in (manager.get, manager.apply, manager.revert):
        with pytest.raises(UnknownPatchError, match="did you mean 'tensor-type'"):
            call("tensor-typ")
    with pytest.raises(UnknownPatchError, match="did you mean 'monkey'"):
        manager.apply_group("monke")
    assert manager.apply_group("monkey") == ()
