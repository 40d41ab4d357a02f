"""Real readers of traces take ours, and agree with `vnpu trace summary`. `make readers` installs and runs them.

Skipped where they are missing: HolisticTraceAnalysis, torch-tb-profiler; of neither are the dependencies needed all.
"""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from torch_vnpu.profiler.summing import summarise

pytestmark = pytest.mark.readers


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A few training steps with copies."""
    file = tmp_path_factory.mktemp("readers") / "rank0.json"
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).npu()
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(64, 256)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        profiler.add_metadata_json("distributedInfo", json.dumps({"backend": "gloo", "rank": 0, "world_size": 1}))
        for _ in range(3):
            model(x.npu()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    profiler.export_chrome_trace(str(file))
    return file


def test_holistic_trace_analysis_agrees_with_the_summary(trace):
    analysis = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed (make readers)")
    row = (
        analysis.TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(trace.parent))
        .get_temporal_breakdown(visualize=False)
        .iloc[0]
    )
    (device,) = summarise(trace).devices
    slices = sum(kernel.count for kernel in summarise(trace).kernels)
    # It rounds each start and length to whole microseconds.
    within = 2 * slices
    assert row["kernel_time(us)"] == pytest.approx(device.span, abs=2)
    assert row["idle_time(us)"] == pytest.approx(device.idle, abs=within)
    assert row["compute_time(us)"] == pytest.approx(device.compute, abs=within)
    assert row["non_compute_time(us)"] == pytest.approx(device.copy - device.overlap, abs=within)


def test_torch_tb_profiler_reads_it(trace):
    data = pytest.importorskip(
        "torch_tb_profiler.profiler.data", reason="torch-tb-profiler is not installed (make readers)"
    )
    parsed = data.RunProfileData.parse("worker0", 0, str(trace), str(trace.parent))
    summary = summarise(trace)
    assert list(parsed.used_devices) == [0]
    kernels = {kernel.name: kernel for kernel in summary.kernels if kernel.kind == "kernel"}
    assert set(parsed.kernel_stat.index) == kernels.keys()
    for name, kernel in kernels.items():
        assert parsed.kernel_stat.loc[name, "count"] == kernel.count
        assert parsed.kernel_stat.loc[name, "sum"] == pytest.approx(kernel.total, abs=kernel.count)
