"""CUDA's names redirected to npu: what is translated, what stays, and that all of it can be taken back."""

import copy
import importlib.util
import io
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_vnpu.contrib import _transfer, cuda_on_npu
from torch_vnpu.contrib._transfer import manager, translate

FACTORIES = ("empty", "zeros", "ones", "rand", "randn")


@pytest.fixture
def redirected() -> Iterator[None]:
    with cuda_on_npu():
        yield


def names() -> dict[tuple[str, str], object]:
    """What stands at every name of the modules and classes that are written."""
    places: tuple[Any, ...] = (
        torch,
        torch.cuda,
        torch.cuda.memory,
        torch.cuda.random,
        torch.cuda.streams,
        torch.Tensor,
        torch.nn.Module,
        torch.serialization,
        torch.amp.autocast_mode,
        torch.distributed,
    )
    return {(place.__name__, name): value for place in places for name, value in list(vars(place).items())}


def test_everything_is_put_back() -> None:
    with cuda_on_npu():  # what is imported meanwhile is there already the next time
        pass
    before = names()
    with cuda_on_npu():
        during = names()
    after = names()
    assert sum(during[key] is not before[key] for key in before) > 100
    assert [key for key in before if after[key] is not before[key]] == []
    assert after.keys() == before.keys()


def test_off_it_is_as_if_it_had_never_been_on() -> None:
    with cuda_on_npu():
        pass
    assert not torch.cuda.is_available()
    assert torch.device("cuda").type == "cuda"
    with pytest.raises((AssertionError, RuntimeError), match="CUDA"):
        torch.zeros(1, device="cuda")


def test_it_nests_and_repeats() -> None:
    with cuda_on_npu():
        with cuda_on_npu():
            assert torch.cuda.is_available()
        assert torch.cuda.is_available()
        assert _transfer.is_active()
    assert not _transfer.is_active()
    _transfer.deactivate()
    with cuda_on_npu():
        assert torch.zeros(1, device="cuda").is_cuda


def test_contexts_may_overlap_and_activate_outlasts_them() -> None:
    first, second = cuda_on_npu(), cuda_on_npu()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.zeros(1, device="cuda").is_npu
    second.__exit__(None, None, None)
    assert not _transfer.is_active()

    with cuda_on_npu():
        _transfer.activate()
    try:
        assert torch.zeros(1, device="cuda").is_npu
        with cuda_on_npu():
            _transfer.deactivate()
            assert not _transfer.is_active()
    finally:
        _transfer.deactivate()
    assert not _transfer.is_active()


