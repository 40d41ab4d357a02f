"""torch.compile on npu: Dynamo's view of the device, and Inductor's kernels against Inductor's on CPU."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from torch_vnpu import _C

F = nn.functional


@pytest.fixture(autouse=True)
def compiler(tmp_path, monkeypatch):
    """No cache from before, and no pool of processes that compile."""
    import torch._inductor.config as config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with config.patch(compile_threads=1, fx_graph_cache=False):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


def by_queries(x):
    if torch.npu.is_available() and torch.npu.device_count() == 2 and torch.npu.is_bf16_supported():
        return x + torch.npu.current_device()
    return x * 0


def on_another_stream(x):
    stream = torch.npu.current_stream()
    side = SIDE[0]
    side.wait_stream(stream)
    with torch.npu.stream(side):
        y = x * 2
    stream.wait_stream(side)
    return y + 1


SIDE = []


def test_dynamo_folds_what_torch_npu_says_of_the_device():
    compiled = torch.compile(by_queries, backend="eager", fullgraph=True)
    x = torch.ones(2, device="npu:1")
    assert compiled(x).tolist() == [1, 1]
    with torch.npu.device(1):  # a guard on the current device
        assert compiled(x).tolist() == [2, 2]


def test_dynamo_traces_streams():
    SIDE.append(torch.npu.Stream())
    compiled = torch.compile(on_another_stream, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3, device="npu")).tolist() == [3, 3, 3]


def test_the_device_interface_is_that_of_npu():
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("npu:1")
    assert interface is get_interface_for_device(torch.device("npu"))
    header = (Path(__file__).parents[1] / "csrc/runtime/vnpu_runtime.h").read_text()
    most = int(re.search(r"#define VNPU_MAX_DEVICES (\d+)", header)[1])
    assert interface is get_interface_for_device(f"npu:{most - 1}")
    assert interface.device_count() == 2
    assert interface.exchange_device(1) == 0
    assert torch.npu.current_device() == 1
    assert interface.maybe_exchange_device(-1) == -1
    assert interface.maybe_exchange_device(0) == 1
    assert torch.npu.current_device() == 0
    stream = torch.npu.Stream(1)
    interface._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert torch.npu.current_stream(1) == stream
    assert interface.get_raw_stream(1) == stream.npu_stream
    assert interface.is_bf16_supported()
    assert not interface.is_triton_capable()


def test_the_backend_npu_runs_the_graph_with_npu_kernels():
    import torch._dynamo

    assert "npu" in torch._dynamo.list_backends()
    launched = []
    compiled = torch.compile(lambda a: torch.relu(a @ a), backend="npu", fullgraph=True)
    x = torch.randn(4, 4, device="npu", requires_grad=True)
    compiled(x)
    listener = _C.subscribe(lambda *event: launched.append(event[3]), ["launch"])
    try:
        compiled(x).sum().backward()
    finally:
        _C.unsubscribe(listener)
    assert "aten::mm" in launched
    assert x.grad.device.type == "npu"


FUNCTIONS = {
    "pointwise and matmul": lambda a, b: ((a @ b).relu() + a.sum(1, keepdim=True)).sin(),
    "loops in two orders": lambda a, b: (a.t() + b).sum(1) + (a * b.t()).amax(0),
    "indices": lambda a, b: a[torch.arange(8, device=a.device) % 3].mean(0) + b.argmax(1),
    "float16 softmax": lambda a, b: F.gelu(a.half() * 3).softmax(-1) + b.bfloat16().float().sum(0).half(),
    "padding and pooling": lambda a, b: F.max_pool2d(F.pad(torch.where(a > 0, a, b), (1, 2))[None, None], 3, 2, 1),
    "sorted, in place": lambda a, b: torch.cat([a, b.clone().mul_(2)]).sort(0).values,
    "a constant on CPU": lambda a, b: a * torch.tensor(3.0) + b,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inductor_gives_what_it_gives_on_cpu_on_the_device_of_the_input(name):
    arguments = [torch.randn(33, 33), torch.randn(33, 33)]
    expected = torch.compile(FUNCTIONS[name], fullgraph=True)(*arguments)
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True)
    for _ in range(2):
        result = compiled(*[argument.to("npu:1") for argument in arguments])
        assert result.device == torch.device("npu:1")
        torch.testing.assert_close(result.cpu(), expected, rtol=0, atol=0)


def test_inductor_waits_for_what_is_queued_and_works_on_other_streams():
    x = torch.full((300, 300), 1 / 300, device="npu")
    compiled = torch.compile(lambda a: (a + 1).sin())
    compiled(x)
    with torch.npu.stream(torch.npu.Stream()):
        y = x
        for _ in range(20):
            y = y @ x
        result = compiled(y)
    torch.npu.synchronize()
    torch.testing.assert_close(result.cpu(), (y.cpu() + 1).sin())


def test_a_compiled_training_equals_the_one_on_cpu():
    def trained(device, compiled):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 4)
        )
        model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(1)
        step = torch.compile(model) if compiled else model
        for _ in range(3):
            optimizer.zero_grad()
            step(torch.randn(4, 3, 4, 4).to(device)).pow(2).mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()])

    torch.testing.assert_close(trained("npu", True), trained("cpu", False), rtol=1e-4, atol=1e-6)


def test_dropout_draws_from_the_generator_of_npu():
    compiled = torch.compile(lambda a: F.dropout(a, 0.5))
    x = torch.ones(100, 100, device="npu")
    draws = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        draws.append(compiled(x))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert 0.45 < (draws[0] == 0).float().mean().item() < 0.55


def test_a_program_in_cpp_is_refused_in_one_sentence():
    import torch._inductor.config as config

    with (
        config.patch(cpp_wrapper=True),
        pytest.raises(Exception, match="makes Python code only: cpp_wrapper and AOTInductor"),
    ):
        torch.compile(lambda a: a + 1)(torch.ones(2, device="npu"))


def test_the_hooks_load_nothing_before_torch_does(with_torch):
    run = with_torch(
        """
        import sys, torch, torch_vnpu
        def loaded():
            return [name for name in sys.modules if name.startswith("torch_vnpu.compile")]
        print(loaded())
        import torch._dynamo
        print(sorted(loaded()))
        print([patch.id for patch in torch_vnpu._init.patches.manager.patches if "inductor" in patch.id])
        import torch._inductor.compile_fx
        print([patch.id for patch in torch_vnpu._init.patches.manager.applied if "inductor" in patch.id])
        from torch._inductor.scheduler import BaseSchedulerNode
        torch_vnpu._init.patches.manager.revert("inductor-cpu-loops")
        print(BaseSchedulerNode.is_cpu.__module__)
        """
    )
    assert run.passed().lines == [
        "[]",
        "['torch_vnpu.compile', 'torch_vnpu.compile.dynamo']",
        "[]",
        "['inductor-cpu-loops', 'inductor-cpu-backend']",
        "torch._inductor.scheduler",
    ]


def test_torch_loads_its_compiler_whatever_the_environment_says_of_devices(with_torch):
    # torch.manual_seed loads Dynamo; what is wrong is told at the first use of a device.
    run = with_torch(
        """
        import os, torch, torch_vnpu
        torch.manual_seed(1)
        import torch._dynamo.device_interface as interfaces
        import torch._inductor.compile_fx
        os.environ["VNPU_DEVICES"] = "4"
        print(interfaces.get_interface_for_device("npu:3").device_count(), torch.npu.is_initialized())
        interfaces.get_interface_for_device("npu").Worker.get_device_properties()
        print(torch.npu.is_initialized())
        """,
        VNPU_DEVICES="nonsense",
    )
    assert run.passed().lines == ["4 False", "False"]


def test_the_hooks_act_at_once_where_the_compiler_is_loaded_already(with_torch):
    with_torch(
        """
        import torch, torch._dynamo, torch._inductor.compile_fx
        from torch._dynamo.device_interface import get_interface_for_device
        torch._dynamo.trace_rules.get_torch_obj_rule_map()  # built without npu
        import torch_vnpu
        assert get_interface_for_device("npu").device_count() == 2
        def f(x):
            return x * 2 if torch.npu.is_available() else x
        assert torch.compile(f, backend="eager", fullgraph=True)(torch.ones(1, device="npu")).tolist() == [2]
        from torch._inductor.codegen.common import get_scheduling_for_device
        assert get_scheduling_for_device("npu") is not None
        """
    ).passed()


@pytest.mark.parametrize("first", ["dynamo", "inductor", "inductor_patches"])
def test_the_modules_of_the_compiler_may_be_imported_first(with_torch, first):
    with_torch(
        f"""
        import torch_vnpu.compile.{first}
        import torch
        from torch._dynamo.device_interface import get_interface_for_device
        assert get_interface_for_device("npu:1").device_count() == 2
        def f(x):
            return x * 2 if torch.npu.is_available() else x
        for backend in ("eager", "npu"):
            assert torch.compile(f, backend=backend, fullgraph=True)(torch.ones(1, device="npu")).tolist() == [2]
        import torch._inductor.compile_fx
        from torch._inductor.codegen.common import get_scheduling_for_device
        assert get_scheduling_for_device("npu") is not None
        from torch_vnpu._init.patches import manager
        assert {{"inductor-cpu-loops", "inductor-cpu-backend"}} <= {{patch.id for patch in manager.applied}}
        """
    ).passed()


def test_checkpointing_without_a_tensor_on_npu_repeats_the_autocast_of_npu(with_vnpu):
    run = with_vnpu(
        """
        import os, torch
        from torch.utils.checkpoint import DefaultDeviceType, checkpoint
        print(DefaultDeviceType.get_device_type())  # asked for the first time where there is no device
        os.environ["VNPU_DEVICES"] = "2"
        weight = torch.ones(4, 4, device="npu", requires_grad=True)
        def forward(unused):
            print(torch.is_autocast_enabled("npu"))
            return weight @ weight
        with torch.autocast("npu"):
            loss = checkpoint(forward, torch.ones(1), use_reentrant=False)
        loss.float().sum().backward()
        """,
        VNPU_DEVICES="0",
    )
    assert run.passed().lines == ["npu", "True", "True"]
