"""Frames that are in a traceback only because we watch: our recorder's, and those that lead into and out of it.

An exception's text can hold a whole traceback (of a worker thread, say). What users will read has no such frames.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = tuple(os.path.join(_PACKAGE, part) for part in (f"observe{os.sep}", f"ablate{os.sep}", "study.py"))

#: As `traceback` prints one: its head, then indented lines. A group's frames stand behind bars.
_HEAD = re.compile(r'(?P<margin>[ |]*)File "(?P<file>[^"\n]+)", line \d+, in (?P<function>.+)')
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")


class Frame(NamedTuple):
    """One frame of a traceback."""

    file: str
    function: str


def ours(frames: Sequence[Frame]) -> set[int]:
    """The positions of our frames in a traceback, with the frames of torch that only they bring about."""
    found = {position for position, frame in enumerate(frames) if frame.file.startswith(_OURS)}
    for position in list(found):
        # Dynamo keeps out of our mode by a wrapper around it, and the mode calls the operator it was handed.
        if position and _is(frames[position - 1], "torch/_dynamo/eval_frame.py", "_fn"):
            found.add(position - 1)
        following = position + 1
        if following < len(frames) and _is(frames[following], "torch/_ops.py", "__call__"):
            found.add(following)
    return found


def _is(frame: Frame, file: str, function: str) -> bool:
    return frame.file.replace(os.sep, "/").endswith(f"/{file}") and frame.function.rpartition(".")[2] == function


def without_ours(text: str) -> str:
    """`text` without our frames in the tracebacks that it holds."""
    if 'File "' not in text:
        return text
    blocks = _blocks(text)
    heads = [position for position, (frame, _) in enumerate(blocks) if frame is not None]
    unwanted = {heads[n] for n in ours([frame for frame, _ in blocks if frame is not None])}
    return "".join(block for position, (_, block) in enumerate(blocks) if position not in unwanted)


def without_frames(text: str) -> str:
    """`text` without any frame of the tracebacks that it holds."""
    return "".join(block for frame, block in _blocks(text) if frame is None)


def frames_of(text: str) -> list[str]:
    """`file in function` for each frame of the tracebacks that `text` holds."""
    return [f"{frame.file} in {frame.function}" for frame, _ in _blocks(text) if frame is not None]


def after_frames(text: str) -> str:
    """The line that ends the last traceback in `text` and says what happened; empty if there is none."""
    blocks = _blocks(text)
    last = max((position for position, (frame, _) in enumerate(blocks) if frame is not None), default=len(blocks))
    return "".join(block for _, block in blocks[last + 1 : last + 2]).strip()


def _blocks(text: str) -> list[tuple[Frame | None, str]]:
    """The text in parts: each frame with the lines that belong to it, and what lies between."""
    blocks: list[tuple[Frame | None, str]] = []
    margin = None  # what the lines of a frame begin with: bars, and at least four spaces (Dynamo's heads have three)
    for line in text.splitlines(keepends=True):
        head = _HEAD.match(line)
        if head is not None:
            margin = head["margin"][: head["margin"].rfind("|") + 1] + "    "
            blocks.append((Frame(head["file"], head["function"].strip()), line))
        elif margin is not None and (line.startswith(margin) or _REPEATED.match(line)):
            frame, block = blocks[-1]
            blocks[-1] = (frame, block + line)
        else:
            margin = None
            blocks.append((None, line))
    return blocks
