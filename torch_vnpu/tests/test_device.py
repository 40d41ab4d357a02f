"""Devices: `torch.npu.*` and `torch.accelerator.*`, contexts, threads, odd arguments; how tensors, modules, storages move."""

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

NO_DEVICE = "invalid device ordinal {}, there are 2 devices"


def test_two_devices_are_there():
    assert torch.npu.is_available()
    assert torch.npu.device_count() == torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("npu")
    assert torch.npu.is_bf16_supported()


def test_the_current_device_is_the_same_for_npu_and_accelerator():
    torch.npu.set_device(1)
    assert torch.npu.current_device() == torch.accelerator.current_device_index() == 1
    assert torch.ones(1, device="npu").device == torch.device("npu", 1)
    torch.accelerator.set_device_index(0)
    assert torch.npu.current_device() == 0
    assert torch.ones(1, device="npu").device == torch.device("npu", 0)


@pytest.mark.parametrize("device", [1, "npu:1", torch.device("npu:1"), torch.device("npu", 1)])
def test_a_device_is_named_in_any_form(device):
    torch.npu.set_device(device)
    assert torch.npu.current_device() == 1
    torch.npu.set_device(0)
    with torch.npu.device(device):
        assert torch.npu.current_device() == 1
    assert torch.npu.current_device() == 0
    torch.npu.synchronize(device)
    assert torch.npu.current_stream(device).device_index == 1
    assert torch.npu.get_device_name(device) == "Virtual NPU"
    assert torch.npu.mem_get_info(device)[1] == torch.npu.get_device_properties(device).total_memory


@pytest.mark.parametrize("device", [None, -1, "npu", torch.device("npu")])
def test_what_names_no_ordinal_is_the_current_device(device):
    torch.npu.set_device(1)
    assert torch.npu.current_stream(device).device_index == 1
    with torch.npu.device(device):
        assert torch.npu.current_device() == 1
    if device is not None:
        torch.npu.set_device(device)
    assert torch.npu.current_device() == 1


@pytest.mark.parametrize("device", [None, -1])
def test_a_context_of_no_device_changes_nothing_wherever_it_was_made(device):
    context = torch.npu.device(device)
    torch.npu.set_device(1)
    with context:
        assert torch.npu.current_device() == 1
    assert torch.npu.current_device() == 1


def test_contexts_nest_and_end_with_exceptions():
    with torch.npu.device(1):
        with torch.npu.device(0):
            assert torch.npu.current_device() == 0
        assert torch.npu.current_device() == 1
        with pytest.raises(ZeroDivisionError), torch.accelerator.device_index(0):
            1 / 0  # noqa: B018
        assert torch.npu.current_device() == 1
    assert torch.npu.current_device() == 0


def test_device_of_takes_the_tensors_device():
    with torch.npu.device_of(torch.ones(1, device="npu:1")):
        assert torch.npu.current_device() == 1
    with torch.npu.device_of(torch.ones(1)), torch.npu.device_of("no tensor"):
        assert torch.npu.current_device() == 0


def test_each_thread_has_its_own_current_device():
    torch.npu.set_device(1)
    seen = []

    def work() -> None:
        seen.append(torch.npu.current_device())
        torch.npu.set_device(0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]
    assert torch.npu.current_device() == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.npu.set_device(2),
        lambda: torch.npu.device(2).__enter__(),
        lambda: torch.npu.synchronize(2),
        lambda: torch.npu.current_stream(2),
        lambda: torch.npu.default_stream(2),
        lambda: torch.npu.Stream(2),
        lambda: torch.Stream("npu:2"),
        lambda: torch.npu.get_device_properties(2),
        lambda: torch.npu.get_device_name("npu:2"),
        lambda: torch.npu.mem_get_info(2),
        lambda: torch.npu.memory_allocated(2),
        lambda: torch.npu.max_memory_allocated(2),
        lambda: torch.npu.memory_stats(2),
        lambda: torch.npu.reset_peak_memory_stats(2),
        lambda: torch.npu.reset_accumulated_memory_stats(2),
        lambda: torch.Generator("npu:2"),
        lambda: torch.empty(1, device="npu:2"),
        lambda: torch.ones(1).to("npu:2"),
        lambda: torch.ones(1, device="npu").to("npu:2"),
        lambda: torch.ones(1).npu(2),
        lambda: torch.UntypedStorage(4, device="npu:2"),
        lambda: torch.accelerator.set_device_index(2),
        lambda: torch.accelerator.synchronize(2),
        lambda: torch.accelerator.current_stream(2),
        lambda: torch.accelerator.memory_allocated(2),
        lambda: torch.zeros_like(torch.ones(1, device="npu"), device="npu:2"),
    ],
)
def test_a_device_that_is_not_there_is_refused_and_changes_nothing(use):
    with pytest.raises(RuntimeError, match=NO_DEVICE.format(2)):
        use()
    assert torch.npu.current_device() == 0


@pytest.mark.parametrize("device", ["cpu", torch.device("meta"), 1.0, True, object(), "npu:1:2", "nonsense"])
def test_what_is_no_npu_is_refused(device):
    for use in (
        torch.npu.set_device,
        torch.npu.synchronize,
        torch.npu.device,
        torch.npu.Stream,
        torch.npu.memory_stats,
    ):
        with pytest.raises((ValueError, RuntimeError)):
            use(device)


def test_a_device_is_needed_to_set_one():
    with pytest.raises(ValueError, match="a device is needed"):
        torch.npu.set_device(None)


