"""The NPU sanitizer's switch. Its stream check sees every operator through a dispatch mode; finding races is later work."""

from torch_vnpu.sanitizer.stream_check import StreamCheckMode

__all__ = ["StreamCheckMode", "disable_npu_sanitizer", "enable_npu_sanitizer"]

_mode: StreamCheckMode | None = None


def enable_npu_sanitizer() -> StreamCheckMode:
    """Check the operators of the calling thread (and of its backward passes) from now on. Idempotent."""
    global _mode
    if _mode is None:
        _mode = StreamCheckMode()
        _mode.__enter__()
    return _mode


def disable_npu_sanitizer() -> None:
    """Undo `enable_npu_sanitizer`, on the thread that called it. Idempotent."""
    global _mode
    if _mode is not None:
        mode, _mode = _mode, None
        mode.__exit__(None, None, None)
