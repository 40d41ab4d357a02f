"""The words of a report: how verdicts, outcomes, counts and strange characters are written, wherever they appear."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import msgspec

from unpatch.model import (
    CaseVerdict,
    Channel,
    ChannelVerdict,
    Outcome,
    PatchResult,
    PatchVerdict,
    ReachSummary,
    StudyResult,
)
from unpatch.report.blocks import Badge, Tone

CHANNELS: tuple[Channel, ...] = ("operators", "keys", "tensors", "exceptions", "messages", "warnings")

_TONES: dict[str, Tone] = {
    "inert": "go",
    "unreached": "go",
    "branch_unreachable": "go",
    "harmful": "harm",
    "required": "keep",
    "behavioural": "keep",
    "inconclusive": "unsure",
    "changed": "note",
    "error_changed": "note",
    "nothing": "none",
    "not_compared": "none",
}

#: What each word means, for the reader of a document.
MEANINGS: tuple[tuple[str, str], ...] = (
    ("required", "a case passes with the patch and fails without it"),
    ("behavioural", "a case passes with and without the patch, and does something else without it"),
    ("inconclusive", "two runs with the patch already differ, so nothing can be said about a run without it"),
    ("harmful", "a case fails with the patch and passes without it"),
    ("inert", "no difference beyond those listed under the patch"),
    ("branch unreachable", "the patch was called, but none of its own branches ran in any case"),
    ("unreached", "the patch was not called in any case"),
    ("error changed", "a case fails with and without the patch, with another error: listed, decides nothing"),
    ("nothing", "a case fails alike with and without the patch, so it says nothing"),
    ("changed", "messages or warnings differ: listed, decides nothing"),
    ("not compared", "this channel has nothing to compare; each case says why"),
)

#: Said wherever a patch is harmful and can go, which would else look like a contradiction.
HARMFUL = "Harmful means that the patch itself breaks cases: they fail with it and pass without it, so it should go."

Verdict = PatchVerdict | CaseVerdict | ChannelVerdict


def words(value: Verdict | Outcome) -> str:
    """A verdict or outcome as people write it."""
    return value.replace("_", " ")


def badge(verdict: Verdict) -> Badge:
    """A verdict that a reader should notice."""
    return Badge(words(verdict), _TONES[verdict])


def cell(verdict: Verdict) -> Badge:
    """A verdict among many: only what differs should be noticed."""
    return Badge(words(verdict), _TONES[verdict], quiet=verdict in ("inert", "not_compared"))


def removable(patch: PatchResult) -> Badge:
    """Whether the patch can go, as a word."""
    return (
        Badge("yes", "go") if patch.removable else Badge("no", "unsure" if patch.verdict == "inconclusive" else "keep")
    )


def count(number: int, noun: str) -> str:
    """`1 case`, `1,200 cases`, `2 patches`."""
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def enumeration(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def reached(reach: ReachSummary) -> str:
    """Calls and cases that reached a patch; a compiled call leaves no count."""
    parts = [f"{count(reach.calls, 'call')} in {reach.cases_reached} of {count(reach.cases, 'case')}"]
    if reach.compiled != "no":
        parts.append(compiled(reach.compiled))
    if reach.cases_unknown:
        parts.append(f"not measured in {count(reach.cases_unknown, 'case')}")
    return "; ".join(parts)


def compiled(value: str) -> str:
    """What is known of a patch's calls inside compiled regions."""
    return {"traced": "traced when compiled", "unknown": "unknown when compiled"}.get(value, "")


def own_branch(reach: ReachSummary) -> str:
    """Whether the patch's own branches ran."""
    if reach.branch_ran is None:
        return "unknown" if reach.reached else "not called"
    if not reach.branches:
        return "ran (no condition)"
    return f"{reach.branches_run} of {reach.branches} ran"


def duration(seconds: float) -> str:
    """Seconds for people: `0.25 s`, `12.0 s`, `3 min 5 s`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


# Characters that are not seen, or that reorder what is seen: a message could hide or forge a verdict with them.
_REORDERING = frozenset("\u2028\u2029\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    """`text` with line ends as `\\n` and control characters (terminal escapes, text direction) written as escapes."""
    return "".join(
        character
        if character in "\n\t" or not (unicodedata.category(character) in ("Cc", "Cs") or character in _REORDERING)
        else character.encode("unicode_escape").decode("ascii")
        for character in re.sub(r"\r\n?", "\n", text)
    )


def line(text: str) -> str:
    """`visible` text that is one line."""
    return visible(text).replace("\n", "\\n")


def visible_result(result: StudyResult) -> StudyResult:
    """The study with every string made visible, so that no renderer can forget one."""

    def walk(value: object) -> object:
        if isinstance(value, str):
            return visible(value)
        if isinstance(value, dict):
            return {walk(key): walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list | tuple) else value

    return msgspec.convert(walk(msgspec.to_builtins(result)), StudyResult)
