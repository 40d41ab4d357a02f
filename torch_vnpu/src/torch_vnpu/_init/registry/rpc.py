"""The RPC backend for npu, `NPU_TENSORPIPE`. Its code loads when it is used."""

from typing import Any

NAME = "NPU_TENSORPIPE"


def register_rpc() -> None:
    """Register it; torch may have been built without RPC."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.rpc.is_available():
        return
    from torch.distributed.rpc import backend_registry

    if not backend_registry.backend_registered(NAME):
        backend_registry.register_backend(NAME, _construct_options, _init_backend)


def _construct_options(rpc_timeout: float, init_method: str, **options: Any) -> Any:
    from torch_vnpu.distributed import rpc

    return rpc.construct_options(rpc_timeout, init_method, **options)


def _init_backend(*args: Any, **kwargs: Any) -> Any:
    from torch_vnpu.distributed import rpc

    return rpc.init_backend(*args, **kwargs)
