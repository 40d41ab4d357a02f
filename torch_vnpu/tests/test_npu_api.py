"""`torch.npu` beside `torch.cuda`: every public name is there, or refused or absent for a reason, as docs/npu-api.md says; and
what the names do that no other module tests.

The document is made here: `VNPU_UPDATE_DOCS=1 python -m pytest torch_vnpu/tests/test_npu_api.py`.
"""

import gc
import inspect
import os
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.cuda.comm

from torch_vnpu.npu import _parity

DOCUMENT = Path(__file__).parents[2] / "docs" / "npu-api.md"
# Modules of torch.cuda whose names are not its own too.
MODULES = ("amp", "comm")
# Public, though torch.cuda.__all__ does not have them.
UNLISTED = ("AcceleratorError", "OutOfMemoryError", "comm", "gds", "green_contexts")
MIB = 1 << 20
HEAD = """\
# `torch.npu` beside `torch.cuda`

Every public name of `torch.cuda` in torch {torch}; those of `torch.cuda.memory` and `torch.cuda.random` are among its own.

- *same*: the same arguments, and it does the same on npu.
- *differs*: it does what is said.
- *refused*: it can be called, and raises `NotImplementedError` with the reason.
- *absent*: there is no such attribute (`hasattr` is false), and the `AttributeError` gives the reason.

Made from `torch_vnpu/npu/_parity.py` by `torch_vnpu/tests/test_npu_api.py`, which fails where a name or this page is out
of date (`VNPU_UPDATE_DOCS=1` writes it anew).

| torch.cuda | torch.npu | here |
| --- | --- | --- |
"""


def public_names() -> list[str]:
    """What torch.cuda has for its users, dotted in `MODULES`."""
    names = {*torch.cuda.__all__, *UNLISTED, *torch.cuda.memory.__all__, *torch.cuda.random.__all__}
    for module in MODULES:
        names |= {f"{module}.{name}" for name in getattr(torch.cuda, module).__all__}
    return sorted(names, key=lambda name: (name.lower(), name))


NAMES = public_names()


def find(root: ModuleType, dotted: str):
    """The object of that name, or None."""
    for part in dotted.split("."):
        root = getattr(root, part, None)
    return root


def row(name: str) -> str:
    here = f"`{_parity.npu_name(name)}`"
    if name in _parity.REFUSED:
        verdict = f"refused: {_parity.REFUSED[name]}"
    elif name in _parity.ABSENT:
        here, verdict = "", f"absent: {_parity.ABSENT[name]}"
    else:
        verdict = f"differs: {_parity.DIFFERS[name]}" if name in _parity.DIFFERS else "same"
    return f"| `{name}` | {here} | {verdict} |"


def document() -> str:
    """docs/npu-api.md."""
    return HEAD.format(torch=torch.__version__.split("+")[0]) + "\n".join([*map(row, NAMES), ""])


# ---- every name ----


def test_the_document_says_what_is_true():
    written = document()
    if os.environ.get("VNPU_UPDATE_DOCS"):
        DOCUMENT.write_text(written, encoding="utf-8")
    assert written == DOCUMENT.read_text(encoding="utf-8"), (
        "stale: VNPU_UPDATE_DOCS=1 pytest torch_vnpu/tests/test_npu_api.py"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_cuda_is_there_unless_it_is_absent_for_a_reason(name):
    assert (find(torch.npu, _parity.npu_name(name)) is None) == (name in _parity.ABSENT)


def test_a_reason_is_for_one_name_that_cuda_has():
    tables = [set(_parity.DIFFERS), set(_parity.REFUSED), set(_parity.ABSENT)]
    assert sum(map(len, tables)) == len(set.union(*tables))
    assert set.union(*tables, _parity.RENAMED) <= set(NAMES)


def _arguments(function) -> list[tuple[str, bool]]:
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.default is p.empty) for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in _parity.REFUSED and n not in _parity.ABSENT])
def test_what_is_there_takes_the_arguments_that_it_takes_on_cuda(name):
    theirs, ours = find(torch.cuda, name), find(torch.npu, _parity.npu_name(name))
    if not inspect.isfunction(theirs):
        assert inspect.isclass(theirs) <= inspect.isclass(ours)
        assert inspect.ismodule(theirs) == inspect.ismodule(ours)
        return
    assert _arguments(ours) == _arguments(theirs)


