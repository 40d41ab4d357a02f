"""Work on side streams, ordered by events and timed."""

import torch

main = torch.cuda.current_stream()
side = torch.cuda.Stream()
done = torch.cuda.Event()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
x = torch.ones(256, 256, device="cuda")
start.record()
side.wait_stream(main)
with torch.cuda.stream(side):
    assert torch.cuda.current_stream() == side
    y = x @ x
    y.record_stream(main)
    done.record()
main.wait_event(done)
z = y + 1
end.record(main)
torch.cuda.synchronize()
assert done.query()
assert start.elapsed_time(end) >= 0
assert isinstance(side, torch.cuda.Stream)
assert isinstance(done, torch.cuda.Event)
assert side.cuda_stream != torch.cuda.default_stream().cuda_stream
with torch.cuda.device(1):
    assert torch.cuda.Stream().device == torch.device("cuda:1")
print("sum:", z.sum().item())
