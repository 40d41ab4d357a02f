"""Kernels of one stream run one after the other, whichever threads launch them."""

import threading

import pytest
import torch

from torch_vnpu import _C


@pytest.mark.parametrize("kinds", [("start", "complete")])
def test_kernels_of_a_stream_never_overlap(kinds):
    running, worst, lock = [0], [0], threading.Lock()

    def note(kind, device, *_):
        if device != 1:
            return
        with lock:
            running[0] += 1 if kind == "start" else -1
            worst[0] = max(worst[0], running[0])

    x = torch.randn(120, 120, device="npu:1")

    def work() -> None:
        for step in range(60):
            y = x @ x
            if step % 7 == 0:
                torch.randn(300, device="npu:1")  # runs at once, on this thread
            y.add_(1)

    id = _C.subscribe(note, kinds)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.npu.synchronize(1)
    finally:
        _C.unsubscribe(id)
    assert (running[0], worst[0]) == (0, 1)


def test_a_kernel_of_another_library_may_wait_for_other_threads():
    library = torch.library.Library("turns", "FRAGMENT")
    library.define("slow(Tensor x) -> Tensor")

    def slow(x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: torch.ones(3, device="npu").add_(1).tolist())
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return x + 1

    library.impl("slow", slow, "CPU")
    assert torch.ops.turns.slow(torch.ones(2, device="npu")).tolist() == [2, 2]


def test_quantised_tensors_are_refused():
    with pytest.raises(
        NotImplementedError, match=r"no quantised tensors on this device \(in aten::quantize_per_tensor"
    ):
        torch.quantize_per_tensor(torch.ones(2, device="npu"), 0.1, 0, torch.qint8)