@pytest.mark.parametrize("name", ["device", "device_of", "StreamContext", "amp.autocast", "amp.GradScaler"])
def test_classes_take_the_arguments_that_they_take_on_cuda(name):
    assert _arguments(find(torch.npu, name)) == _arguments(find(torch.cuda, name))


@pytest.mark.parametrize("name", _parity.REFUSED)
def test_a_refusal_says_why(name):
    refused = getattr(torch.npu, _parity.npu_name(name))
    for arguments in ((), (1, 2)):
        with pytest.raises(NotImplementedError) as caught:
            refused(*arguments)
        assert str(caught.value) == f"torch.npu.{_parity.npu_name(name)} is not supported: {_parity.REFUSED[name]}"


@pytest.mark.parametrize("name", [name for name in _parity.ABSENT if "." not in name])
def test_an_absence_says_why(name):
    with pytest.raises(AttributeError) as caught:
        getattr(torch.npu, name)
    assert str(caught.value).endswith(f"has no attribute '{name}': {_parity.ABSENT[name]}")


def test_a_name_that_nobody_has():
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = torch.npu.nothing


def test_all_that_is_public_is_there():
    names = torch.npu.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(torch.npu, name) for name in names)
    assert {_parity.npu_name(n) for n in NAMES if n not in _parity.ABSENT and "." not in n} <= set(names)


# ---- devices ----


def test_what_a_virtual_device_is():
    properties = torch.npu.get_device_properties(1)
    assert properties.is_integrated
    assert not hasattr(properties, "major")
    assert (torch.npu.get_arch_list(), torch.npu.get_gencode_flags()) == ([], "")
    assert torch.npu.is_bf16_supported(including_emulation=False)
    assert not torch.npu.is_tf32_supported()
    assert not torch.npu.is_current_stream_capturing()
    assert torch.npu.has_half
    torch.npu.ipc_collect()


def test_what_asks_nothing_of_a_device_does_not_start_the_runtime(with_vnpu):
    with_vnpu(
        """
        import torch, torch_vnpu
        npu = torch.npu
        for query in (
            npu.get_arch_list, npu.get_gencode_flags, npu.is_bf16_supported, npu.is_tf32_supported, npu.get_allocator_backend,
            npu.is_current_stream_capturing, npu.get_sync_debug_mode, npu.reset_peak_host_memory_stats,
            npu.reset_accumulated_host_memory_stats, lambda: npu.stream(None).__enter__(), lambda: npu.check_error(0),
            lambda: npu.amp.GradScaler(), lambda: [getattr(npu, name) for name in npu.__all__],
        ):
            query()
            assert not npu.is_initialized(), query
        """
    ).passed()


def test_peers():
    assert torch.npu.can_device_access_peer(0, "npu:1")
    assert not torch.npu.can_device_access_peer(1, torch.device("npu:1"))
    for pair in ((0, 2), (2, 0)):
        with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
            torch.npu.can_device_access_peer(*pair)


def test_the_debug_mode_of_synchronisation():
    for mode in (0, "default"):
        torch.npu.set_sync_debug_mode(mode)
    assert torch.npu.get_sync_debug_mode() == 0
    for mode in (1, "warn", 2, "error"):
        with pytest.raises(NotImplementedError, match="sanitizer"):
            torch.npu.set_sync_debug_mode(mode)
    for mode in (3, "all"):
        with pytest.raises(ValueError, match="a mode is 0"):
            torch.npu.set_sync_debug_mode(mode)


# ---- streams and events ----


def test_stream_contexts():
    stream = torch.npu.Stream(1)
    context = torch.npu.stream(stream)
    assert isinstance(context, torch.npu.StreamContext)
    for _ in range(2):
        with context as given:
            assert given is None
            assert torch.npu.current_stream() == stream
            with torch.npu.StreamContext(None):
                assert torch.npu.current_stream() == stream
        assert torch.npu.current_stream() == torch.npu.default_stream(0)


