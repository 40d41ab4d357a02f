"""The channels *exceptions* and *messages*: what ended a case, in words that two runs share."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from pathlib import Path
from types import CodeType

from unpatch.model import ErrorInfo
from unpatch.observe.text import normalise, qualified_name, relative_to_root, short_path


def describe_error(exception: BaseException, root: Path, patched: Collection[CodeType] = ()) -> ErrorInfo:
    """Type, message and place of `exception`.

    `place` is the last statement below `root` on the way to the error (empty if there is none), `raised_at` the
    innermost Python function. Neither they nor the message hold absolute paths or memory addresses.

    `patched` is the code of patches, which is no place of a workload: an error that a patch hands on from the original
    surfaces at the same statement with and without the patch.
    """
    place = raised_at = ""
    for frame, line in traceback.walk_tb(exception.__traceback__):
        file = frame.f_code.co_filename
        relative = relative_to_root(file, root)
        if relative is not None and not any(frame.f_code is code for code in patched):
            place = f"{relative}:{line}"
        raised_at = f"{relative or short_path(file)}:{frame.f_code.co_qualname}"
    return ErrorInfo(qualified_name(type(exception)), normalise(_message(exception), root), place, raised_at)


def _message(exception: BaseException) -> str:
    try:
        message = str(exception)
    except BaseException as error:  # an exception whose own __str__ is broken must not end the trial
        message = f"(no message: {qualified_name(type(error))} in __str__)"
    notes = getattr(exception, "__notes__", None)
    texts = notes if isinstance(notes, list) else []  # add_note() makes a list of texts, an assignment makes anything
    return "\n".join([message, *(note for note in texts if isinstance(note, str))])
