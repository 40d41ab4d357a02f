"""The RPC backend `NPU_TENSORPIPE`: torch's TensorPipe, with npu tensors sent as CPU tensors and put back on npu.

A tensor arrives on the device with the ordinal that it had. That holds for arguments and results of Python functions;
TensorPipe itself still refuses npu tensors in remote calls of builtin operators and of TorchScript functions. Distributed
autograd is refused for npu tensors.
"""

from typing import Any

import torch
from torch.distributed import rpc
from torch.distributed.rpc import backend_registry, internal

from torch_vnpu.errors import ErrCode, dist_error

__all__ = ["NpuTensorPipeRpcBackendOptions", "construct_options", "init_backend"]


class NpuTensorPipeRpcBackendOptions(rpc.TensorPipeRpcBackendOptions):
    """TensorPipe's options. A class of its own, by which torch tells this backend from TENSORPIPE."""


def construct_options(rpc_timeout: float, init_method: str, **options: Any) -> NpuTensorPipeRpcBackendOptions:
    """The options, with the arguments of TENSORPIPE's."""
    return NpuTensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, init_method=init_method, **options)


def init_backend(store: Any, name: str, rank: int, world_size: int, rpc_backend_options: Any) -> Any:
    """Start the agent, after this process has learned how to send npu tensors."""
    internal._internal_rpc_pickler._register_reducer(torch.Tensor, _reduce)
    return backend_registry._tensorpipe_init_backend_handler(
        store=store, name=name, rank=rank, world_size=world_size, rpc_backend_options=rpc_backend_options
    )


def _reduce(tensor: torch.Tensor) -> Any:
    if tensor.device.type != "npu":
        return internal._internal_rpc_pickler._tensor_reducer(tensor)
    if tensor.requires_grad and _in_distributed_autograd():
        # torch unpickles arguments before it attaches gradients to what was sent, so a copy made by unpickling has none.
        raise NotImplementedError(
            "NPU_TENSORPIPE cannot send a tensor on npu through distributed autograd, which follows CPU tensors only: "
            "send tensor.cpu(), and move it to npu in the remote function" + dist_error(ErrCode.NOT_SUPPORT)
        )
    return _on_npu, (tensor.detach().cpu(), tensor.device.index)


def _in_distributed_autograd() -> bool:
    from torch.distributed import autograd

    try:
        autograd._current_context()
    except RuntimeError:
        return False
    return True


def _on_npu(tensor: torch.Tensor, index: int) -> torch.Tensor:
    return tensor.to(torch.device("npu", index))
