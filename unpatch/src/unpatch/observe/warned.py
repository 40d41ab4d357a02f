"""The channel *warnings*: every warning of a case, repeated ones too, from all threads, sorted."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import TracebackType

from unpatch.model import WarningInfo
from unpatch.observe.text import normalise, qualified_name


class WarningRecorder:
    """Catches what is warned between enter and exit; after exit `warnings` holds it."""

    def __init__(self, root: Path | None = None) -> None:
        self.warnings: tuple[WarningInfo, ...] = ()
        self._root = root
        self._catch = warnings.catch_warnings(record=True)

    def __enter__(self) -> WarningRecorder:
        caught = self._catch.__enter__()
        self._caught = caught if caught is not None else []
        # Each of a repeated warning, also of one that would not be shown; but one that is an error for the program is
        # no warning.
        for index, (action, *rest) in enumerate(warnings.filters):
            if action != "error":
                warnings.filters[index] = ("always", *rest)  # type: ignore[index]
        warnings.simplefilter("always", append=True)
        # torch's native code warns once per process; a case must not depend on the cases before it.
        self._torch = sys.modules.get("torch")
        if self._torch is not None:
            self._warned_always = self._torch.is_warn_always_enabled()
            self._torch.set_warn_always(True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._torch is not None:
            self._torch.set_warn_always(self._warned_always)
        self._catch.__exit__(kind, error, tb)
        found = [
            WarningInfo(qualified_name(caught.category), normalise(str(caught.message), self._root))
            for caught in list(self._caught)
        ]
        self.warnings = tuple(sorted(found, key=lambda info: (info.category, info.message)))


def record_warnings(root: Path | None = None) -> WarningRecorder:
    """A context manager that records all warnings; paths in their texts are made relative to `root`."""
    return WarningRecorder(root)