def test_an_index_into_the_generators_that_names_no_device():
    assert len(torch.npu.default_generators) == 2
    assert torch.npu.default_generators[-1].device == torch.device("npu:1")
    with pytest.raises(IndexError, match="no device 2"):
        torch.npu.default_generators[2]


def test_tensors_move_by_every_method():
    x = torch.arange(4.0)
    for moved in (
        x.npu(1),
        x.npu("npu:1"),
        x.to("npu:1"),
        x.to(torch.ones(1, device="npu:1")),
        x.npu(0).npu(1),
        x.to("npu:1", torch.float64).float(),
        torch.tensor([0, 1, 2, 3.0], device="npu:1"),
        torch.from_numpy(x.numpy()).to("npu:1"),
    ):
        assert moved.device == torch.device("npu:1")
        assert moved.is_npu
        assert moved.get_device() == 1
        assert moved.tolist() == [0, 1, 2, 3]
        assert torch.equal(moved.cpu(), x)
    assert not x.is_npu
    y = x.npu()
    assert y.npu() is y
    assert y.to("npu") is y
    assert y.to("npu", copy=True) is not y


def test_modules_and_packed_sequences_move():
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).npu(1)
    assert {t.device for t in [*module.parameters(), *module.buffers()]} == {torch.device("npu:1")}
    assert {t.device.type for t in module.cpu().state_dict().values()} == {"cpu"}
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)]).npu(1)
    assert packed.data.device == torch.device("npu:1")
    assert packed.is_npu
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(packed)
    assert (padded.device, lengths.tolist()) == (torch.device("npu:1"), [3, 1])


def test_storages_know_their_device_and_move():
    host = torch.arange(4.0).untyped_storage()
    storage = host.npu(1)
    assert storage.is_npu
    assert storage.device == torch.device("npu:1")
    assert (storage.nbytes(), len(storage)) == (16, 16)
    assert bytes(storage.cpu()) == bytes(host)
    again = torch.empty(0, device="npu:1").set_(storage, 0, (4,), (1,))
    assert again.tolist() == [0, 1, 2, 3]
    assert torch.ones(2, device="npu").untyped_storage().device == torch.device("npu:0")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_the_legacy_tensor_types(dtype):
    x = torch.ones(2, dtype=dtype, device="npu")
    name = x.type()
    kind = getattr(torch.npu, name.removeprefix("torch.npu."))
    assert name == f"torch.npu.{torch.ones(1, dtype=dtype).type().removeprefix('torch.')}"
    assert kind.__name__ == name
    assert isinstance(x, kind)
    assert not isinstance(x.cpu(), kind)
    assert not isinstance(x.to(torch.int16), kind)
    assert x.cpu().type(name).device.type == "npu"
    with pytest.raises(TypeError, match="cannot be called"):
        kind(2)


def test_numpy_cannot_see_device_memory():
    x = torch.ones(2, device="npu")
    for use in (x.numpy, lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match="npu:0 device type tensor to numpy"):
            use()
    assert np.asarray(x.cpu()).tolist() == [1, 1]
    assert x.numpy(force=True).tolist() == [1, 1]


def test_what_is_not_dense_is_refused():
    x = torch.ones(2, device="npu")
    for use in (
        x.to_sparse,
        lambda: torch.empty(2, device="npu", layout=torch.sparse_coo),
        lambda: torch.empty(2, device="npu", dtype=torch.quint8),
        lambda: x.to_mkldnn(),
    ):
        with pytest.raises((NotImplementedError, RuntimeError)):
            use()
    assert x.tolist() == [1, 1]


def test_pinned_memory():
    pinned = torch.arange(3.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert not torch.ones(3).is_pinned()
    assert pinned.to("npu", non_blocking=True).tolist() == [0, 1, 2]
    assert torch.empty(2, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(1, device="npu").pin_memory()
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(1, device="npu", pin_memory=True)
    loader = torch.utils.data.DataLoader(list(range(4)), batch_size=2, pin_memory=True)
    assert [(batch.is_pinned(), batch.npu().tolist()) for batch in loader] == [(True, [0, 1]), (True, [2, 3])]


def test_tensors_are_saved_copied_and_pickled(tmp_path):
    base = torch.arange(6.0, device="npu:1")
    saved = {"base": base, "view": base[2:4], "host": torch.ones(1), "number": 3}
    torch.save(saved, tmp_path / "state.pt")
    pickled = pickle.loads(pickle.dumps(base))
    assert pickled.device == base.device
    assert torch.equal(pickled, base)
    for loaded in (torch.load(tmp_path / "state.pt"), copy.deepcopy(saved)):
        assert loaded["base"].device == torch.device("npu:1")
        assert loaded["base"].tolist() == base.tolist()
        loaded["base"].zero_()
        assert loaded["view"].tolist() == [0, 0]  # they share memory, as the originals do
        assert loaded["host"].device.type == "cpu"
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    for place, device in (("cpu", "cpu"), ("npu:0", "npu:0"), ({"npu:1": "npu:0"}, "npu:0")):
        assert torch.load(tmp_path / "state.pt", map_location=place)["view"].device == torch.device(device)


def test_a_module_is_deep_copied_on_its_device():
    module = torch.nn.Linear(2, 2).npu(1)
    twin = copy.deepcopy(module)
    with torch.no_grad():
        twin.weight.zero_()
    assert twin.weight.device == torch.device("npu:1")
    assert module.weight.abs().sum() > 0


def test_the_default_device_context():
    with torch.device("npu:1"):
        assert torch.ones(1).device == torch.device("npu:1")
        assert torch.nn.Linear(1, 1).weight.device == torch.device("npu:1")
    assert torch.ones(1).device.type == "cpu"
