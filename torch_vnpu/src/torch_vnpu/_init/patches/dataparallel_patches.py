"""What `torch.nn.DataParallel` needs and a CPU build of torch lacks: seven communication functions in `torch._C`."""

from torch_vnpu._init.patches import manager
from torch_vnpu.npu import _copies
from unpatch.patches import Origin


def torch_needs_none() -> bool:
    """torch.nn.parallel.comm calls none of these functions of torch._C"""
    import inspect

    from torch.nn.parallel import comm

    text = inspect.getsource(comm)
    return not any(f"torch._C.{name}(" in text for name in _copies.__all__)


_functions = manager.declare(
    id="dataparallel-communication",
    group="npu",
    title="torch._C functions for DataParallel",
    reason=(
        "torch.nn.DataParallel calls communication functions of torch._C that exist only in builds with CUDA; "
        "on npu they are copies between devices."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=torch_needs_none,
)
for _name in _copies.__all__:
    _functions.add(f"torch._C.{_name}", getattr(_copies, _name))
