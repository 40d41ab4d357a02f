"""A declared patch as a record: what `unpatch.model.PatchInfo` wants to know, with the source of the replacements.

Apart from the rest, because records need msgspec, which must not be imported where patches are merely applied.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import CodeType
from typing import Any

from unpatch.model import OriginInfo, PatchInfo
from unpatch.patches.declare import Patch, Place


def describe(patch: Patch, root: Path) -> PatchInfo:
    """Describe a patch; files below `root` are named relative to it, others relative to their import path.

    `source` is where the first replacement that has source text is written, or else where the patch was declared.
    """
    replacements = list({id(value): value for value in _replacements(patch)}.values())
    places = [place for value in replacements if (place := _place(value))]
    source = places[0] if places else patch.declared_at
    return PatchInfo(
        id=patch.id,
        title=patch.title,
        group=patch.group,
        targets=patch.targets,
        reason=patch.reason,
        origin=OriginInfo(patch.origin.introduced, patch.origin.removed, patch.origin.note),
        versions=patch.versions,
        remove_when=patch.remove_when,
        source=f"{_relative(Path(source.file), root)}:{source.line}",
        code="\n\n".join(_text(value) for value in replacements),
        risk=patch.risk,
        rollback=patch.rollback,
    )


def _replacements(patch: Patch) -> list[Any]:
    if patch.function is not None:
        return [patch.function]
    return [write.replacement for write in patch.writes if write.kind != "delete"]


def _written(value: Any) -> type | CodeType | None:
    """What has source text of its own. Code, not the function: `inspect` would follow `__wrapped__` to the original."""
    if isinstance(value, property):
        value = value.fget
    while isinstance(value, staticmethod | classmethod | functools.partial):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, type):
        return value
    code = getattr(value, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _place(value: Any) -> Place | None:
    written = _written(value)
    if written is None:
        return None
    try:
        return Place(inspect.getfile(written), inspect.getsourcelines(written)[1])
    except (OSError, TypeError):
        return None


def _text(value: Any) -> str:
    written = _written(value)
    if written is not None:
        try:
            return textwrap.dedent(inspect.getsource(written)).rstrip()
        except (OSError, TypeError):
            pass
    # An address would make two runs differ.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _relative(file: Path, root: Path) -> str:
    for base in (root, *map(Path, sorted(sys.path, key=len, reverse=True))):
        if base.is_absolute() and file.resolve().is_relative_to(base.resolve()):
            return file.resolve().relative_to(base.resolve()).as_posix()
    return file.name
