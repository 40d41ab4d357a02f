"""Names in a trace that torch wrote, put back as they were.

torch's writer of traces puts quotes into the file as they are, so that nothing can read it, turns backslashes over, and calls
every name that is not printable ASCII `unknown`. The events that it wrote are known, in its order, so the file is read by lines
(it writes one field a line; only a thread's name can span several) and each such name is written again.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Sequence
from pathlib import Path

from unpatch.files import written_whole

_CLEAN = re.compile(r"[ !#-\[\]-~]*")
_EVENT = re.compile(rb'    "ph": "[Xi]"')
_NAME = re.compile(rb'(.*?"name": ").*(",?\s*)', re.DOTALL)
_TITLE = re.compile(rb'(.*"traceName": ").*(" ?\}\s*)', re.DOTALL)
#: A process's or thread's name that a reader of JSON cannot take.
_BROKEN_TITLE = re.compile(rb'\n      "name": "(?![ !#-\[\]-~]*"\n    \})')


def is_clean(text: str) -> bool:
    """Whether the writer shows `text` as it is."""
    return _CLEAN.fullmatch(text) is not None


def restore(file: Path, names: Sequence[str], title: str) -> None:
    """Write the names of the file's first events, and the trace's own, as they are; whole, and only if need be.

    Args:
        names: of the events, in the file's order; what the file has beyond them keeps its name.
        title: the path that the trace is for.

    Raises:
        ValueError: the file does not have these events; it stays as it was.
    """
    if all(map(is_clean, names)) and is_clean(title) and not _has_broken_titles(file):
        return
    with open(file, "rb") as source, written_whole(file) as target:
        at, due, title_lines = 0, False, b""
        for line in source:
            if title_lines:
                if line.startswith(b"    }"):
                    target.write(_escaped(title_lines))
                    title_lines = b""
                else:
                    title_lines += line
                    continue
            if _EVENT.match(line):
                due = at < len(names)
            if due and line.startswith(b'    "name": "'):
                line = _with(line, names[at])
                at, due = at + 1, False
            elif line.startswith(b'      "name": "'):
                title_lines = line
                continue
            elif b'"traceName": "' in line and (found := _TITLE.fullmatch(line)):
                line = found[1] + _quoted(title) + found[2]
            target.write(line)
        if at < len(names):
            raise ValueError(f"{file} has {at} of the {len(names)} events whose names are to be restored")


def _has_broken_titles(file: Path) -> bool:
    with open(file, "rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _BROKEN_TITLE.search(content) is not None


def _with(line: bytes, name: str) -> bytes:
    found = _NAME.fullmatch(line)
    assert found is not None  # the caller saw the field
    return found[1] + _quoted(name) + found[2]


def _escaped(line: bytes) -> bytes:
    found = _NAME.fullmatch(line)
    assert found is not None  # the caller saw the field
    return found[1] + _quoted(line[found.end(1) : found.start(2)].decode(errors="replace")) + found[2]


def _quoted(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace")
