"""Stage 3: what this backend tells torch about itself, one module per part of torch."""

from torch_vnpu._init.registry import backend, moves, sharing


def register_components() -> None:
    """Register the components, in the order in which they need each other."""
    backend.register_backend()
    moves.register_moves()
    sharing.register_sharing()