def test_contexts_of_several_threads_overlap() -> None:
    failures: list[str] = []
    inside, left = threading.Barrier(2), threading.Event()

    def one(leaves_first: bool) -> None:
        with cuda_on_npu():
            inside.wait(60)
            if not leaves_first:
                left.wait(60)
                if not torch.zeros(1, device="cuda").is_npu:
                    failures.append("not redirected")
                return
        left.set()

    threads = [threading.Thread(target=one, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert left.is_set()
    assert not failures
    assert not _transfer.is_active()


def test_a_plain_import_applies_nothing(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import sys, torch
        print(torch.cuda.is_available(), "torch_vnpu.contrib" in sys.modules)
        import torch_vnpu.contrib
        print(torch.cuda.is_available())
        import torch_vnpu.contrib.transfer_to_npu as transfer
        print(torch.cuda.is_available())
        transfer.deactivate()
        print(torch.cuda.is_available())
    """).passed()
    assert done.lines == ["False False", "False", "True", "False"]


def test_every_write_is_declared_with_its_reason(redirected: None) -> None:
    applied = [patch for patch in manager.patches if patch.group != "compile"]
    assert all(patch.applied and patch.reason and patch.remove_when and patch.targets for patch in applied)


@pytest.mark.usefixtures("redirected")
class TestDevices:
    @settings(deadline=None)
    @given(st.integers(0, 100))
    def test_a_device_of_cuda_is_one_of_npu(self, index: int) -> None:
        for made in (
            torch.device(f"cuda:{index}"),
            torch.device("cuda", index),
            torch.device(type="cuda", index=index),
        ):
            assert made == torch.device("npu", index)
            assert isinstance(made, torch.device)
            assert type(made) == torch.device  # noqa: E721  (torch compares classes so)
            assert type(made) in {torch.device}
            assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made

    @pytest.mark.parametrize("text", ["cpu", "meta", "npu:1", "cpu:0"])
    def test_another_device_stays(self, text: str) -> None:
        assert str(torch.device(text)) == text

    def test_a_wrong_device_is_refused_as_ever(self) -> None:
        with pytest.raises(RuntimeError, match="cudo"):
            torch.device("cudo")
        with pytest.raises(RuntimeError, match="cudo"):
            torch.zeros(1, device="cudo")
        assert not isinstance("cuda", torch.device)

    @pytest.mark.parametrize("place", ["cuda", "cuda:0", torch.device("npu:0"), 0])
    def test_factories(self, place: Any) -> None:
        with cuda_on_npu():
            tensors = [getattr(torch, name)(3, device=place) for name in FACTORIES]
            tensors += [
                torch.tensor([1.0], device=place),
                torch.as_tensor([1.0], device=place),
                torch.asarray([1.0], device=place),
                torch.arange(3, device=place),
                torch.full((2,), 1.0, device=place),
                torch.eye(2, device=place),
                torch.zeros_like(torch.ones(2), device=place),
                torch.normal(0.0, 1.0, (2,), device=place),
                torch.fft.fftfreq(4, device=place),
                torch.hann_window(4, device=place),
                torch.ones(2).new_zeros(2, device=place),
                torch.ones(2).to(place),
                torch.ones(2).to(device=place),
                torch.ones(2).cuda(place),
            ]
        assert {str(tensor.device) for tensor in tensors} == {"npu:0"}

    def test_tensors_made_elsewhere_stay_elsewhere(self) -> None:
        assert torch.zeros(2).device == torch.device("cpu")
        assert torch.ones(2, device="cuda").to(torch.float64).device == torch.device("cuda:0")
        assert torch.ones(2).to(torch.ones(1, device="cuda")).is_cuda
        assert not torch.ones(2).is_cuda
        assert torch.UntypedStorage(4, device="npu").is_cuda

    def test_another_thread_is_redirected_too(self) -> None:
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(str(torch.zeros(1, device="cuda:1").device)))
        thread.start()
        thread.join()
        assert found == ["npu:1"]

    def test_modules(self) -> None:
        model = torch.nn.Linear(2, 2)
        weight = model.weight
        for move in (
            lambda: model.cuda(),
            lambda: model.cpu(),
            lambda: model.to("cuda:1"),
            lambda: model.to(device="cpu"),
        ):
            assert move() is model
            assert model.weight is weight
        assert torch.nn.Linear(2, 2, device="cuda").weight.is_cuda
        packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2)])
        assert packed.cuda().is_cuda

    def test_functions_that_others_took_go_on_working_afterwards(self) -> None:
        from torch import zeros

        _transfer.deactivate()
        assert zeros(2).tolist() == [0, 0]


@settings(deadline=None)
@given(st.text(max_size=12))
def test_what_is_not_cuda_is_left_alone(text: str) -> None:
    if not (text == "cuda" or text.startswith("cuda:")):
        assert translate.device(text) is text
    assert translate.device(translate.device(text)) == translate.device(text)


@pytest.mark.parametrize(
    ("cuda", "npu"),
    [
        ("nccl", "hccl"),
        ("NCCL", "hccl"),
        ("cpu:gloo,cuda:nccl", "cpu:gloo,npu:hccl"),
        ("gloo", "gloo"),
        ("mpi", "mpi"),
    ],
)
def test_process_group_backends(redirected: None, cuda: str, npu: str) -> None:
    assert torch.distributed.Backend(cuda) == npu


def test_half_precision_needs_no_cuda(redirected: None) -> None:
    model, x = torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2).cuda()
    for context in (torch.autocast("cuda"), torch.amp.autocast("cuda"), torch.autocast(device_type="cuda")):
        with context:
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            assert model(x).dtype is torch.float16
    assert not torch.is_autocast_enabled()
    assert torch.amp.GradScaler().is_enabled()
    assert torch.amp.GradScaler("cuda").scale(x.sum()).is_cuda


def test_what_no_npu_can_do_is_refused_with_its_reason(redirected: None) -> None:
    with pytest.raises(NotImplementedError, match="captured and replayed"):
        torch.cuda.CUDAGraph()


class TestScripting:
    def test_functions_are_scripted_as_before(self, redirected: None) -> None:
        def work(x: torch.Tensor, device: torch.device) -> torch.Tensor:
            if isinstance(device, torch.device):
                x = x + torch.zeros(2, device=device)
            return x.to(torch.device("cuda")) + torch.ones(2, device="cuda")

        scripted = torch.jit.script(work)
        assert torch.equal(scripted(torch.ones(2), torch.device("cpu")).cpu(), torch.full((2,), 2.0))

    def test_functions_written_before(self) -> None:
        def work(x: torch.Tensor, device: torch.device) -> torch.Tensor:
            return x.to(device)

        with cuda_on_npu():
            scripted = torch.jit.script(work)
            assert scripted(torch.ones(1), torch.device("cuda")).is_cuda
        assert torch.jit.script(work)(torch.ones(1), torch.device("cpu")).device.type == "cpu"

    def test_a_module_is_scripted_saved_and_loaded_on_the_device(self, redirected: None) -> None:
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()).cuda()), file)
        file.seek(0)
        loaded = torch.jit.load(file, map_location=torch.device("cuda:1"))
        assert loaded(torch.ones(1, 2, device="cuda:1")).device == torch.device("cuda:1")

    def test_traces(self, redirected: None) -> None:
        traced = torch.jit.trace(lambda x: x.to("cuda") + torch.ones(1, device="cuda"), torch.ones(1))
        assert traced(torch.ones(1)).is_cuda


COMPILED = """
    import torch
    {before}
    from torch_vnpu.contrib import cuda_on_npu

    def work(x):
        return x.to("cuda") + x.cuda() + x.new_ones(2, device="cuda") + torch.zeros(2, device=torch.device("cuda"))

    with cuda_on_npu():
        print(torch.compile(work, backend="aot_eager", fullgraph=True)(torch.ones(2)).tolist())

    def plain(x):
        return x.to("cpu") + torch.zeros(2)

    print(torch.compile(plain, backend="eager", fullgraph=True)(torch.ones(2)).tolist())
"""


@pytest.mark.parametrize("before", ["import torch._dynamo", ""], ids=["dynamo-first", "dynamo-later"])
def test_compiled_code(fresh: Any, before: str) -> None:
    code = COMPILED.format(before=before)
    assert fresh(code).passed().lines == ["[3.0, 3.0]", "[1.0, 1.0]"]


@pytest.mark.skipif(
    importlib.util.find_spec("torch_vnpu.compile") is None,
    reason="Dynamo does not know the functions of torch.npu yet (issue 4)",
)
@pytest.mark.parametrize("before", ["import torch._dynamo", ""], ids=["dynamo-first", "dynamo-later"])
def test_compiled_code_asks_for_the_device(fresh: Any, before: str) -> None:
    code = f"""
        import torch
        {before}
        import torch_vnpu.contrib.transfer_to_npu

        @torch.compile(backend="aot_eager", fullgraph=True)
        def work(x):
            if torch.cuda.is_available() and torch.cuda.device_count() > torch.cuda.current_device():
                x = x.cuda()
            torch.cuda.synchronize()
            return x + 1

        print(work(torch.ones(2)).device)
    """
    assert fresh(code).passed().lines == ["npu:0"]
