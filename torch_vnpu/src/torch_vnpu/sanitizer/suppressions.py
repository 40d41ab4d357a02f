"""Which findings a project knows of and does not want to hear: one rule a line, `kind:pattern`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

from torch_vnpu.sanitizer.findings import Finding, Kind

_KINDS = (*get_args(Kind), "*")


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits findings of `kind` (`*`: any) where an operator's name, or a frame's `file:function`, fits the shell pattern."""

    kind: str
    pattern: str

    def fits(self, finding: Finding) -> bool:
        if self.kind not in ("*", finding.kind):
            return False
        if any(fnmatchcase(side.operation, self.pattern) for side in (finding.first, finding.second)):
            return True
        return any(
            fnmatchcase(f"{frame.file}:{frame.function}", self.pattern)
            for stack in finding.stacks
            for frame in finding.all_frames(stack)
        )


def parse(text: str, source: str = "suppressions") -> list[Rule]:
    """The rules of a file's text. Empty lines and what follows a `#` at a line's start do not count.

    Raises ValueError: a line that is no rule, with its number.
    """
    rules = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        kind, separator, pattern = line.partition(":")
        if not separator or kind not in _KINDS or not pattern.strip():
            raise ValueError(
                f"{source}:{number}: {line!r} is no suppression; write kind:pattern, the kind one of {', '.join(_KINDS)}"
            )
        rules.append(Rule(kind, pattern.strip()))
    return rules


def load(path: str | Path) -> list[Rule]:
    """The rules in a file. Raises OSError, and ValueError as `parse` or where it is no text."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no file of suppressions: byte {error.start} is no UTF-8") from error
    return parse(text, str(path))