def test_a_context_ends_with_an_exception():
    with pytest.raises(KeyError), torch.npu.stream(torch.npu.Stream(1)):
        raise KeyError
    assert torch.npu.current_stream() == torch.npu.default_stream(0)


def test_events_are_not_shared_between_processes():
    for use in (
        lambda: torch.npu.Event(interprocess=True),
        lambda: torch.npu.Event.from_ipc_handle(0, b""),
        lambda: torch.npu.Event().ipc_handle(),
    ):
        with pytest.raises(NotImplementedError):
            use()


@pytest.mark.parametrize("external", [False, True])
def test_an_event_takes_what_that_of_cuda_takes(external):
    start, end = (torch.npu.Event(True, blocking=True, external=external) for _ in range(2))
    start.record()
    torch.ones(2, device="npu").add_(1)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    ours, theirs = (inspect.signature(module.Event.__new__).parameters for module in (torch.npu, torch.cuda))
    assert [(one.name, one.default) for one in ours.values()] == [(one.name, one.default) for one in theirs.values()]


# ---- memory ----


def test_nested_figures_are_the_flat_ones():
    flat, nested = torch.npu.memory_stats(1), torch.npu.memory_stats_as_nested_dict(1)
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]
    assert nested["num_ooms"] == flat["num_ooms"]
    host = torch.npu.host_memory_stats()
    assert torch.npu.host_memory_stats_as_nested_dict()["allocations"]["peak"] == host["allocations.peak"]


def test_old_names_warn_and_work():
    x = torch.ones(1000, device="npu:1")
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.npu.memory_cached(1) == torch.npu.memory_reserved(1)
    del x
    gc.collect()
    for reset in (torch.npu.reset_max_memory_allocated, torch.npu.reset_max_memory_cached):
        y = torch.ones(1000, device="npu:1")
        del y
        assert torch.npu.max_memory_allocated(1) > torch.npu.memory_allocated(1)
        with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
            reset(1)
        with pytest.warns(FutureWarning, match="max_memory_reserved"):
            assert torch.npu.max_memory_cached(1) == torch.npu.memory_reserved(1)


def test_the_summary_has_the_figures():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu:1")
    assert torch.npu.device_memory_used(1) == torch.npu.memory_reserved(1) >= x.nbytes
    lines = torch.npu.memory_summary("npu:1").splitlines()
    assert lines[0].startswith("torch.npu memory of npu:1: ")
    assert lines[1].split() == ["current", "peak", "allocated", "freed"]
    rows = {line[:18].strip(): line[18:].split() for line in lines[2:]}
    assert rows["allocations"][0] == str(torch.npu.memory_stats(1)["allocation.all.current"])
    assert rows["allocated memory"][1] == "MiB"
    short = torch.npu.memory_summary(1, abbreviated=True).splitlines()
    assert short[1].split() == ["current", "peak"]
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.npu.memory_summary(2)


def test_a_fraction_of_the_memory_is_enforced(with_vnpu):
    run = with_vnpu(
        """
        import torch
        assert torch.npu.get_per_process_memory_fraction() == 1.0
        torch.npu.set_per_process_memory_fraction(0.5)
        assert torch.npu.get_per_process_memory_fraction() == 0.5
        assert torch.npu.get_per_process_memory_fraction(1) == 1.0
        free, total = torch.npu.mem_get_info()
        assert (free, total) == (65536, 65536)
        x = torch.ones(1 << 12, device="npu")       # 16 of 32 KiB
        y = x.npu(1).repeat(3)                      # the other device has 64
        for work in (lambda: torch.empty(1 << 13, device="npu"), lambda: x.repeat(2), lambda: x.resize_(1 << 13)):
            try:
                work()
            except torch.npu.OutOfMemoryError as error:
                print(error)
            assert torch.npu.memory_allocated() == 16384
        torch.npu.empty_cache()
        z = x + x                                   # exactly all
        torch.npu.set_per_process_memory_fraction(0.0)
        assert z.tolist()[0] == 2                    # what is in use stays
        del z
        torch.npu.set_per_process_memory_fraction(1.0)
        x.repeat(3)
        """,
        VNPU_MEMORY="64K",
    ).passed()
    assert run.out.count("32.00 KiB is allowed by set_per_process_memory_fraction") == 3
    assert "total capacity of 64.00 KiB of which 48.00 KiB is free" in run.out


