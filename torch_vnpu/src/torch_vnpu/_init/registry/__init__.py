"""Stage 3: what this backend tells torch about itself, one module per part of torch."""

from torch_vnpu._init.registry import backend, cann, checkpoint, compilers, distributed, moves, rpc


def register_components() -> None:
    """Register the components, in the order in which they need each other."""
    cann.check_environment()
    backend.register_backend()
    moves.register_moves()
    distributed.register_distributed()
    rpc.register_rpc()
    compilers.register_compilers()
    checkpoint.register_checkpoint()
