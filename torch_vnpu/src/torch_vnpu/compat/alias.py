"""A package under another name: its submodules are the very modules of the real package, not second copies of them."""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder(MetaPathFinder, Loader):
    def __init__(self, name: str, real: str) -> None:
        self.name, self.real = name, real

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.name + "."):
            return None
        found = importlib.util.find_spec(self._real(fullname))
        if found is None:
            return None
        return ModuleSpec(fullname, self, origin=found.origin, is_package=found.submodule_search_locations is not None)

    def exec_module(self, module: ModuleType) -> None:
        # The import system goes on with what stands here after this.
        sys.modules[module.__name__] = importlib.import_module(self._real(module.__name__))

    def _real(self, fullname: str) -> str:
        return self.real + fullname[len(self.name) :]


def offer(name: str, real: str) -> None:
    """Have `name.x` imported as `real.x`, the same module object."""
    # First: the submodules have a path, on which the next finder would find second copies of theirs.
    sys.meta_path.insert(0, _Finder(name, real))


def forget(name: str) -> None:
    """Undo `offer`, and forget the modules that were imported under the name."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not (isinstance(finder, _Finder) and finder.name == name)]
    for loaded in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
        del sys.modules[loaded]
