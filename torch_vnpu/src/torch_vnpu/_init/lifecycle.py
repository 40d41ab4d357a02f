"""Stage 6: the end of the import, and the end of the process."""

import atexit


def start_runtime_lifecycle() -> None:
    """Let the runtime start from now on, and end it with the process: devices are synchronised, the sanitizer is removed."""
    from torch_vnpu import _C

    _C.finish_import()
    atexit.register(_shut_down)


def _shut_down() -> None:
    import sys

    from torch_vnpu import _C, npu

    sanitizer = sys.modules.get("torch_vnpu.sanitizer")
    if sanitizer is not None:
        sanitizer.end_of_process()
    if npu.is_initialized():
        _C.await_autograd_threads()
        for index in range(npu.device_count()):
            npu.synchronize(index)
