"""The root of all exceptions that unpatch raises on purpose.

The command line shows such an exception as one sentence and leaves with its exit code; everything else is a bug and
keeps its traceback. Standard library only: `unpatch.patches` raises these inside `import torch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


class UnpatchError(Exception):
    """Something the user can act on; `message` says what was wrong, where, and what to do.

    Subclasses set `exit_code`: 2 for wrong usage or input (the default), 1 for a negative result.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def meant(name: str, known: Iterable[str]) -> str:
    """The part of a message that offers the known names that are like an unknown one; empty if none is."""
    import difflib  # only for the message

    similar = difflib.get_close_matches(name, sorted(known))
    return f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""


def said(error: BaseException) -> str:
    """`ValueError: text`, even of an exception whose own `__str__` fails."""
    try:
        text = str(error)
    except Exception:
        text = "(its __str__ fails)"
    return f"{type(error).__name__}: {text}"
