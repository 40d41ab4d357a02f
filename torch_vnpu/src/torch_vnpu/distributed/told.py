"""A collective as the sanitizer sees it: an operator on a stream of its own that touches its tensors until it is waited for.

Gloo works outside of the device's queues, so nothing of it is in the event table by itself. Only while somebody watches, a
collective launches an operator that touches its tensors and does nothing, on a stream that only the collectives have.
"""

import torch

__all__ = ["end", "start", "unwatch", "watch"]

_watchers = 0
_library: torch.library.Library | None = None
_streams: dict[int, torch.Stream] = {}


def watch() -> None:
    """Tell collectives from now on; calls are counted."""
    global _watchers
    _watchers += 1


def unwatch() -> None:
    """Take one `watch` back."""
    global _watchers
    _watchers -= 1


def start(name: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Stream]:
    """Tell that the collective `name` has begun; returns the streams to give to `end`. None where nobody watches."""
    if not _watchers:
        return []
    streams = []
    for index in sorted({tensor.device.index for tensor in (*outputs, *inputs) if tensor.device.type == "npu"}):
        stream = _streams.get(index) or _streams.setdefault(index, torch.npu.Stream(index))
        stream.wait_stream(torch.npu.current_stream(index))
        written, read = ([t for t in tensors if t.device == stream.device] for tensors in (outputs, inputs))
        with torch.no_grad(), torch.npu.stream(stream):
            _operator(name)(written, read)
        streams.append(stream)
    return streams


def end(streams: list[torch.Stream]) -> None:
    """Tell that the host has waited for a collective."""
    for stream in streams:
        stream.synchronize()


def _operator(name: str) -> torch._ops.OpOverloadPacket:
    global _library
    if _library is None:
        _library = torch.library.Library("hccl", "DEF")
    if not hasattr(torch.ops.hccl, name):
        _library.define(f"{name}(Tensor(a!)[] outputs, Tensor[] inputs) -> ()")
        _library.impl(name, _touch, "CPU")
    operator: torch._ops.OpOverloadPacket = getattr(torch.ops.hccl, name)
    return operator


def _touch(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    pass
