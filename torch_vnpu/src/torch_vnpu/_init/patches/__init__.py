"""Stage 4: the patches that this backend makes to torch, all declared, so that they can be listed, disabled and ablated.

Modules named `*_patches` in this package are found by themselves; a component elsewhere calls `register_patch_module`.
"""

from unpatch.patches import PatchManager

GROUPS = ("monkey", "api", "distributed", "dynamo", "profiler", "npu", "warning", "asd")
_AT_LOAD = "inductor"  # what these write exists only once Inductor is loaded, which then applies them

manager = PatchManager("torch_vnpu", order=GROUPS)
patch = manager.patch
register_patch = manager.register_patch
register_patch_module = manager.register_patch_module


def apply_patches() -> None:
    """Find and apply every patch that is not disabled (UNPATCH_DISABLE names ids or groups, separated by commas)."""
    manager.discover(__name__)
    manager.import_modules()
    for group in dict.fromkeys((*GROUPS, *(patch.group for patch in manager.patches))):
        if group != _AT_LOAD:
            manager.apply_group(group)
    # Declared only when somebody lists, checks or applies patches once more.
    manager.register_patch_module("torch_vnpu.compile.inductor_patches")
