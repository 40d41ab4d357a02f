"""Kernels of torch's dispatcher as targets, in one process of their own: operators of a library made here."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from unpatch.patches import (  # noqa: E402
    ForeignWriteError,
    PatchManager,
    TargetExistsError,
    TargetNotFoundError,
    WriteRefusedError,
    original,
)
from unpatch.patches.check import findings  # noqa: E402
from unpatch.patches.listing import listed  # noqa: E402

TARGET = "unpatch_toy::scale/CPU"


@pytest.fixture(scope="module")
def library():
    library = torch.library.Library("unpatch_toy", "DEF")
    library.define("scale(Tensor x, Tensor by, *, int plus=0) -> Tensor")
    library.define("nothing(Tensor x) -> Tensor")
    library.impl("scale", lambda x, by, *, plus=0: x.clone().mul_(by) + plus, "CPU")
    yield library
    library._destroy()


@pytest.fixture
def manager(library):
    manager = PatchManager("toy")
    yield manager
    manager.revert_all()


def scale(x, by, **options):
    return torch.ops.unpatch_toy.scale(torch.tensor(x), torch.tensor(by), **options).tolist()


def _negating(manager, id, target=TARGET):
    def negate(x, by, *, plus=0):
        return original(negate)(x, by, plus=plus).neg()

    manager.declare(id=id, group="g", reason="r").replace(target, negate)
    return negate


def test_a_kernel_is_covered_and_uncovered(manager):
    _negating(manager, "p")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's own, that a kernel is overridden
        manager.apply_all()
    assert scale([2.0], 3.0, plus=1) == [-7]
    manager.revert("p")
    assert scale([2.0], 3.0, plus=1) == [7]


@pytest.mark.parametrize("first", ["lower", "upper"])
def test_two_kernels_of_ours_hand_on_to_each_other_and_go_in_any_order(manager, first):
    def add_one(x, by, *, plus=0):
        return original(add_one)(x, by, plus=plus).add(1)

    _negating(manager, "lower")
    manager.declare(id="upper", group="g", reason="r").replace(TARGET, add_one)
    manager.apply_all()
    assert scale([2.0], 3.0) == [-5]
    manager.revert(first)
    assert scale([2.0], 3.0) == [{"lower": 7, "upper": -6}[first]]
    manager.revert_all()
    assert scale([2.0], 3.0) == [6]


def test_somebody_elses_kernel_on_top_keeps_ours_from_being_reverted(manager, library):
    _negating(manager, "p")
    manager.apply_all()
    other = torch.library.Library("unpatch_toy", "IMPL")
    other.impl("scale", lambda x, by, *, plus=0: x.clone().zero_(), "CPU", allow_override=True)
    try:
        with pytest.raises(ForeignWriteError, match=r"unpatch_toy::scale/CPU has since been written"):
            manager.revert("p")
        assert scale([2.0], 3.0) == [0]
    finally:
        other._destroy()
    manager.revert("p")
    assert scale([2.0], 3.0) == [6]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.integers(0, 3), max_size=12))
def test_any_sequence_of_kernels_hands_on_and_ends_as_it_began(library, steps):
    """Each of four kernels doubles and adds its number; the topmost is the one applied last."""
    manager, order = PatchManager("toy"), []
    for number in range(4):

        def double(x, by, *, plus=0, number=number):
            return original(manager.get(f"p{number}").writes[0].replacement)(x, by, plus=plus) * 2 + number

        manager.declare(id=f"p{number}", group="g", reason="r").replace(TARGET, double)
    for number in steps:
        if number in order:
            manager.revert(f"p{number}")
            order.remove(number)
        else:
            manager.apply(f"p{number}")
            order.append(number)
        expected = 6
        for each in order:
            expected = expected * 2 + each
        assert scale([2.0], 3.0) == [expected]
    manager.revert_all()
    assert scale([2.0], 3.0) == [6]


def test_an_operators_own_autograd_kernel_still_differentiates_beneath_ours():
    manager = PatchManager("toy")

    def mul(x, y):
        return original(mul)(x, y).neg()

    manager.declare(id="p", group="g", reason="r").replace("aten::mul.Tensor/AutogradCPU", mul)
    x = torch.ones(2, requires_grad=True)
    manager.apply_all()
    try:
        result = x * 3
    finally:
        manager.revert("p")
    result.sum().backward()
    assert (result.tolist(), x.grad.tolist()) == ([-3, -3], [-3, -3])


def test_a_number_in_the_place_of_a_tensor_reaches_the_original():
    manager = PatchManager("toy")

    def add(x, y, *, alpha=1):
        return original(add)(x, y, alpha=alpha)

    manager.declare(id="p", group="g", reason="r").replace("aten::add.Tensor/CPU", add)
    manager.apply_all()
    try:
        results = [torch.ones(2) + 1, torch.ones(2, dtype=torch.int8) + 1, torch.ones(2, dtype=torch.int64) + 0.5]
    finally:
        manager.revert("p")
    assert [result.tolist() for result in results] == [[2, 2], [2, 2], [1.5, 1.5]]
    assert [result.dtype for result in results] == [torch.float32, torch.int8, torch.float32]


def test_a_kernel_is_added_where_none_is(manager):
    manager.declare(id="p", group="g", reason="r").add("unpatch_toy::nothing/CPU", lambda x: x.clone())
    with pytest.raises(NotImplementedError):
        torch.ops.unpatch_toy.nothing(torch.ones(1))
    manager.apply_all()
    assert torch.ops.unpatch_toy.nothing(torch.ones(1)).tolist() == [1]
    manager.revert_all()
    with pytest.raises(NotImplementedError):
        torch.ops.unpatch_toy.nothing(torch.ones(1))


@pytest.mark.parametrize(
    ("kind", "target", "error", "says"),
    [
        ("replace", "unpatch_toy::nothing/CPU", TargetNotFoundError, "'CPU': unpatch_toy::nothing has no such kernel"),
        ("replace", "unpatch_toy::absent/CPU", TargetNotFoundError, "operator unpatch_toy::absent does not exist"),
        ("replace", "unpatch_toy::scale/Cpu", TargetNotFoundError, "could not parse dispatch key: Cpu"),
        ("replace", "unpatch_toy::scale/Autograd", WriteRefusedError, "Autograd stands for several dispatch keys"),
        ("add", TARGET, TargetExistsError, "unpatch_toy::scale has it already"),
        ("delete", TARGET, WriteRefusedError, "can only be covered"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(manager, kind, target, error, says):
    patch = manager.declare(id="p", group="g", reason="r")
    patch.delete(target) if kind == "delete" else getattr(patch, kind)(target, lambda *args, **options: None)
    with pytest.raises(error, match=says):
        manager.apply_all()
    assert scale([2.0], 3.0) == [6]


def test_what_is_no_function_is_refused(manager):
    manager.declare(id="p", group="g", reason="r").replace(TARGET, 3)
    with pytest.raises(WriteRefusedError, match="scale/CPU cannot be written"):
        manager.apply_all()
    assert scale([2.0], 3.0) == [6]


def test_somebody_elses_kernel_is_named_by_where_it_was_registered(manager):
    manager.declare(id="p", group="g", reason="r").replace("aten::add.Tensor/CPU", lambda x, y, *, alpha=1: x)
    (write,) = listed(manager)[0].writes
    assert re.fullmatch(r"the kernel registered at .*\.cpp:\d+", write.original)


def test_the_schema_is_the_fingerprint_and_the_signature(manager):
    manager.declare(id="good", group="g", reason="r").replace(TARGET, lambda x, by, *, plus=0: x)
    manager.declare(id="bad", group="g", reason="r").replace(TARGET, lambda x, by: x)
    good, bad = ({finding.kind: finding for finding in findings(manager, manager.get(id))} for id in ("good", "bad"))
    assert "schema:" in good["undeclared"].message
    assert "signature" not in good
    assert "unexpected keyword argument 'plus'" in bad["signature"].message
