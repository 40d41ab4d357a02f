"""Makes texts of one run comparable with those of another, and free of this machine's paths.

Files are named relative to the study, or as their package names them (`torch/nn/modules/module.py`); memory addresses
are blotted out.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path

from unpatch.observe.own_frames import without_ours

# Shorter numbers in hex are constants that a message wants to show, not addresses.
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_BEFORE_PATH = r"(?<![\w.~:/-])"
# What no known folder contains: a file deep in a tree of its own, such as a build folder named by a C++ error.
_DEEP_PATH = re.compile(_BEFORE_PATH + r"/(?:[\w.+@-]+/){2,}([\w.+@-]+)")
_INSTALLED = {"site-packages", "dist-packages"}


def relative_to_root(file: str, root: Path | None) -> str | None:
    """`file` relative to `root`; None where it lies outside, or in an environment of packages installed inside."""
    if root is None:
        return None
    try:
        relative = Path(file).resolve().relative_to(root.resolve())
    except (OSError, ValueError):
        return None
    return None if _INSTALLED & set(relative.parts) else relative.as_posix()


def short_path(file: str, root: Path | None = None) -> str:
    """`file` relative to `root`, else as its package names it, else its name alone. `<string>` and the like stay."""
    relative = relative_to_root(file, root)
    if relative is not None:
        return relative
    for folder in _folders(root):
        if file.startswith(folder + os.sep):
            return Path(file[len(folder) + 1 :]).as_posix()
    return Path(file).name if os.path.isabs(file) else file


def normalise(text: str, root: Path | None = None) -> str:
    """`text` without memory addresses, absolute paths of this machine, and frames of our own."""
    text = _ADDRESS.sub("0x…", without_ours(text))
    for folder in _folders(root):
        text = re.sub(_BEFORE_PATH + re.escape(folder) + r"(/|(?!\w))", lambda match: "" if match[1] else ".", text)
    return _DEEP_PATH.sub(r"\1", text)


def qualified_name(kind: type) -> str:
    """`module.Name` of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _folders(root: Path | None) -> list[str]:
    """Folders that say nothing but where this machine keeps things (Python's search path included), longest first."""
    paths = sysconfig.get_paths()
    known = {*sys.path, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))}
    known |= {sys.prefix, sys.base_prefix, os.path.expanduser("~"), tempfile.gettempdir()}
    with contextlib.suppress(FileNotFoundError):  # the workload may have removed the folder it is in
        known.add(os.getcwd())
    if root is not None:
        known |= {str(root), str(root.resolve())}
    known = {folder.rstrip(os.sep) for folder in known if os.path.isabs(folder)}
    return sorted(known - {""}, key=lambda folder: (-len(folder), folder))
