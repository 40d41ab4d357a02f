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
    modules: dict[str, str] = {}  #: what each is called in the text
    bodies: list[str] = []
    taken: set[str] = set()
    names = {"manager", "PatchManager"}
    for finding in chosen:
        why = _undeclarable(finding)
        if why:
            raise AuditError(f"{finding.id} cannot be declared: {why}.")
        id = _free(_short(finding.target), taken)
        variable = _free(id.replace("-", "_"), names)
        reason = f"Found at {_place(finding)}; say why it is needed."
        arguments, method = "", "delete"
        if finding.kind != "delete":
            assert finding.new is not None
            module, _, attribute = finding.new.importable.partition(":")
            if module not in modules:
                modules[module] = _free(module.replace(".", "_"), names)
            arguments = f", {modules[module]}.{attribute}"
            added = finding.classed in ("addition", "registration") and finding.old is None
            method = "add" if added else "replace"
        writes = [f"{variable}.{method}({target!r}{arguments})" for target in (finding.target, *finding.aliases)]
        bodies.append("\n".join([f"{variable} = {_declare(id, reason)}", *writes]))
    head = [
        f'"""Patches of {result.activation.target} that `unpatch audit` found, declared.',
        "",
        "Delete the writes at the places named below. Then import this module and call `manager.apply_all()`, once: where the",
        "last of them stood, or at the end of the package's `__init__.py`. What is written must have been defined by then.",
        '"""',
        "",
        # `a.b.x` after `import a.b` fails while a.b is still being imported, at whose end this module may be imported.
        *(f"import {module}" + (f" as {name}" if name != module else "") for module, name in sorted(modules.items())),
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


def _short(target: str) -> str:
    """An id made of the last two words of a target."""
    words = re.findall(r"\w+", target)[-2:]
    return "-".join(word.strip("_").lower().replace("_", "-") or "x" for word in words)


def _free(base: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is from now on."""
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}{'-' if '-' in base else '_'}{number}"
    taken.add(name)
    return name
