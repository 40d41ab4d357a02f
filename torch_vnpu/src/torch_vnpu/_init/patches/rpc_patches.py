"""RPC: torch replaces its enumeration of backends when one is registered, but `torch.distributed.rpc` keeps the old one."""

import inspect

import torch.distributed as dist

from torch_vnpu._init.patches import manager
from unpatch.patches import Origin

if dist.is_available() and dist.rpc.is_available():
    from torch.distributed.rpc import backend_registry

    def torch_follows_the_registry() -> bool:
        """torch.distributed.rpc has no copy of backend_registry.BackendType"""
        return "import BackendType" not in inspect.getsource(dist.rpc)

    manager.declare(
        id="rpc-backend-types",
        group="distributed",
        title="torch.distributed.rpc.BackendType has the registered backends",
        reason=(
            "Registering an RPC backend makes a new enumeration, whose members are no members of the old one: with the old one "
            "under this name, init_rpc refuses its own default backend, and the new backend cannot be named."
        ),
        origin=Origin(introduced="torch_vnpu 0.1.0"),
        versions="torch>=2.13",
        remove_when=torch_follows_the_registry,
        risk="torch.distributed.rpc.init_rpc without a backend raises without it.",
        fingerprints={"torch.distributed.rpc.BackendType": "signature:0682bdc8f72d"},
    ).replace("torch.distributed.rpc.BackendType", backend_registry.BackendType)
