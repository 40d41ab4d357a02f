"""`import torch_vnpu`: orders of imports, what the import leaves untouched, conflicts, failures, forks, the environment."""

import pytest

CPU_WORKS = """
    assert (torch.ones(2) + 1).tolist() == [2, 2]
    leaf = torch.ones(2, requires_grad=True)
    (leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3]
"""


def test_torch_vnpu_then_torch(fresh):
    run = fresh(
        """
        import os, subprocess
        import torch_vnpu
        import torch
        assert torch.npu is torch_vnpu.npu and not torch.npu.is_initialized()
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD" not in os.environ
        subprocess.run("echo ${TORCH_DEVICE_BACKEND_AUTOLOAD-unset}", shell=True)
        print((torch.ones(2, device="npu") + 1).sum().item())
        """
    ).passed()
    assert run.lines == ["unset", "4.0"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_autoload_variable_is_what_it_was_after_the_import(fresh, value):
    run = fresh(
        """
        import os, subprocess
        import torch_vnpu, torch
        print(os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"], flush=True)
        subprocess.run("echo $TORCH_DEVICE_BACKEND_AUTOLOAD", shell=True)
        print(torch.ones(2).npu().sum().item())
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD=value,
    ).passed()
    assert run.lines == [value, value, "2.0"]


def test_autoload_by_torch_alone_and_the_explicit_import_after_it(fresh):
    run = fresh(
        """
        import sys
        import torch
        assert "torch_vnpu" in sys.modules and not torch.npu.is_initialized()
        module = torch.npu
        import torch_vnpu
        assert torch_vnpu.npu is module
        print((torch.ones(2, device="npu") + 1).sum().item())
        """
    ).passed()
    assert run.lines == ["4.0"]


def test_without_autoload_the_backend_is_absent_until_it_is_imported(with_torch):
    run = with_torch(
        """
        import sys, torch
        assert not hasattr(torch, "npu") and "torch_vnpu" not in sys.modules
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        import torch_vnpu
        print((torch.ones(2, device="npu") + 1).sum().item())
        """
    ).passed()
    assert run.lines == ["4.0"]


def test_the_import_is_idempotent(with_torch):
    with_torch(
        """
        import importlib, sys, torch
        import torch_vnpu
        module, add = torch.npu, torch._C._broadcast
        import torch_vnpu
        importlib.reload(torch_vnpu)
        del sys.modules["torch_vnpu"]
        import torch_vnpu
        assert torch.npu is module and torch._C._broadcast is add and torch_vnpu.npu is module
        import torch.npu as again
        assert again is module
        """
    ).passed()


def test_the_import_touches_no_device_and_loads_no_compiler(with_torch):
    with_torch(
        """
        import os, sys, torch
        os.environ["VNPU_DEVICES"] = "nonsense"  # nothing reads it
        import torch_vnpu
        assert not torch.npu.is_initialized() and not torch_vnpu._C.is_initialized()
        assert not [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]
        os.environ["VNPU_DEVICES"] = "3"
        assert torch.npu.device_count() == 3
        os.environ["VNPU_DEVICES"] = "5"
        os.environ["ASCEND_RT_VISIBLE_DEVICES"] = "4,0,1"
        assert torch.npu.device_count() == torch.accelerator.device_count() == 3
        torch.npu.init()
        os.environ["VNPU_DEVICES"] = "1"
        assert torch.npu.device_count() == 3
        """
    ).passed()


STAGE_CALLS = [
    "conflicts.check_device_conflicts",
    "core.load_core_modules",
    "registry.register_components",
    "patches.apply_patches",
    "features.enable_optional_features",
    "lifecycle.start_runtime_lifecycle",
]


def test_the_import_is_six_stages_in_order_and_ends_with_one_native_barrier(with_torch):
    run = with_torch(
        """
        import sys, torch
        seen, depth = [], []
        def watch(frame, event, argument):
            name = frame.f_globals.get("__name__", "")
            if event == "call" and frame.f_back is not None and frame.f_back.f_code.co_name == "_initialise":
                if name.startswith("torch_vnpu._init.") and not frame.f_code.co_name.startswith("<"):
                    seen.append(name.removeprefix("torch_vnpu._init.") + "." + frame.f_code.co_name)
            elif event == "c_call":
                called = getattr(argument, "__name__", "")
                module = getattr(argument, "__module__", "") or ""
                if called in ("finish_import", "_rename_privateuse1_backend", "register_kernels") or called == "dlopen":
                    seen.append(called)
            elif event == "call" and frame.f_code.co_name in ("rename_privateuse1_backend", "_register_device_module"):
                seen.append(frame.f_code.co_name)
        sys.setprofile(watch)
        import torch_vnpu
        sys.setprofile(None)
        for name in seen:
            print(name)
        """
    ).passed()
    assert [name for name in run.lines if "." in name] == STAGE_CALLS
    native = [name for name in run.lines if "." not in name]
    # Renaming the backend and registering its module stand next to each other.
    at = native.index("rename_privateuse1_backend")
    between = native[at + 1 : native.index("_register_device_module")]
    assert [name for name in between if name != "_rename_privateuse1_backend"] == []
    # The barrier comes once, after everything else.
    assert native.count("finish_import") == 1
    assert run.lines[-1] == "finish_import"
    assert run.lines.index("register_kernels") > run.lines.index("core.load_core_modules")


def test_what_is_loaded_after_the_import_and_what_is_not(with_torch):
    run = with_torch(
        """
        import sys, threading, torch
        before, threads = set(sys.modules), threading.active_count()
        import torch_vnpu
        print(sorted({".".join(name.split(".")[:2]) for name in set(sys.modules) - before}))
        assert threading.active_count() == threads
        print(torch._C._get_privateuse1_backend_name(), torch.npu.is_initialized(), torch_vnpu._C.listening())
        import importlib.metadata
        print(torch_vnpu.__version__ == importlib.metadata.version("torch_vnpu"))
        """
    ).passed()
    loaded = set(eval(run.lines[0]))
    assert {name for name in loaded if name.startswith(("torch.", "torch_vnpu"))} == {
        "torch.npu",
        "torch_vnpu",
        "torch_vnpu._C",
        "torch_vnpu._init",
        "torch_vnpu.errors",
        "torch_vnpu.npu",
        "torch_vnpu.ops",
    }
    assert {name.split(".")[0] for name in loaded} == {"packaging", "torch", "torch_vnpu", "unpatch", "wrapt"}
    assert run.lines[1:] == ["npu False False", "True"]


def test_every_patch_is_the_declared_object_itself_and_is_applied_once(with_torch):
    run = with_torch(
        """
        import importlib, pydoc, torch
        import torch_vnpu
        from torch_vnpu._init.patches import apply_patches, manager
        def written():
            return {write.target: now(write.target) for patch in manager.applied for write in patch.writes}
        def now(target):
            if target.endswith("]"):
                table, key = target[:-1].split("[")
                return pydoc.locate(table)[pydoc.locate(key)]
            return pydoc.locate(target)
        first = written()
        for patch in manager.applied:
            assert patch.reason and patch.remove_when and patch.versions and patch.origin.introduced, patch.id
            for write in patch.writes:
                assert first[write.target] is write.replacement, write.target
        apply_patches()
        importlib.reload(torch_vnpu)
        assert all(written()[target] is value for target, value in first.items())
        print(sorted(patch.id for patch in manager.applied))
        print(sorted(write.target for patch in manager.applied for write in patch.writes if write.kind == "replace"))
        """
    ).passed()
    assert eval(run.lines[0]) == [
        "dataparallel-communication",
        "deprecated-operators",
        "dlpack-device",
        "rpc-backend-types",
        "storage-sharing",
        "trace-metadata",
        "trace-names",
    ]
    assert eval(run.lines[1]) == [
        "multiprocessing.reduction.ForkingPickler._extra_reducers[torch.UntypedStorage]",
        "torch.Tensor.__dlpack_device__",
        "torch.autograd._add_metadata_json",
        "torch.autograd.profiler.profile.export_chrome_trace",
        "torch.distributed.rpc.BackendType",
        "torch.profiler.profiler._KinetoProfile.add_metadata",
    ]


QUERIES = [
    "torch.npu.is_available()",
    "torch.npu.device_count()",
    "torch.npu.is_initialized()",
    "torch.npu.is_bf16_supported()",
    "torch.npu.get_amp_supported_dtype()",
    "torch.accelerator.is_available()",
    "torch.accelerator.current_accelerator()",
    "torch.accelerator.device_count()",
    "torch.ones(2).is_pinned()",
    "torch.ones(2).is_npu",
    "torch.device('npu:1')",
    "torch.manual_seed(3)",
    "torch.npu.manual_seed(3)",
    "torch.npu.manual_seed_all(3)",
    "torch.npu.device(1)",
    "list(torch.npu.default_generators)",
    "torch.autocast('npu')",
    "torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()",
    "torch._C._broadcast(torch.ones(2), [-1])",
    "dir(torch.npu)",
]


def test_queries_do_not_start_the_runtime(with_vnpu):
    code = "import os, torch, torch_vnpu\n"
    for query in QUERIES:
        code += f"{query}\nassert not torch_vnpu._C.is_initialized() and not torch.npu.is_initialized(), {query!r}\n"
    with_vnpu(code + "os.environ['VNPU_DEVICES'] = '7'\nassert torch.npu.device_count() == 7").passed()


FIRST_USES = [
    "torch.npu.init()",
    "torch.empty(1, device='npu')",
    "torch.tensor([1.0], device='npu:1')",
    "torch.zeros_like(torch.ones(1), device='npu')",
    "torch.ones(1).to('npu')",
    "torch.ones(1).npu()",
    "torch.nn.Linear(1, 1).npu()",
    "torch.UntypedStorage(4, device='npu')",
    "torch.ones(1).untyped_storage().npu()",
    "torch.npu.set_device(1)",
    "torch.npu.current_device()",
    "torch.npu.synchronize()",
    "torch.npu.current_stream()",
    "torch.npu.default_stream()",
    "torch.npu.Stream()",
    "torch.npu.Event()",
    "torch.npu.mem_get_info()",
    "torch.npu.memory_allocated()",
    "torch.npu.get_device_properties()",
    "torch.npu.get_rng_state()",
    "torch.ops.aten.empty.memory_format([1], device=torch.device('npu'))",
    "torch.accelerator.set_device_index(1)",
    "torch.accelerator.current_device_index()",
    "torch.accelerator.synchronize()",
    "torch.accelerator.current_stream()",
    "torch.npu.device(1).__enter__()",
    "torch.device('npu').__enter__(); torch.ones(1)",
    "torch.func.grad(lambda x: (x * torch.ones(1, device='npu').cpu()).sum())(torch.ones(1))",
    "torch.inference_mode().__enter__(); torch.ones(1, device='npu')",
    "torch.no_grad().__enter__(); torch.ones(1, device='npu')",
]


@pytest.mark.parametrize("use", FIRST_USES)
def test_the_first_use_starts_the_runtime_and_applies_the_seed(with_vnpu, use):
    with_vnpu(
        f"""
        import torch
        expected = torch.rand(3, generator=torch.Generator().manual_seed(7))
        torch.manual_seed(7)
        {use}
        assert torch.npu.is_initialized()
        for index in range(2):
            assert torch.equal(torch.rand(3, device=f"npu:{{index}}").cpu(), expected)
        """
    ).passed()


def test_every_seed_before_the_first_use_counts_and_devices_that_appear_later_get_it_too(with_vnpu):
    with_vnpu(
        """
        import os, torch
        def seeds():
            return [generator.initial_seed() for generator in torch.npu.default_generators]
        assert seeds() == [67280421310721, 67280421310721]
        torch.npu.set_rng_state(torch.Generator().manual_seed(5).get_state(), 1)
        assert seeds() == [67280421310721, 5]
        torch.npu.manual_seed_all(2)
        torch.npu.manual_seed(3)
        assert seeds() == [3, 2]
        os.environ["VNPU_DEVICES"] = "4"
        torch.npu.init()
        assert seeds() == [3, 2, 2, 2]
        torch.manual_seed(-1)
        assert seeds() == [2**64 - 1] * 4 and torch.initial_seed() == 2**64 - 1
        """
    ).passed()


def test_starting_leaves_no_trace_in_the_memory_figures(with_vnpu):
    run = with_vnpu(
        """
        import torch
        torch.npu.init()
        stats = torch.npu.memory_stats()
        print(stats["allocation.all.allocated"], stats["allocated_bytes.all.peak"])
        """
    )
    assert run.passed().lines == ["0 0"]


def test_the_first_use_from_eight_threads_at_once(with_vnpu):
    run = with_vnpu(
        """
        import threading, torch
        torch.manual_seed(11)
        barrier, numbers, problems = threading.Barrier(8), [], []
        def use(k):
            try:
                barrier.wait()
                with torch.npu.device(k % 2):
                    x = torch.rand(1, device="npu:0")
                    numbers.append(x.item())
                    y = torch.ones(4, device="npu", requires_grad=True)
                    (y * k).sum().backward()
                    assert y.grad.device.index == k % 2 and y.grad.tolist() == [k] * 4
            except BaseException as error:
                problems.append(repr(error))
        threads = [threading.Thread(target=use, args=(k,)) for k in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        generator = torch.Generator().manual_seed(11)
        expected = sorted(torch.rand(1, generator=generator).item() for _ in range(8))
        print(problems, sorted(numbers) == expected)
        """
    )
    assert run.passed().lines == ["[] True"]


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        ("torch.cuda.is_available = lambda: True", ["'cuda'", "'npu'", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"]),
        ("torch.xpu.is_available = lambda: True", ["'xpu'", "'npu'", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"]),
        ("torch.utils.rename_privateuse1_backend('other')", ["'other'", "'npu'", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"]),
        ("torch.utils.rename_privateuse1_backend('npu')", ["'npu'", "torch_npu", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"]),
        ("torch.npu = object()", ["'npu'", "torch_npu", "TORCH_DEVICE_BACKEND_AUTOLOAD=0"]),
        ("torch.__version__ = '2.12.1'", ["2.13", "2.12.1"]),
        ("torch.__version__ = '2.130.0'", ["2.13", "2.130.0"]),
    ],
)
def test_a_conflict_is_refused_before_anything_is_loaded(with_torch, prepare, words):
    run = with_torch(
        f"""
        import sys, torch
        {prepare}
        name, present = torch._C._get_privateuse1_backend_name(), hasattr(torch, "npu")
        errors = []
        for _ in range(3):
            try:
                import torch_vnpu
            except RuntimeError as error:
                errors.append(error)
        assert len(errors) == 3 and errors[0] is errors[1] is errors[2]
        assert "torch_vnpu._C" not in sys.modules and "torch_vnpu" not in sys.modules
        assert torch._C._get_privateuse1_backend_name() == name and hasattr(torch, "npu") == present
        print(errors[0])
        """
        + (
            ""
            if "cuda" in prepare or "xpu" in prepare or "object" in prepare
            else CPU_WORKS.replace("\n    ", "\n        ")
        )
    )
    assert len(run.passed().lines) == 1
    assert [word for word in words if word not in run.out] == []


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cpu"])
def test_another_patch_release_of_torch_is_no_conflict(with_torch, version):
    with_torch(
        f"import torch\ntorch.__version__ = {version!r}\nimport torch_vnpu\ntorch.ones(1, device='npu')"
    ).passed()


# One way to make each stage fail, by what the stage uses of the world outside.
STAGES = {
    "conflicts": "torch.mps.is_available = lambda: 1 / 0",
    "core modules": "hide('torch_vnpu._C')",
    "registration": "torch._register_device_module = lambda *_: 1 / 0",
    "patches": "torch._C._scatter = len",
    "optional features": "sys.modules['torch_vnpu.sanitizer'] = None",
    "lifecycle": "import atexit; atexit.register = lambda *_: 1 / 0",
}

HIDE = """
import importlib.util, sys
def hide(name):
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda wanted, package=None: None if wanted == name else find(wanted, package)
"""


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_in_any_stage_is_kept_and_raised_again(with_torch, stage):
    run = with_torch(
        HIDE
        + "import torch\n"
        + STAGES[stage]
        + """
errors = []
for _ in range(3):
    try:
        import torch_vnpu
    except Exception as error:
        errors.append(error)
assert len(errors) == 3 and errors[0] is errors[1] is errors[2], errors
assert (torch.ones(2) + 1).tolist() == [2, 2]
leaf = torch.ones(2, requires_grad=True)
(leaf * 3).sum().backward()
assert leaf.grad.tolist() == [3, 3]
if %r:
    try:
        torch.ones(2, device="npu")
    except RuntimeError as error:
        assert "import of torch_vnpu has not finished" in str(error), error
    else:
        raise AssertionError("half imported, and used")
"""
        % (stage in ("patches", "optional features")),
        TORCH_NPU_SANITIZER=str(int(stage == "optional features")),
    )
    run.passed()


def test_under_autoload_a_failure_is_one_warning_and_the_explicit_import_raises_it(fresh):
    run = fresh(
        HIDE
        + """
hide("torch_vnpu._C")
import torch
assert (torch.ones(2) + 1).tolist() == [2, 2]
for _ in range(2):
    try:
        import torch_vnpu
    except ImportError as error:
        print(error)
"""
    )
    assert run.code == 0
    assert run.err.count("RuntimeWarning: torch_vnpu was not loaded: torch_vnpu is not complete") == 1
    assert "torch_vnpu._C" in run.err
    assert len(set(run.lines)) == 1
    assert "torch_vnpu._C is missing" in run.lines[0]
    assert len(run.lines) == 2


def test_under_autoload_a_conflict_is_one_warning_that_names_both_and_torch_works(fresh):
    run = fresh(
        """
        import importlib.machinery, sys
        # As soon as torch has its module for CUDA, a device appears.
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "torch_vnpu":
                    sys.modules["torch"].cuda.is_available = lambda: True
        sys.meta_path.insert(0, Finder())
        import torch
        torch.cuda.is_available = lambda: False
        print((torch.ones(2) + 1).tolist(), torch._C._get_privateuse1_backend_name(), "torch_vnpu._C" in sys.modules)
        try:
            import torch_vnpu
        except RuntimeError as error:
            print(error)
        """
    )
    assert run.code == 0
    assert run.err.count("RuntimeWarning: torch_vnpu was not loaded") == 1
    assert "'cuda'" in run.err
    assert run.lines[0] == "[2.0, 2.0] privateuseone False"
    assert "'npu'" in run.lines[1]
    assert "'cuda'" in run.lines[1]


def test_a_native_library_that_cannot_be_loaded_is_told_and_raised_again(with_torch, tmp_path):
    broken = tmp_path / "_C.cpython-311-x86_64-linux-gnu.so"
    broken.write_bytes(b"no library")
    run = with_torch(
        f"""
        import importlib.util, sys, torch
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "torch_vnpu._C":
                    return importlib.util.spec_from_file_location(name, {str(broken)!r})
        sys.meta_path.insert(0, Finder())
        errors = []
        for _ in range(2):
            try:
                import torch_vnpu
            except ImportError as error:
                errors.append(error)
        assert len(errors) == 2 and errors[0] is errors[1]
        print(errors[0])
        print((torch.ones(2) + 1).tolist(), torch._C._get_privateuse1_backend_name())
        """
    ).passed()
    assert str(broken) in run.lines[0]
    assert run.lines[1] == "[2.0, 2.0] privateuseone"


def test_a_backward_before_the_import_is_detected_at_the_first_use(with_torch):
    run = with_torch(
        """
        import torch
        torch.ones(1, requires_grad=True).sum().backward()
        import torch_vnpu
        for use in (torch.npu.init, lambda: torch.ones(1, device="npu"), torch.npu.current_device):
            try:
                use()
            except RuntimeError as error:
                print(error)
            assert not torch.npu.is_initialized()
        torch.ones(1, requires_grad=True).sum().backward()
        """
    ).passed()
    assert len(run.lines) == 3
    assert len(set(run.lines)) == 1
    assert "Import torch_vnpu before the first backward()" in run.out


def test_after_a_fork_with_the_runtime_running_the_child_is_told_to_spawn(with_vnpu):
    run = with_vnpu(
        """
        import os, torch
        x = torch.ones(2, device="npu")
        child = os.fork()
        if child == 0:
            told = 0
            for use in (
                lambda: torch.ones(1, device="npu"), lambda: x + 1, lambda: x.cpu(), lambda: x.add_(1), torch.npu.init,
                torch.npu.synchronize, torch.npu.Stream, lambda: torch.npu.set_device(1), torch.npu.mem_get_info,
            ):
                try:
                    use()
                except RuntimeError as error:
                    told += "'spawn'" in str(error)
            torch.manual_seed(1)
            print(told, torch.npu.is_initialized(), torch.npu._is_in_bad_fork(), (torch.ones(2) + 1).tolist(), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print((x + 1).tolist(), torch.npu.is_initialized())
        """
    )
    assert run.passed().lines == ["9 False True [2.0, 2.0]", "[2.0, 2.0] True"]


def test_a_fork_before_the_first_use_and_a_spawned_child_work(with_vnpu):
    run = with_vnpu(
        """
        import multiprocessing, os, torch
        child = os.fork()
        if child == 0:
            print((torch.ones(2, device="npu:1") + 1).tolist(), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.npu.init()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(eval, ("(__import__('torch').ones(2, device='npu') + 2).tolist()",)))
        """
    )
    assert run.passed().lines == ["[2.0, 2.0]", "[3.0, 3.0]"]


def test_a_process_that_worked_ends_without_a_word(fresh):
    run = fresh(
        """
        import threading, torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).npu()
        optimiser = torch.optim.Adam(model.parameters())
        def step(device):
            torch.npu.set_device(device)
            stream = torch.npu.Stream()
            with torch.npu.stream(stream):
                torch.rand(3, device="npu").sum().item()
        for thread in [threading.Thread(target=step, args=(k,)) for k in (0, 1)]:
            thread.start(); thread.join()
        model(torch.ones(2, 4, device="npu")).sum().backward()
        optimiser.step()
        kept = torch.nn.DataParallel(model)(torch.ones(4, 4, device="npu"))  # alive at exit, with its graph
        torch.ones(2).pin_memory().npu()
        from torch_vnpu import _C
        assert _C.listening()
        """,
        TORCH_NPU_SANITIZER="1",
    )
    assert (run.code, run.out, run.err) == (0, "", "")


def test_the_end_of_a_process_waits_for_its_queues(with_vnpu, tmp_path):
    file = tmp_path / "result"
    run = with_vnpu(
        f"""
        import sys, torch
        torch.set_num_threads(1)
        host = torch.from_file({str(file)!r}, shared=True, size=4, dtype=torch.float32)
        assert torch.npu.npurt().npuHostRegister(host.data_ptr(), 16, 0) == 0
        x = torch.full((600, 600), 1 / 600, device="npu")
        host.copy_(torch.ones(4, device="npu"), non_blocking=True)
        for _ in range(2):
            y = x
            for _ in range(30):
                y = y @ x
            host.copy_(y[0, :4] * 600 + 1, non_blocking=True)
        sys.exit()
        """
    )
    assert run.passed().out == ""
    import torch

    torch.testing.assert_close(torch.from_file(str(file), size=4, dtype=torch.float32), torch.full((4,), 2.0))


def test_errors_that_nobody_asked_for_are_told_at_the_end(with_vnpu):
    run = with_vnpu(
        """
        import sys, torch
        table = torch.ones(3, 4, device="npu:1")
        torch.nn.functional.embedding(torch.tensor([0], device="npu:1"), table)
        for stream in (torch.npu.Stream(1), torch.npu.Stream(1)):
            stream.wait_stream(torch.npu.current_stream(1))
            with torch.npu.stream(stream):
                torch.nn.functional.embedding(torch.tensor([9], device="npu:1"), table)
        sys.exit()
        """
    )
    assert (run.code, run.out) == (0, "")
    assert [line.split(": ")[:2] for line in run.err.splitlines()] == [["torch_vnpu", "npu:1 ended with an error"]] * 2
    assert run.err.count("aten::index_select failed: index out of range") == 2


def test_the_end_destroys_process_groups_but_not_those_of_a_parent(with_vnpu, tmp_path):
    run = with_vnpu(
        f"""
        import atexit, os, sys, torch
        import torch.distributed as dist
        from torch_vnpu._init import lifecycle
        destroyed, destroy = [], dist.destroy_process_group
        dist.init_process_group("hccl", init_method="file://{tmp_path}/store", rank=0, world_size=1)
        dist.destroy_process_group = lambda: destroyed.append(destroy())
        child = os.fork()
        if child == 0:
            lifecycle._shut_down()
            os._exit(len(destroyed))  # torch itself would wait for Gloo's threads, which a fork does not have
        print(os.waitpid(child, 0)[1])
        dist.all_reduce(torch.ones(1000, device="npu"), async_op=True)
        atexit.unregister(lifecycle._shut_down)
        atexit.register(lambda: print(destroyed, flush=True))
        atexit.register(lifecycle._shut_down)
        sys.exit()
        """
    )
    assert run.code == 0
    assert run.lines == ["0", "[None]"]


def test_processes_that_end_at_once_never_abort(with_torch):
    # The autograd engine's threads are young then; one that still started would take the interpreter's end for its own.
    run = with_torch(
        """
        import gc, os, sys, torch, torch_vnpu
        gc.freeze()  # or each child would copy every page
        def ends(work):
            child = os.fork()
            if child == 0:
                work()
                sys.exit()
            return os.waitpid(child, 0)[1]
        def step():
            x = torch.ones(2, device="npu:1", requires_grad=True)
            (x.npu(0) * 2).sum().backward()
        print({ends(work) for work in (torch.npu.init, lambda: torch.ones(2).npu().sum().item(), step) for _ in range(5)})
        """
    )
    assert run.passed().lines == ["{0}"]


@pytest.mark.parametrize("value", ["two", "-1", "65", "1.5", "2 x", "99999999999999999999"])
def test_a_number_of_devices_that_cannot_be_read_is_one_clear_sentence(with_vnpu, value):
    _refused(with_vnpu, "VNPU_DEVICES", value)


@pytest.mark.parametrize("value", ["lots", "0", "-5", "1.5G", "4 GG", "16X", "99999999T", "0G"])
def test_a_capacity_that_cannot_be_read_is_one_clear_sentence(with_vnpu, value):
    _refused(with_vnpu, "VNPU_MEMORY", value)


@pytest.mark.parametrize("value", ["all", "0,0", "0;1", "0,,1", "1,x", "-1"])
def test_visible_devices_that_cannot_be_read_are_one_clear_sentence(with_vnpu, value):
    _refused(with_vnpu, "ASCEND_RT_VISIBLE_DEVICES", value)


def _refused(with_vnpu, variable, value):
    run = with_vnpu(
        f"""
        import os, torch
        torch.manual_seed(1)
        for use in (torch.npu.init, lambda: torch.ones(1, device="npu")):
            try:
                use()
            except RuntimeError as error:
                print(error)
        assert not torch.npu.is_initialized() and (torch.ones(1) + 1).item() == 2
        del os.environ[{variable!r}]
        torch.ones(1, device="npu")
        """,
        **{variable: value},
    ).passed()
    first, second = run.lines
    assert f"{variable} is '{value}'" in first
    assert first == second


@pytest.mark.parametrize(
    ("value", "total"),
    [
        ("1048576", 1 << 20),
        ("100b", 100),
        ("64k", 64 << 10),
        ("512M", 512 << 20),
        (" 3 MiB", 3 << 20),
        ("2GB", 2 << 30),
        ("1tib", 1 << 40),
        ("", 8 << 30),
    ],
)
def test_the_capacity_of_a_device(with_vnpu, value, total):
    run = with_vnpu("import torch; print(torch.npu.mem_get_info(1))", VNPU_MEMORY=value).passed()
    assert run.lines == [f"({total}, {total})"]


@pytest.mark.parametrize(
    ("devices", "visible", "count"),
    [
        ("", None, 2),
        ("0", None, 0),
        ("64", None, 64),
        (" 3 ", None, 3),
        ("2", "", 0),
        ("2", "1", 1),
        ("2", "1,0", 2),
        ("4", " 3 , 1 ", 2),
        ("2", "0,7,1", 1),
        ("2", "7", 0),
        ("1", "0,1", 1),
    ],
)
def test_how_many_devices_there_are(with_vnpu, devices, visible, count):
    variables = {"VNPU_DEVICES": devices} | ({} if visible is None else {"ASCEND_RT_VISIBLE_DEVICES": visible})
    run = with_vnpu(
        """
        import torch
        print(torch.npu.device_count(), torch.npu.is_available(), torch.accelerator.is_available())
        torch.npu.init()
        print(torch.npu.device_count(), torch.npu.is_available(), torch.accelerator.is_available())
        """,
        **variables,
    ).passed()
    assert run.lines == [f"{count} {count > 0} {count > 0}"] * 2


def test_without_devices_torch_works_and_a_use_says_what_to_do(with_vnpu):
    run = with_vnpu(
        "import torch\n" + CPU_WORKS.replace("\n    ", "\n") + "torch.ones(1, device='npu')", VNPU_DEVICES="0"
    )
    assert run.code == 1
    assert "there are 0 devices (VNPU_DEVICES and ASCEND_RT_VISIBLE_DEVICES say how many)" in run.err


NAMES = "('_scatter', '_gather', '_broadcast', '_broadcast_coalesced', '_scatter_out', '_gather_out', '_broadcast_out')"


@pytest.mark.parametrize(("disabled", "present"), [("", 7), ("torch_vnpu/dataparallel-communication", 0)])
def test_a_patch_is_disabled_from_the_environment(with_torch, disabled, present):
    run = with_torch(
        f"import torch, torch_vnpu; print(sum(hasattr(torch._C, name) for name in {NAMES}))", UNPATCH_DISABLE=disabled
    ).passed()
    assert run.lines == [str(present)]


@pytest.mark.parametrize(
    ("value", "on"),
    [("1", True), ("true", True), (" ON ", True), ("yes", True), ("0", False), ("", False), ("no", False)],
)
def test_the_sanitizer_is_switched_on_by_a_true_value(with_torch, value, on):
    run = with_torch("import sys, torch_vnpu; print('torch_vnpu.sanitizer' in sys.modules)", TORCH_NPU_SANITIZER=value)
    assert run.passed().lines == [str(on)]
