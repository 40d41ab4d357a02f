"""Saving, loading, pickling and copying what lies on an npu."""

import copy
import ctypes
import io
import pickle
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64]


def through_file(value, **settings):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **settings)


def made(dtype=torch.float32, device="npu:1"):
    return torch.arange(12).reshape(3, 4).to(dtype).to(device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_tensor_comes_back_to_its_device(dtype, weights_only):
    loaded = through_file(made(dtype), weights_only=weights_only)
    assert loaded.device == torch.device("npu:1")
    assert loaded.dtype == dtype
    assert torch.equal(loaded, made(dtype))


@pytest.mark.parametrize(
    ("where", "device"),
    [
        ("cpu", "cpu"),
        ("npu", "npu:0"),
        ("npu:0", "npu:0"),
        (torch.device("npu", 1), "npu:1"),
        ({"npu:1": "npu:0"}, "npu:0"),
        (lambda storage, tag: storage, "cpu"),
        (lambda storage, tag: storage.npu(0) if tag == "npu:1" else None, "npu:0"),
        ("meta", "meta"),
    ],
    ids=["cpu", "current", "other", "device", "table", "host function", "device function", "meta"],
)
@pytest.mark.parametrize("weights_only", [True, False])
def test_a_map_says_where_it_goes(where, device, weights_only):
    loaded = through_file(made(), map_location=where, weights_only=weights_only)
    assert loaded.device == torch.device(device)
    if device != "meta":
        assert torch.equal(loaded.cpu(), made().cpu())


def test_an_npu_may_take_what_was_saved_on_cpu():
    assert torch.equal(through_file(made(device="cpu"), map_location="npu:1"), made())


def test_a_device_that_is_not_there_is_named():
    file = io.BytesIO()
    torch.save(made(), file)
    file = io.BytesIO(file.getvalue().replace(b"npu:1", b"npu:7"))
    # The archive's checksums are of the record that was edited, so only the sentence tells the two failures apart.
    with pytest.raises(RuntimeError, match="npu"):
        torch.load(file)


@pytest.mark.parametrize("where", ["cpu", "npu:1"])
def test_a_file_can_be_mapped(tmp_path, where):
    torch.save({"weights": made(device="cpu"), "more": [made(torch.int64, "cpu")]}, tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt", mmap=True, map_location=where)
    assert loaded["weights"].device == torch.device(where)
    assert torch.equal(loaded["weights"].cpu(), made(device="cpu"))
    loaded["weights"].add_(1)  # the file is not changed
    assert torch.equal(torch.load(tmp_path / "file.pt")["weights"], made(device="cpu"))


def test_a_file_from_npu_can_be_mapped(tmp_path):
    torch.save(made(), tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt", mmap=True)
    assert loaded.device == torch.device("npu:1")
    assert torch.equal(loaded, made())


def test_views_of_one_storage_stay_views_of_one():
    whole = made()
    first, row, turned = through_file([whole, whole[1], whole.t()])
    assert row.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() == turned.untyped_storage().data_ptr()
    assert (row.storage_offset(), turned.stride()) == (4, (1, 4))
    row.fill_(-1)
    assert first[1].tolist() == [-1] * 4 == turned[:, 1].tolist()


def test_the_older_format_keeps_the_device():
    file = io.BytesIO()
    torch.save(made(), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded.device == torch.device("npu:1")
    assert torch.equal(loaded, made())


def test_what_is_saved_is_what_was_queued_before():
    value = torch.zeros(200, 200, device="npu")
    for _ in range(50):
        value = value + 1
    assert torch.equal(through_file(value, map_location="cpu"), torch.full((200, 200), 50.0))


def test_a_module_and_its_optimizer_resume():
    def build(device):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).to(device)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.linspace(-1, 1, 12, device="npu").reshape(3, 4)).square().sum().backward()
        optimizer.step()

    model, optimizer = build("npu")
    step(model, optimizer)
    state = through_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, weights_only=True)
    assert isinstance(state["model"], OrderedDict)
    again, resumed = build("npu")
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimizer"])
    step(model, optimizer)
    step(again, resumed)
    for one, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert other.device == torch.device("npu:0")
        assert torch.equal(one, other)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_device_gradient_flag_and_attributes(protocol):
    value = made().requires_grad_()
    value.note = "kept"
    loaded = pickle.loads(pickle.dumps(value, protocol))
    assert (loaded.device, loaded.requires_grad, loaded.note) == (torch.device("npu:1"), True, "kept")
    assert torch.equal(loaded, made())
    parameter = pickle.loads(pickle.dumps(nn.Parameter(made()), protocol))
    assert type(parameter) is nn.Parameter


def test_pickle_of_views_conjugates_and_empty_tensors():
    for value in (made().t(), made()[1:, ::2], made(torch.complex64).conj(), torch.empty(0, 3, device="npu")):
        loaded = pickle.loads(pickle.dumps(value))
        assert loaded.device == value.device
        assert loaded.stride() == value.stride()
        assert loaded.is_conj() == value.is_conj()
        assert torch.equal(loaded, value)


def test_storages_and_devices():
    storage = through_file(made().untyped_storage(), weights_only=False)
    assert storage.device == torch.device("npu:1")
    assert storage.tolist() == made().untyped_storage().tolist()
    assert pickle.loads(pickle.dumps(torch.device("npu:1"))) == torch.device("npu:1")


def test_deepcopy_copies_the_memory_and_keeps_what_is_shared():
    whole = made()
    copied = copy.deepcopy({"whole": whole, "row": whole[1], "again": whole})
    assert copied["again"] is copied["whole"]
    assert copied["row"].untyped_storage().data_ptr() == copied["whole"].untyped_storage().data_ptr()
    copied["row"].fill_(-1)
    assert torch.equal(whole, made())
    assert copied["whole"].device == torch.device("npu:1")
    assert copied["whole"][1].tolist() == [-1] * 4


def test_deepcopy_of_a_module_and_of_a_gradient():
    model = nn.Linear(3, 2, device="npu")
    copied = copy.deepcopy(model)
    assert copied.weight.device == torch.device("npu:0")
    with torch.no_grad():
        copied.weight.zero_()
    assert model.weight.abs().sum() > 0

    leaf = torch.ones(3, device="npu", requires_grad=True)
    leaf.mul(2).sum().backward()
    with_gradient = copy.deepcopy(leaf)
    leaf.grad.zero_()
    assert with_gradient.grad.tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(leaf * 2)


def test_memory_that_is_read_into_is_complete_at_once():
    """The older format reads into a storage through a tensor that does not own it; nothing of that may be left in a queue."""
    file = io.BytesIO()
    torch.save(torch.full((64,), 7, dtype=torch.uint8, device="npu"), file, _use_new_zipfile_serialization=False)
    matrix = torch.rand(1200, 1200, device="npu")
    for _ in range(2):  # the second time around, all that looks the same could be queued
        for _ in range(4):
            matrix = (matrix @ matrix).clamp(0, 1)
        file.seek(0)
        loaded = torch.load(file)
        assert ctypes.string_at(loaded.data_ptr(), 64) == b"\x07" * 64


def test_copy_shares_the_memory():
    value = made()
    shallow = copy.copy(value)
    shallow.zero_()
    assert value.abs().sum() == 0


def test_nothing_is_kept_alive():
    value = made()
    gone = weakref.ref(value)
    before = torch.npu.memory_allocated(1)
    through_file(value)
    copy.deepcopy(value)
    assert torch.npu.memory_allocated(1) == before
    del value
    assert gone() is None
