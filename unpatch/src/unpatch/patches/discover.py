"""Importing the modules that declare patches, by name or by the convention `*_patches` within a package."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from unpatch.errors import said
from unpatch.patches.errors import PatchModuleError

SUFFIX = "_patches"


def import_module(name: str) -> ModuleType:
    """Import a module that declares patches. Raises PatchModuleError, caused by whatever its import raised."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise PatchModuleError(f"patch module {name!r} cannot be imported, {said(error)}") from error


def import_patch_modules(package: str) -> tuple[str, ...]:
    """Import the modules of `package` whose names end in `_patches`, sorted; returns their full names.

    Raises PatchModuleError when the package or one of them cannot be imported, or when it is no package.
    """
    path = getattr(import_module(package), "__path__", None)
    if path is None:
        raise PatchModuleError(f"{package!r} is a module, not a package: it has no modules to discover")
    found = sorted(f"{package}.{info.name}" for info in pkgutil.iter_modules(path) if info.name.endswith(SUFFIX))
    for name in found:
        import_module(name)
    return tuple(found)
