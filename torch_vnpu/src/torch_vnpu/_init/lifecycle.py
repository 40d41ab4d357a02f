"""Stage 6: the end of the import, and the end of the process.

At the end the sanitizer's listeners go first, then the host waits for all devices, then the process groups go. Errors of
kernels that nobody has asked for since are told on stderr.
"""

import atexit
import os
import sys

_MOST_FAILURES = 64  # that are told of one device


def start_runtime_lifecycle() -> None:
    """Let the runtime start from now on, and end it with the process: devices are synchronised, the sanitizer is removed."""
    from torch_vnpu import _C

    _C.finish_import()
    atexit.register(_shut_down)


def _shut_down() -> None:
    from torch_vnpu import _C, npu

    sanitizer = sys.modules.get("torch_vnpu.sanitizer")
    if sanitizer is not None:
        sanitizer.end_of_process()
    if npu.is_initialized():
        _C.await_autograd_threads()
        for index in range(npu.device_count()):
            _synchronize(index)
    _destroy_process_groups()


def _synchronize(index: int) -> None:
    """Wait for the device, and report what failed on it: each call tells the first failure of one of its streams."""
    from torch_vnpu import npu

    for _ in range(_MOST_FAILURES):
        try:
            npu.synchronize(index)
        except RuntimeError as error:
            print(f"torch_vnpu: npu:{index} ended with an error: {error}", file=sys.stderr)
        else:
            return


def _destroy_process_groups() -> None:
    """Those of this backend that this process made: Gloo's threads must not outlive the interpreter with our tensors."""
    module = sys.modules.get("torch_vnpu.distributed.process_group")
    if module is None:
        return
    import torch.distributed as dist

    groups = dist.distributed_c10d._world.pg_map if dist.is_initialized() else ()
    if any(isinstance(group, module.HostProcessGroup) and group.process == os.getpid() for group in groups):
        dist.destroy_process_group()
