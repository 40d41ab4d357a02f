"""How much memory a program takes, and what it does when there is none left."""

import torch

torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_allocated() - before == 1 << 20
del x
assert torch.cuda.memory_allocated() == before
assert torch.cuda.max_memory_allocated() - before == 1 << 20
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated("cuda:0")
assert "memory" in torch.cuda.memory_summary().lower()
try:
    torch.empty(total + 1, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print("out of memory, as expected")
