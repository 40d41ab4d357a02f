"""Texts that try to leave their place in a document, and a study that holds such a text everywhere it can."""

from __future__ import annotations

from itertools import count

import msgspec
from evidence_study import study
from hypothesis import strategies as st

from unpatch.model import StudyResult

_PIECES = [
    "<script>alert(1)</script>", "</style>", "</title>", '"', "'", ' onload="x"', "<img src=x onerror=y>", "&lt;",
    "&amp;", "]]>", "<!--", "-->", "</details>", "</code>", "</table>", "{{ 7 * 7 }}", "{% raw %}", "`", "```", "|",
    "\\", "\\|",
    "\n", "\n\n", "\r\n", "    ", "# ", "- ", "1. ", "> ", "---", "===", "*", "**", "_", "~~", "[a](b)", "![a](b)",
    "<b>", "@someone", "#1", ":tada:", "$x$", "http://a.b", "\t", "\x00", "\x1b[31m", "\u202e", "\u2028",
    "שלום", "👩‍💻",
]  # fmt: skip

hostile_texts = st.lists(st.sampled_from(_PIECES) | st.text(st.characters(codec="utf-8"), max_size=8), max_size=12).map(
    "".join
)

_LITERAL = {"verdict", "outcome", "arm", "channel", "compiled"}  # fields with a fixed set of words


def infested(text: str) -> StudyResult:
    """The study with `text` in place of each of its free texts; identifiers get a number, to stay distinct."""
    numbers = count()

    def walk(value: object, key: str) -> object:
        if isinstance(value, dict):
            fixed = key == "channels"
            return {name: item if fixed or name in _LITERAL else walk(item, name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [walk(item, key if isinstance(item, str) else "") for item in value]
        if isinstance(value, str):
            return f"{text}{next(numbers)}" if key == "id" else text
        return value

    return msgspec.convert(walk(msgspec.to_builtins(study()), ""), StudyResult)
