"""How declared patches are shown: as tables for people and pipes, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from unpatch.patches.check import Checked
from unpatch.patches.listing import Listed
from unpatch.patches.manager import State
from unpatch.report.columns import plain, table
from unpatch.report.json import indented
from unpatch.report.words import count, line

_STYLES = {
    State.APPLIED: "green",
    State.DISABLED: "yellow",
    State.OTHER_VERSION: "yellow",
    State.NOT_APPLIED: "",
    "ok": "green",
    "due": "yellow",
    "drifted": "red",
}


def list_json(module: str, patches: Iterable[Listed]) -> str:
    """The patches of a module as JSON."""
    return indented({"module": module, "patches": [asdict(patch) for patch in patches]})


def check_json(module: str, patches: Sequence[Checked]) -> str:
    """The checked patches of a module as JSON; `failing` says whether there is something to do."""
    items: list[dict[str, Any]] = []
    for patch in patches:
        item = {**asdict(patch), "result": result(patch)}
        for finding, one in zip(item["findings"], patch.findings, strict=True):
            finding["failing"] = one.failing
        items.append(item)
    return indented({"module": module, "failing": any(patch.failing for patch in patches), "patches": items})


def result(patch: Checked) -> str:
    """`ok`, `due` where the patch can be deleted, `drifted` for everything else that somebody has to do."""
    kinds = {finding.kind for finding in patch.findings if finding.failing}
    return "drifted" if kinds - {"due"} else "due" if kinds else "ok"


def list_table(patches: Iterable[Listed], lines: bool) -> Table:
    """One row a patch; with `lines`, each of several targets in a line of its own."""
    made = table("patch", "group", "state", "targets", "for versions", "goes when")
    for patch in patches:
        targets = list(dict.fromkeys(write.target for write in patch.writes)) or ["unknown (an opaque function)"]
        goes = patch.remove_when or "no condition declared"
        made.add_row(
            plain(f"{patch.manager}/{patch.id}"),
            plain(patch.group),
            Text(patch.state.value, _STYLES[patch.state]),
            plain(("\n" if lines else ", ").join(targets)),
            plain(patch.versions or "not stated"),
            plain(f"{goes} (due)" if patch.due else goes),
        )
    return made


def check_table(patches: Iterable[Checked]) -> Table:
    """One row a patch, with its result."""
    made = table("patch", "state", "result")
    for patch in patches:
        said = result(patch)
        made.add_row(
            plain(f"{patch.manager}/{patch.id}"),
            Text(patch.state.value, _STYLES[patch.state]),
            Text(said, _STYLES[said]),
        )
    return made


def check_lines(module: str, patches: Sequence[Checked]) -> list[str]:
    """What was found out, one line each, the fingerprints to declare, and a last line that says it all."""
    lines = [
        f"{patch.manager}/{patch.id}: {finding.kind}: {finding}" for patch in patches for finding in patch.findings
    ]
    for patch in patches:
        if not any(finding.kind in ("changed", "undeclared") for finding in patch.findings):
            continue
        entries = ", ".join(f'"{target}": "{now}"' for target, now in patch.fingerprints.items())
        lines.append(f"{patch.manager}/{patch.id}: to declare what is there now: fingerprints={{{entries}}},")
    results = [result(patch) for patch in patches]
    told = [f"{results.count(word)} {word}" for word in ("drifted", "due") if word in results] or ["none drifted"]
    lines.append(f"{count(len(patches), 'patch')} of {module}: {', '.join(told)}.")
    return list(map(line, lines))
