"""The NPU sanitizer's stream check: accesses to the same memory, by streams or the host, that nothing orders.

from torch_vnpu.sanitizer import sanitizer
with sanitizer() as check:
    step()
print(check.text())
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from torch_vnpu.sanitizer.findings import Finding, Side
from torch_vnpu.sanitizer.frames import Frame
from torch_vnpu.sanitizer.session import Capture, Mode, Sanitizer, SanitizerError, SanitizerWarning
from torch_vnpu.sanitizer.stream_check import StreamCheckMode
from torch_vnpu.sanitizer.suppressions import Rule

__all__ = [
    "Finding",
    "Frame",
    "Sanitizer",
    "SanitizerError",
    "SanitizerWarning",
    "Side",
    "StreamCheckMode",
    "disable_npu_sanitizer",
    "enable_npu_sanitizer",
    "is_enabled",
    "sanitizer",
]

#: As a context: `with sanitizer(mode="raise"): ...`.
sanitizer = Sanitizer

_enabled: Sanitizer | None = None


def enable_npu_sanitizer(
    mode: Mode = "warn",
    *,
    stack_depth: int = 32,
    suppress: str | Path | Sequence[Rule] | None = None,
    capture: Capture = "native",
) -> Sanitizer:
    """Check this process from now on; the arguments are those of `Sanitizer`. Idempotent: the first call's arguments stay."""
    global _enabled
    if _enabled is None:
        _enabled = Sanitizer(mode, stack_depth=stack_depth, suppress=suppress, capture=capture).start()
    return _enabled


def is_enabled() -> bool:
    """Whether `enable_npu_sanitizer` is in force."""
    return _enabled is not None


def disable_npu_sanitizer() -> None:
    """Undo `enable_npu_sanitizer`: nothing listens any more. Idempotent."""
    global _enabled
    if _enabled is not None:
        enabled, _enabled = _enabled, None
        enabled.stop()


def end_of_process() -> None:
    """Judge what was freed and never ordered, then disable. An error in mode `raise` is told, since nothing could catch it."""
    enabled = _enabled
    disable_npu_sanitizer()
    if enabled is not None:
        try:
            enabled.finish()
        except SanitizerError as error:
            print(error, file=sys.stderr)