def test_what_queued_work_still_uses_can_be_allocated_within_the_fraction(with_vnpu):
    with_vnpu(
        """
        import torch
        torch.npu.set_per_process_memory_fraction(0.5)
        x = torch.zeros(1 << 12, device="npu")
        for _ in range(50):
            y = x + x
            del y
        """,
        VNPU_MEMORY="64K",
    ).passed()


@pytest.mark.parametrize(
    ("fraction", "error"),
    [(-0.1, ValueError), (1.1, ValueError), (float("nan"), ValueError), ("1", TypeError), (1, TypeError)],
)
def test_a_fraction_that_is_none(fraction, error):
    with pytest.raises(error, match="the fraction of the memory"):
        torch.npu.set_per_process_memory_fraction(fraction)
    assert torch.npu.get_per_process_memory_fraction() == 1.0


def test_a_fraction_of_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.npu.set_per_process_memory_fraction(0.5, 2)
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.npu.get_per_process_memory_fraction(2)


def test_figures_of_pinned_memory():
    gc.collect()
    torch.npu.empty_host_cache()
    before = torch.npu.host_memory_stats()
    torch.npu.reset_peak_host_memory_stats()
    torch.npu.reset_accumulated_host_memory_stats()
    pinned = [torch.ones(1000).pin_memory() for _ in range(3)]
    during = torch.npu.host_memory_stats()
    assert during["allocations.current"] - before["allocations.current"] == 3
    assert during["allocated_bytes.current"] - before["allocated_bytes.current"] == 3 * 4096
    assert during["active_bytes.current"] - before["active_bytes.current"] == 3 * 4096
    x = pinned[0].to("npu", non_blocking=True)
    addresses = {one.data_ptr() for one in pinned}
    del pinned
    kept = torch.npu.host_memory_stats()
    assert kept["active_requests.current"] == before["active_requests.current"]
    assert (kept["active_requests.allocated"], kept["active_requests.freed"]) == (3, 3)
    assert (kept["num_host_alloc"], kept["num_host_free"]) == (3, 0)
    assert kept["active_bytes.peak"] == during["active_bytes.current"]
    assert x.sum().item() == 1000
    again = torch.ones(700).pin_memory()  # of the same power of two
    assert again.data_ptr() in addresses
    assert torch.npu.host_memory_stats()["num_host_alloc"] == 3
    del again
    torch.npu.empty_host_cache()
    assert torch.npu.host_memory_stats()["allocations.current"] == before["allocations.current"]
    assert torch.npu.host_memory_stats()["num_host_free"] == 3
    torch.npu.reset_peak_host_memory_stats()
    assert torch.npu.host_memory_stats()["allocated_bytes.peak"] == before["allocated_bytes.current"]


def test_workers_of_a_loader_and_its_pinning_thread(fresh):
    run = fresh(
        """
        import torch
        torch.ones(1, device="npu:1")
        torch.npu.set_device(1)
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        workers = dict(num_workers=1, multiprocessing_context="spawn")
        loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, **workers)
        if __name__ == "__main__":
            for (batch,) in loader:
                print(batch.is_pinned(), batch.to("npu", non_blocking=True).sum().item(), torch.npu.current_device())
        """
    )
    assert run.lines == ["True 6.0 1", "True 22.0 1"], run.err
    assert run.code == 0


def test_registered_memory_is_not_torchs_and_not_counted():
    block, npurt = torch.zeros(4096), torch.npu.npurt()
    before = torch.npu.host_memory_stats()
    assert npurt.npuHostRegister(block.data_ptr(), block.nbytes) == 0
    assert torch.npu.host_memory_stats() == before
    assert npurt.npuHostUnregister(block.data_ptr()) == 0


# ---- mixed precision ----


