"""Compiled, scripted and profiled code that names its device inside."""

import torch
from torch.profiler import ProfilerActivity, profile


@torch.compile(backend="aot_eager", fullgraph=True)
def step(x: torch.Tensor) -> torch.Tensor:
    noise = torch.zeros(4, device="cuda") + x.new_ones(4, device=torch.device("cuda"))
    y = x.cuda() + noise.to("cuda:0")
    if y.is_cuda and not torch.is_autocast_enabled():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = (y[:, None] @ y[None])[0]
    return y


@torch.jit.script
def scripted(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.to(device) + torch.ones(2, device="cuda")


result = step(torch.ones(4))
assert result.is_cuda
assert result.dtype is torch.bfloat16
assert scripted(torch.ones(2), torch.device("cuda")).is_cuda
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
    with torch.cuda.nvtx.range("outer {}", 1):
        assert torch.cuda.nvtx.range_push("inner") == 1
        torch.ones(2, device="cuda") + 1
        assert torch.cuda.nvtx.range_pop() == 1
    mark = torch.cuda.nvtx.range_start("apart")
    torch.cuda.nvtx.range_end(mark)
    torch.cuda.nvtx.mark("here")
assert {"aten::add", "outer 1", "inner", "apart", "here"} <= {event.key for event in profiled.key_averages()}
print("result:", result.float().tolist())
