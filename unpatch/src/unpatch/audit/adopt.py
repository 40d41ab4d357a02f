"""Writes declarations for found patches, so that a package can move under management."""

from __future__ import annotations

import re
from collections.abc import Sequence

from unpatch.audit.errors import AuditError
from unpatch.audit.records import AuditResult, Finding


def declarations(result: AuditResult, ids: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A Python module that declares these findings, and the writes that are then to be deleted, as `file:line`.

    Raises AuditError where an id names nothing, or a patch that cannot be declared.
    """
    by_id = {finding.id: finding for finding in result.findings}
    chosen = []
    for id in dict.fromkeys(ids):
        if id not in by_id:
            raise AuditError(f"The audit found no patch {id!r}; `unpatch audit {result.activation.target}` lists them.")
        chosen.append(by_id[id])
    imports: set[str] = set()
    bodies: list[str] = []
    names: set[str] = set()
    for finding in chosen:
        why = _undeclarable(finding)
        if why:
            raise AuditError(f"{finding.id} cannot be declared: {why}.")
        name = _name(finding.target, names)
        reason = f"Found at {_place(finding)}; say why it is needed."
        arguments, method = "", "delete"
        if finding.kind != "delete":
            assert finding.new is not None
            module, _, attribute = finding.new.importable.partition(":")
            imports.add(module)
            arguments = f", {module}.{attribute}"
            added = finding.classed in ("addition", "registration") and finding.old is None
            method = "add" if added else "replace"
        variable = name.replace("-", "_")
        writes = [f"{variable}.{method}({target!r}{arguments})" for target in (finding.target, *finding.aliases)]
        bodies.append("\n".join([f"{variable} = {_declare(name, reason)}", *writes]))
    head = [
        f'"""Patches of {result.activation.target} that `unpatch audit` found, declared.',
        "",
        "Delete the writes at the places named below, and call `manager.apply_all()` where they stood.",
        '"""',
        "",
        *(f"import {module}" for module in sorted(imports)),
        "from unpatch.patches import PatchManager",
        "",
        f'manager = PatchManager("{result.activation.target.partition(".")[0]}")',
        "",
    ]
    return "\n".join([*head, "\n\n".join(bodies), ""]), tuple(_place(finding) for finding in chosen)


def _declare(name: str, reason: str) -> str:
    return f"manager.declare(id={name!r}, group='adopted', reason={reason!r})"


def _undeclarable(finding: Finding) -> str:
    if finding.kind in ("code", "bases", "state", "kernel"):
        return f"a declaration writes attributes and entries, and this is {finding.kind}"
    if "…" in finding.target or "<" in finding.target:
        return "its place has no name"
    if finding.kind != "delete" and (finding.new is None or not finding.new.importable):
        return "its replacement has no name under which it can be imported; give it one"
    return ""


def _place(finding: Finding) -> str:
    return f"{finding.site.file}:{finding.site.line}" if finding.site is not None else "an unknown place"


def _name(target: str, taken: set[str]) -> str:
    """An id made of the last two words of a target."""
    words = re.findall(r"\w+", target)[-2:]
    base = "-".join(word.strip("_").lower().replace("_", "-") or "x" for word in words)
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken.add(name)
    return name