def test_functions_with_their_own_precision():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.npu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            seen.append((x.dtype, torch.is_autocast_enabled("npu")))
            return x * 2

        @staticmethod
        @torch.npu.amp.custom_bwd
        def backward(ctx, gradient):
            seen.append(torch.is_autocast_enabled("npu"))
            return gradient * 2

    seen = []
    x = torch.ones(2, device="npu", dtype=torch.float16, requires_grad=True)
    with torch.npu.amp.autocast():
        result = Double.apply(x)
    result.sum().backward()
    assert seen == [(torch.float32, False), False]
    assert x.grad.tolist() == [2, 2]


def test_the_scaler_takes_its_arguments_by_position():
    scaler = torch.npu.amp.GradScaler(8.0, 3.0, 0.25, 7, True)
    assert (scaler.get_scale(), scaler.get_growth_factor(), scaler.get_growth_interval()) == (8.0, 3.0, 7)
    assert scaler.get_backoff_factor() == 0.25
    assert not torch.npu.amp.GradScaler(enabled=False).is_enabled()


# ---- copies between devices ----


def places(tensors):
    return [(str(t.device), t.tolist()) for t in tensors]


def test_comm_broadcasts():
    x = torch.arange(2.0, device="npu:0")
    assert places(torch.npu.comm.broadcast(x, [0, "npu:1", torch.device("cpu")])) == [
        ("npu:0", [0, 1]),
        ("npu:1", [0, 1]),
        ("cpu", [0, 1]),
    ]
    out = [torch.zeros(2, device="npu:1")]
    assert places(torch.npu.comm.broadcast(x, out=out)) == [("npu:1", [0, 1])]
    assert [places(ts) for ts in torch.npu.comm.broadcast_coalesced([x, x + 1], [0, 1])] == [
        [("npu:0", [0, 1]), ("npu:0", [1, 2])],
        [("npu:1", [0, 1]), ("npu:1", [1, 2])],
    ]
    for settings in ({}, {"devices": [0], "out": out}):
        with pytest.raises(RuntimeError, match="exactly one"):
            torch.npu.comm.broadcast(x, **settings)


def test_comm_scatters_and_gathers():
    x = torch.arange(5.0)
    parts = torch.npu.comm.scatter(x)
    assert places(parts) == [("npu:0", [0, 1, 2]), ("npu:1", [3, 4])]
    assert places(torch.npu.comm.scatter(x, ["npu:1", -1], [1, 4])) == [("npu:1", [0]), ("cpu", [1, 2, 3, 4])]
    out = [torch.zeros(4, device="npu:1"), torch.zeros(1)]
    assert places(torch.npu.comm.scatter(x, out=out)) == [("npu:1", [0, 1, 2, 3]), ("cpu", [4])]
    assert places([torch.npu.comm.gather(parts, destination=1)]) == [("npu:1", [0, 1, 2, 3, 4])]
    assert torch.npu.comm.gather(parts, destination="cpu").device.type == "cpu"
    assert torch.npu.comm.gather(parts).device == torch.device("npu:0")
    whole = torch.zeros(5, device="npu:1")
    assert torch.npu.comm.gather(parts, out=whole) is whole
    assert whole.tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="along with out"):
        torch.npu.comm.scatter(x, [0, 1], out=out)
    with pytest.raises(RuntimeError, match="along with out"):
        torch.npu.comm.gather(parts, destination=0, out=whole)
    with pytest.raises(ValueError, match="expected an npu device"):
        torch.npu.comm.scatter(x, ["meta"])


def test_comm_adds_up():
    a, b = torch.ones(2, device="npu:0"), torch.full((2,), 2.0, device="npu:1")
    total = torch.npu.comm.reduce_add([a, b], 1)
    assert places([total]) == [("npu:1", [3, 3])]
    assert places([a, b]) == [("npu:0", [1, 1]), ("npu:1", [2, 2])]
    pairs = torch.npu.comm.reduce_add_coalesced([[a, a * 2], [b, b * 2]], "cpu")
    assert places(pairs) == [("cpu", [3, 3]), ("cpu", [6, 6])]
    with pytest.raises(ValueError, match="at least one"):
        torch.npu.comm.reduce_add([])
    with pytest.raises(ValueError, match="one shape"):
        torch.npu.comm.reduce_add([a, torch.ones(3, device="npu")])
