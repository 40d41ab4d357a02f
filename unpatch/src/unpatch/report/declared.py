"""How declared patches are shown: as tables for people and pipes, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from unpatch.patches.check import Checked
from unpatch.patches.listing import Listed
from unpatch.patches.manager import State
from unpatch.report.words import count, visible

_STYLES = {
    State.APPLIED: "green",
    State.DISABLED: "yellow",
    State.OTHER_VERSION: "yellow",
    State.NOT_APPLIED: "",
    "ok": "green",
    "due": "yellow",
    "drifted": "red",
}


def as_json(module: str, patches: Sequence[Listed] | Sequence[Checked]) -> str:
    """The patches of a module as JSON. Of checked ones, `failing` says whether there is something to do."""
    items: list[dict[str, Any]] = [asdict(patch) for patch in patches]
    document: dict[str, Any] = {"module": module}
    checked = [patch for patch in patches if isinstance(patch, Checked)]
    for item, patch in zip(items, checked, strict=False):
        item["result"] = result(patch)
        for finding, one in zip(item["findings"], patch.findings, strict=True):
            finding["failing"] = one.failing
    if checked:
        document["failing"] = any(patch.failing for patch in checked)
    return msgspec.json.format(msgspec.json.encode({**document, "patches": items}), indent=2).decode() + "\n"


def result(patch: Checked) -> str:
    """`ok`, `due` where the patch can be deleted, `drifted` for everything else that somebody has to do."""
    kinds = {finding.kind for finding in patch.findings if finding.failing}
    return "drifted" if kinds - {"due"} else "due" if kinds else "ok"


def list_table(patches: Iterable[Listed], lines: bool) -> Table:
    """One row a patch; with `lines`, each of several targets in a line of its own."""
    table = _table("patch", "group", "state", "targets", "for versions", "goes when")
    for patch in patches:
        targets = list(dict.fromkeys(write.target for write in patch.writes)) or ["unknown (an opaque function)"]
        goes = patch.remove_when or "no condition declared"
        table.add_row(
            _plain(f"{patch.manager}/{patch.id}"),
            _plain(patch.group),
            Text(patch.state.value, _STYLES[patch.state]),
            _plain(("\n" if lines else ", ").join(targets)),
            _plain(patch.versions or "not stated"),
            _plain(f"{goes} (due)" if patch.due else goes),
        )
    return table


def check_table(patches: Iterable[Checked]) -> Table:
    """One row a patch, with its result."""
    table = _table("patch", "state", "result")
    for patch in patches:
        said = result(patch)
        table.add_row(
            _plain(f"{patch.manager}/{patch.id}"),
            Text(patch.state.value, _STYLES[patch.state]),
            Text(said, _STYLES[said]),
        )
    return table


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
    return [visible(line).replace("\n", "\\n") for line in lines]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _plain(text: str) -> Text:
    return Text(visible(text))
