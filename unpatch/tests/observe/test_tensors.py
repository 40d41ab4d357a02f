"""Bytes of tensors of every kind, out and in again."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unpatch.model import TensorInfo
from unpatch.observe import ObservationError
from unpatch.observe.tensors import copied, load_tensors, raw_bytes, save_tensors, tensor_info

KINDS = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.uint16,
]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_bytes_rebuild_the_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(6, dtype=torch.float32)[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    raw = raw_bytes(tensor)
    assert len(raw) == tensor.numel() * tensor.itemsize
    if raw:
        rebuilt = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
        assert torch.equal(rebuilt.to(torch.complex128), tensor.to(torch.complex128))


@pytest.mark.parametrize(
    ("tensor", "values"),
    [
        (torch.tensor([[1.0, 2.0], [3.0, 4.0]]).t(), [1, 3, 2, 4]),
        (torch.tensor([1.0, 2.0, 3.0, 4.0])[1::2], [2, 4]),
        (torch.ones(2).expand(2, 2), [1, 1, 1, 1]),
        (torch.tensor([1 + 2j], dtype=torch.complex64).conj(), [1, -2]),
        (torch.tensor([1 + 2j], dtype=torch.complex64).conj().imag, [-2]),
        (torch.tensor([1.0], requires_grad=True), [1]),
    ],
    ids=["transposed", "strided", "expanded", "conjugate", "negative", "requires grad"],
)
def test_bytes_are_the_elements_in_row_major_order(tensor: torch.Tensor, values: list[float]) -> None:
    assert raw_bytes(tensor) == struct.pack(f"={len(values)}f", *values)


@pytest.mark.parametrize(
    ("tensor", "finite"),
    [
        (torch.tensor([1.0, 2.0]), True),
        (torch.tensor([1.0, float("nan")]), False),
        (torch.tensor(complex(0, float("inf"))), False),
        (torch.tensor([float("nan")]).to(torch.float8_e4m3fn), False),
        (torch.tensor([3]), True),
        (torch.empty(0), True),
    ],
)
def test_info(tensor: torch.Tensor, finite: bool) -> None:
    info = tensor_info("output", tensor)
    assert info == TensorInfo("output", str(tensor.dtype), tuple(tensor.shape), "cpu", finite, tensor.stride())


@pytest.mark.parametrize(
    ("tensor", "strides", "requires_grad", "kind"),
    [
        (torch.ones(2, 3), (3, 1), False, "torch.Tensor"),
        (torch.ones(2, 3).t(), (1, 3), False, "torch.Tensor"),
        (torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last), (8, 1, 4, 2), False, "torch.Tensor"),
        (torch.ones(2, 3, requires_grad=True)[0], (1,), True, "torch.Tensor"),
        (torch.nn.Parameter(torch.ones(2)), (1,), True, "torch.nn.parameter.Parameter"),
    ],
)
def test_what_two_tensors_of_the_same_elements_differ_in(tensor, strides, requires_grad, kind) -> None:
    info = tensor_info("output", tensor)
    assert (info.strides, info.requires_grad, info.type) == (strides, requires_grad, kind)


@pytest.mark.parametrize("name", ["detach", "to", "contiguous", "clone", "resolve_conj", "isfinite", "all", "stride"])
def test_a_patch_of_tensor_does_not_reach_what_is_recorded(name: str, tmp_path, monkeypatch) -> None:
    tensor = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).t()
    expected = tensor_info("output", tensor), raw_bytes(tensor)
    monkeypatch.setattr(torch.Tensor, name, lambda *args, **kwargs: torch.zeros(1))
    monkeypatch.setattr(torch, "isfinite", lambda *args: torch.zeros(1))
    assert (tensor_info("output", tensor), raw_bytes(copied(tensor))) == expected


def test_a_copy_shares_nothing_and_passes_by_torch_functions() -> None:
    class Doubled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("not for the recorder")

    plain = torch.ones(2)
    tensor = plain.as_subclass(Doubled)
    copy = copied(tensor)
    plain.zero_()
    assert raw_bytes(copy) == struct.pack("=2f", 1, 1)


NO_ELEMENTS = {
    "layout torch.sparse_coo": lambda: torch.eye(2).to_sparse(),
    "layout torch.sparse_csr": lambda: torch.eye(2).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
    "meta": lambda: torch.ones(2, device="meta"),
}


@pytest.mark.parametrize("what", NO_ELEMENTS)
def test_tensors_without_elements_are_named(what: str, tmp_path: Path) -> None:
    tensor = NO_ELEMENTS[what]()
    with pytest.raises(ObservationError, match=rf"'weight'.*{what}"):
        save_tensors(tmp_path / "t.safetensors", {"fine": torch.ones(1), "weight": tensor})
    with pytest.raises(ObservationError, match=what):
        tensor_info("state", tensor)
    assert list(tmp_path.iterdir()) == []


def test_a_file_replaces_the_one_before_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"x": torch.ones(2), "y": torch.zeros(0), "z": torch.tensor(True)})
    save_tensors(path, {"x": torch.zeros(1), "z": torch.tensor(True)})
    assert load_tensors(path) == {"x": bytes(4), "z": b"\x01"}
    assert list(tmp_path.iterdir()) == [path]


@given(st.dictionaries(st.text(), st.lists(st.floats(width=32)), max_size=4))
def test_saving_and_loading_keeps_every_bit(tmp_path_factory: pytest.TempPathFactory, values: dict) -> None:
    path = tmp_path_factory.mktemp("saved") / "t.safetensors"
    tensors = {name: torch.tensor(value, dtype=torch.float32) for name, value in values.items()}
    save_tensors(path, tensors)
    assert load_tensors(path) == {name: raw_bytes(tensor) for name, tensor in tensors.items()}


def test_the_name_that_the_format_keeps(tmp_path: Path) -> None:
    with pytest.raises(ObservationError, match="__metadata__"):
        save_tensors(tmp_path / "t.safetensors", {"__metadata__": torch.ones(1)})


@pytest.mark.parametrize("content", [None, b"garbage"], ids=["missing", "garbage"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "t.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ObservationError, match=r"t\.safetensors"):
        load_tensors(path)


def test_without_safetensors_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(name for name in sys.modules if name.startswith("safetensors.")), "safetensors"]:
        monkeypatch.setitem(sys.modules, name, None)
    for attempt in (lambda p: save_tensors(p, {}), load_tensors):
        with pytest.raises(ObservationError, match=r"unpatch\[torch\]"):
            attempt(tmp_path / "t.safetensors")
