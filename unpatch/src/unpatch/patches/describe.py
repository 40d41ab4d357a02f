"""A declared patch as a record: what `unpatch.model.PatchInfo` wants to know, with the source of its own functions.

Apart from the rest, because records need msgspec, which must not be imported where patches are merely applied.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from unpatch.model import BranchLine, OriginInfo, PatchInfo
from unpatch.observe.branches import Span
from unpatch.observe.own_code import OwnCode, branch_places, own_code_in
from unpatch.observe.text import short_path
from unpatch.patches.conditions import told
from unpatch.patches.declare import Line, Patch, Write

_LONG = 120  #: characters of a branch's text


def describe(patch: Patch, root: Path) -> PatchInfo:
    """Describe a patch; files below `root` are named relative to it, others relative to their import path.

    `source` is where the first replacement that has source text is written, or else where the patch was declared.
    """
    writes = [write for write in patch.writes if write.kind != "delete"]
    values = [patch.function] if patch.function is not None else [write.replacement for write in writes]
    own = [one for write in writes for one in own_code_in(write.replacement, patch.declared_at.file)]
    places = [place for value in values if (place := _place(value))]
    source = places[0] if places else patch.declared_at
    texts = [_text(patch.function)] if patch.function is not None else _replacements(writes)
    return PatchInfo(
        id=patch.id,
        title=patch.title,
        group=patch.group,
        targets=patch.targets,
        reason=patch.reason,
        origin=OriginInfo(patch.origin.introduced, patch.origin.removed, patch.origin.note),
        versions=patch.versions,
        remove_when=told(patch.remove_when),
        source=f"{short_path(source.file, root)}:{source.line}",
        code="\n\n".join([*texts, *_helpers(own, values)]),
        risk=patch.risk,
        rollback=patch.rollback,
        branches=tuple(
            BranchLine(place, _branch_text(file, span)) for (file, span), place in branch_places(own, root).items()
        ),
    )


# ------------------------------------------------------------------------------------------ texts
def _replacements(writes: Iterable[Write]) -> list[str]:
    """The text of what is written, each once, with the targets where several share it or where it is a mere value."""
    sharing: dict[int, list[Write]] = {}
    for write in writes:
        written = _written(write.replacement)
        sharing.setdefault(id(write.replacement if written is None else written), []).append(write)
    return [_shared_text(group) for group in sharing.values()]


def _shared_text(writes: list[Write]) -> str:
    value = writes[0].replacement
    text = _text(value)
    targets = list(dict.fromkeys(write.target for write in writes))
    if _place(value) is None:
        native = ", without Python source" if callable(value) else ""
        how = {"add": "added", "replace": "replaced"}[writes[0].kind]
        return f"{' = '.join(targets)} = {text}  # {how}: {type(value).__name__}{native}"
    if len({id(write.replacement) for write in writes}) == 1:
        return text
    written = _written(value)
    closed_over = written.co_freevars if isinstance(written, CodeType) else ()
    told = f"# {len(writes)} replacements of one text"
    if closed_over:
        told += f", each with its own {', '.join(closed_over)}"
    return f"{told}: {', '.join(targets)}\n{text}"


def _helpers(own: Iterable[OwnCode], shown: Iterable[Any]) -> list[str]:
    """The text of the functions that count as the patch's own and are not part of what is `shown`, in their order."""
    seen = [_extent(written) for value in shown if (written := _written(value)) is not None]
    texts = []
    for code in sorted({one.code for one in own}, key=lambda code: (code.co_filename, code.co_firstlineno)):
        file, first, last = extent = _extent(code)
        if first == last == 0 or any(file == f and start <= first and last <= end for f, start, end in seen):
            continue
        seen.append(extent)
        owner = code.co_qualname.rpartition(".")[0]
        told = f"# of {owner}\n" if owner and "<locals>" not in owner else ""
        texts.append(told + _source(code))
    return texts


def _extent(written: type | CodeType) -> tuple[str, int, int]:
    """The file and the lines of a text; no lines where there is none."""
    try:
        lines, first = inspect.getsourcelines(written)
        return inspect.getfile(written), first, first + len(lines) - 1
    except (OSError, TypeError):
        return "", 0, 0


def _branch_text(file: str, span: Span) -> str:
    lines = [line.encode() for line in linecache.getlines(file)[span.start[0] - 1 : span.end[0]]]
    if not lines:
        return ""
    lines[-1] = lines[-1][: span.end[1]]
    lines[0] = lines[0][span.start[1] :]
    return textwrap.shorten(b" ".join(lines).decode(), _LONG, placeholder=" …")


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


def _place(value: Any) -> Line | None:
    written = _written(value)
    if written is None:
        return None
    file, first, _ = _extent(written)
    return Line(file, first) if file else None


def _source(written: type | CodeType) -> str:
    return textwrap.dedent(inspect.getsource(written)).rstrip()


def _text(value: Any) -> str:
    written = _written(value)
    if written is not None and _extent(written)[0]:
        return _source(written)
    # An address would make two runs differ.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
