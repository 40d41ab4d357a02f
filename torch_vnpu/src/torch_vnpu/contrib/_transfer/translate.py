"""From CUDA's words to npu's: texts and objects that name a device, a tensor type, a process group's backend.

Everything that is not CUDA's comes back as it is, the same object, so that each function may be put before any argument. They
are plain enough for Dynamo to trace.
"""

from typing import Any

import torch


def device(value: Any) -> Any:
    """`cuda`, `cuda:1` or a device of that type -> the same on npu."""
    if isinstance(value, str):
        return "npu" + value[4:] if value == "cuda" or value.startswith("cuda:") else value
    if isinstance(value, torch.device) and value.type == "cuda":  # one that was made before, or came out of a file
        return torch.device("npu") if value.index is None else torch.device("npu", value.index)
    return value


def tensor_type(value: Any) -> Any:
    """`torch.cuda.FloatTensor` -> `torch.npu.FloatTensor`."""
    if isinstance(value, str) and value.startswith("torch.cuda."):
        return "torch.npu." + value[11:]
    return value


def backend(value: Any) -> Any:
    """`nccl` -> `hccl`, and `cpu:gloo,cuda:nccl` -> `cpu:gloo,npu:hccl`."""
    if not isinstance(value, str):
        return value
    return ",".join(":".join(_WORDS.get(word.lower(), word) for word in part.split(":")) for part in value.split(","))


_WORDS = {"cuda": "npu", "nccl": "hccl"}
