"""Silent data corruption: gradients that are watched while a model trains, and a matmul that is verified by its checksum.

`NPU_ASD_ENABLE=1` watches the gradients of modules' parameters on npu from the import on.
"""

from torch_vnpu.asd.checksum import matmul_checksum
from torch_vnpu.asd.gradients import (
    SilentDataCorruptionError,
    disable,
    enable,
    is_enabled,
    register_asd_hook,
    set_asd_loss_scale,
)

__all__ = [
    "SilentDataCorruptionError",
    "disable",
    "enable",
    "is_enabled",
    "matmul_checksum",
    "register_asd_hook",
    "set_asd_loss_scale",
]
