"""The module name `torch_npu`, for programs and libraries that look for Ascend's backend and are to find this one.

A folder with a package of that name and the metadata of a distribution goes to the end of the import path; the package hands on
to torch_vnpu, submodule by submodule. Nothing of it is there before `install()` is called.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

NAME = "torch_npu"
_SITE = str(Path(__file__).parent / "site")


def install(*, children: bool = False) -> None:
    """Offer the module name `torch_npu` in this process. Idempotent.

    Args:
        children: offer it in the processes that this one starts too, through PYTHONPATH.

    Raises:
        RuntimeError: the real torch_npu is installed.
    """
    place = _where()
    if place is not None and not place.startswith(_SITE + os.sep):
        raise RuntimeError(
            f"torch_vnpu cannot offer the module name {NAME!r}: the real {NAME} is installed at {place}. "
            f"Uninstall it (pip uninstall {NAME}), or use an environment without it"
        )
    if _SITE not in sys.path:
        sys.path.append(_SITE)
        importlib.invalidate_caches()
    if children:
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        if _SITE not in paths:
            os.environ["PYTHONPATH"] = os.pathsep.join([*paths, _SITE])


def uninstall() -> None:
    """Take the name away again, from this process and its later children; who has imported it keeps what he has."""
    from torch_vnpu.compat import alias

    while _SITE in sys.path:
        sys.path.remove(_SITE)
    importlib.invalidate_caches()
    alias.forget(NAME)
    paths = os.environ.get("PYTHONPATH")
    if paths is not None and _SITE in paths.split(os.pathsep):
        left = [path for path in paths.split(os.pathsep) if path != _SITE]
        if left:
            os.environ["PYTHONPATH"] = os.pathsep.join(left)
        else:
            del os.environ["PYTHONPATH"]


def is_installed() -> bool:
    """Whether `torch_npu` is this backend in this process."""
    return _SITE in sys.path


def _where() -> str | None:
    """The file of the module torch_npu that an import would give or has given."""
    module = sys.modules.get(NAME)
    if module is not None:
        return getattr(module, "__file__", None) or repr(module)
    spec = importlib.util.find_spec(NAME)
    if spec is None:
        return None
    return spec.origin or next(iter(spec.submodule_search_locations or ()), NAME)
