"""What makes two observations differ, and in which words."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpatch.ablate.compare import compare
from unpatch.model import Observation, TensorInfo, ThreadRecord


def seen(*threads: ThreadRecord, **more) -> Observation:
    return Observation("case", **{"outcome": "passed", "seconds": 0.0, "threads": threads, **more})


def thread(*operators: str, role: str = "main", device: str = "cpu", keys: tuple[int, ...] = ()) -> ThreadRecord:
    return ThreadRecord(role, device, operators, keys or (0,) * len(operators))


def operators(left: Observation, right: Observation):
    return compare(left, right, Path())["operators"]


KEYS = {"key_sets": (("0x1", "0x0"),)}
names = st.sampled_from(["add", "mul", "copy_", "sum"])
threads = st.lists(st.builds(lambda ops: thread(*ops, role="worker"), st.lists(names, max_size=5)), max_size=4)


@given(threads.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_the_order_of_threads_does_not_matter(both):
    left, right = both
    assert operators(seen(*left, **KEYS), seen(*right, **KEYS)).state == "equal"


@given(threads, threads)
def test_comparing_is_symmetric(left, right):
    forth, back = (
        compare(seen(*one, **KEYS), seen(*two, **KEYS), Path()) for one, two in ((left, right), (right, left))
    )
    assert {name: c.state for name, c in forth.items()} == {name: c.state for name, c in back.items()}


def test_the_order_within_a_thread_matters():
    found = operators(seen(thread("add", "mul"), **KEYS), seen(thread("mul", "add"), **KEYS))
    assert found.state == "differs"


def test_the_device_and_the_role_matter():
    base = seen(thread("add"), **KEYS)
    assert operators(base, seen(thread("add", device="npu:1"), **KEYS)).state == "differs"
    assert operators(base, seen(thread("add", role="worker"), **KEYS)).state == "differs"


def test_the_detail_shows_what_differs_with_counts():
    left = seen(thread("empty", "add", "add", "sum", role="worker", device="npu:1"), thread("mul"), **KEYS)
    right = seen(thread("empty", "sum", role="worker", device="npu:1"), thread("mul"), **KEYS)
    assert operators(left, right).detail == "5 → 3 operators\nworker npu:1:\n- add ×2"


def test_sequences_too_long_to_align_are_compared_by_counts():
    left, right = ["add", "mul"] * 1500, ["mul", "add"] * 1500
    assert (
        "same operators in another order" in operators(seen(thread(*left), **KEYS), seen(thread(*right), **KEYS)).detail
    )
    found = operators(seen(thread(*left), **KEYS), seen(thread("sum", *right), **KEYS))
    assert "+ sum" in found.detail


def test_operators_recorded_on_one_side_only_differ():
    unrecorded = seen(operators_note="not recorded: torch was not imported")
    assert operators(unrecorded, unrecorded).state == "not_compared"
    assert operators(unrecorded, seen(thread("add"), **KEYS)).state == "differs"


# ------------------------------------------------------------------------------------------ keys
def test_keys_are_compared_by_value_and_not_by_index():
    left = seen(thread("add", "mul", keys=(0, 1)), key_sets=(("0x1", "0x0"), ("0x2", "0x0")))
    right = seen(thread("add", "mul", keys=(1, 0)), key_sets=(("0x2", "0x0"), ("0x1", "0x0")))
    assert compare(left, right, Path())["keys"].state == "equal"


def test_keys_of_an_operator():
    left = seen(thread("add", "mul", keys=(0, 0)), key_sets=(("0x1", "0x0"),))
    right = seen(thread("add", "mul", keys=(0, 1)), key_sets=(("0x1", "0x0"), ("0x1", "0x8")))
    found = compare(left, right, Path())
    assert found["operators"].state == "equal"
    assert (found["keys"].state, found["keys"].detail) == ("differs", "mul: excluded 0x0 → 0x8")


def test_keys_left_behind_by_a_case():
    left, right = seen(**KEYS), seen(keys_after=("0x4", ""), **KEYS)
    assert compare(left, right, Path())["keys"].detail == "after the case: included none → 0x4"


def test_keys_do_not_blame_what_the_operators_already_show():
    found = compare(seen(thread("add"), **KEYS), seen(thread("mul"), **KEYS), Path())["keys"]
    assert found.state == "equal"
    assert "operators differ" in found.detail


# ------------------------------------------------------------------------------------------ tensors and values
def tensors(folder: Path, name: str, data: bytes, **traits):
    described = {"kind": "output", "dtype": "torch.float32", "shape": (2,), "device": "cpu", "strides": (1,), **traits}
    header = json.dumps({"y": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(header)) + header + data)
    return seen(tensors={"y": TensorInfo(finite=True, **described)}, tensor_file=name, **KEYS)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def test_equal_bytes_are_equal_even_if_they_are_nan(tmp_path):
    left, right = (tensors(tmp_path, name, floats(float("nan"), 1.0)) for name in "ab")
    assert compare(left, right, tmp_path)["tensors"].state == "equal"


@pytest.mark.parametrize(
    ("left", "right", "detail"),
    [
        (floats(1, 2), floats(1, 2.5), "y: 1 of 2 elements differ, by at most 0.5 (relative 0.2)"),
        (floats(1, float("nan")), floats(1, 2), "y: 1 of 2 elements differ, 1 of them not finite"),
        (floats(0.0, 1), floats(-0.0, 1), "y: 0 of 2 elements differ in value, only in the bits of NaN or of zero"),
    ],
)
def test_the_size_of_a_difference(tmp_path, left, right, detail):
    pytest.importorskip("torch")
    found = compare(tensors(tmp_path, "a", left), tensors(tmp_path, "b", right), tmp_path)["tensors"]
    assert (found.state, found.detail) == ("differs", detail)


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"dtype": "torch.int32"}, "y: dtype torch.float32 → torch.int32"),
        ({"shape": (1, 2)}, "y: shape (2,) → (1, 2)"),
        ({"device": "npu:0"}, "y: device cpu → npu:0"),
        ({"kind": "gradient"}, "y: kind output → gradient"),
        ({"strides": (2,)}, "y: strides (1,) → (2,)"),
        ({"requires_grad": True}, "y: requires_grad False → True"),
        ({"type": "library.Quantity"}, "y: type torch.Tensor → library.Quantity"),
    ],
)
def test_traits_of_a_tensor(tmp_path, more, detail):
    left, right = tensors(tmp_path, "a", floats(1, 2)), tensors(tmp_path, "b", floats(1, 2), **more)
    assert compare(left, right, tmp_path)["tensors"].detail == detail


def test_traits_do_not_hide_the_size_of_a_difference(tmp_path):
    pytest.importorskip("torch")
    left, right = tensors(tmp_path, "a", floats(1, 2)), tensors(tmp_path, "b", floats(1, 2.5), device="npu:0")
    first, second = compare(left, right, tmp_path)["tensors"].detail.splitlines()
    assert "by at most 0.5" in first
    assert "device cpu → npu:0" in second


def test_a_tensor_that_became_a_value(tmp_path):
    found = compare(tensors(tmp_path, "a", floats(1, 2)), seen(values={"y": "None"}, **KEYS), tmp_path)["tensors"]
    assert found.detail == "y: a tensor in the first only\ny: a value in the second only"


def test_values_are_compared_by_their_text():
    found = compare(seen(values={"n": "1"}), seen(values={"n": "2"}), Path())["tensors"]
    assert (found.state, found.detail) == ("differs", "n: 1 → 2")


def test_a_case_that_hands_nothing_over_has_nothing_to_compare():
    assert compare(seen(), seen(), Path())["tensors"].state == "not_compared"
