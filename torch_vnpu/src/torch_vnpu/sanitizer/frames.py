"""Which calls of a Python stack belong to the program: not those that started it, nor those of this package."""

import os
import re
import sysconfig
from collections.abc import Sequence
from typing import NamedTuple

import torch

import unpatch


class Frame(NamedTuple):
    """One call of a Python stack."""

    file: str
    function: str
    line: int


#: This package, what it patches with, and where Python listens for operators.
_OURS = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    os.path.dirname(unpatch.__file__) + os.sep,
)
_LISTENERS = tuple(
    os.path.join(os.path.dirname(torch.__file__), *path) for path in (("utils", "_python_dispatch.py"), ("_ops.py",))
)
#: Files whose functions start a program, a test or a process.
_STARTERS = re.compile(
    r"<frozen runpy>|.*/runpy\.py|.*/torch_vnpu_(cli|pytest)\.py"
    r"|.*/(site|dist)-packages/(_pytest|pluggy|pytest|xdist|execnet)/.*"
    r"|.*/multiprocessing/(spawn|process|forkserver|popen_\w+|context)\.py"
)
#: Files whose module calls one of those; the program itself may have such a name.
_ENTRIES = {"<string>", "pytest", "py.test", "vnpu"}
_LIBRARIES = (
    os.path.dirname(torch.__file__) + os.sep,
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
)


def shown(frames: Sequence[Frame]) -> list[Frame]:
    """Those of the program, of `frames` from the innermost call on; the innermost one if none is."""
    end = len(frames)
    if end > 1 and os.path.basename(frames[-1].file) in _ENTRIES and _starts(frames[-2]):
        end -= 1
    while end and _starts(frames[end - 1]):
        end -= 1
    own = [frame for frame in frames[:end] if not frame.file.startswith(_OURS)]
    while own and own[0].file.startswith(_LISTENERS):
        del own[0]
    return own or list(frames[:1])


def users(frames: Sequence[Frame]) -> Frame | None:
    """The innermost call that is in no library; the innermost one if all are."""
    own = (frame for frame in frames if not frame.file.startswith(("<frozen ", *_LIBRARIES)))
    return next(own, frames[0] if frames else None)


def _starts(frame: Frame) -> bool:
    return frame.file.startswith(_OURS) or _STARTERS.fullmatch(frame.file) is not None
