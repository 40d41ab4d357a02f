"""A PyTorch accelerator backend (device `npu`) whose hardware is virtual.

Importing it runs the six stages below, once per process; what each does is said in its module.
"""

from torch_vnpu._init import once

__version__ = "0.1.0"


def _initialise() -> None:
    from torch_vnpu._init import conflicts, core, features, lifecycle, patches, registry

    conflicts.check_device_conflicts()
    core.load_core_modules()
    registry.register_components()
    patches.apply_patches()
    features.enable_optional_features()
    lifecycle.start_runtime_lifecycle()


once.run(_initialise)

from torch_vnpu import npu as npu  # noqa: E402  (exists only after the stages)
from torch_vnpu._init import exports as _exports  # noqa: E402

__all__ = ["__version__", "npu", *_exports.names()]
__getattr__ = _exports.attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_exports.shown()})
