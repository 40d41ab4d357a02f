"""Two audits compared: of two versions of a package or of its target, or of a baseline and now."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from unpatch.audit.errors import AuditError
from unpatch.audit.records import SHOWN, AuditResult, Finding


class Difference(Struct, frozen=True):
    """One finding that is not in both audits, or not the same in both."""

    id: str
    change: Literal["new", "gone", "changed"]
    what: tuple[str, ...]  #: of changed ones: the names of the fields that differ
    before: Finding | None
    after: Finding | None


def load(path: Path) -> AuditResult:
    """Read what `unpatch audit --json` wrote. Raises AuditError where it is not that."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=AuditResult)
    except OSError as error:
        raise AuditError(f"Cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise AuditError(f"{path} is no result of `unpatch audit --json`: {error}.") from error


def differences(before: AuditResult, after: AuditResult) -> tuple[Difference, ...]:
    """What is new, gone or changed, by id; lines may move without being a change."""
    old, new = _by_id(before), _by_id(after)
    found = []
    for id in sorted({*old, *new}):
        one, other = old.get(id), new.get(id)
        if one is None or other is None:
            found.append(Difference(id, "new" if one is None else "gone", (), one, other))
        elif changed := _changed(one, other):
            found.append(Difference(id, "changed", changed, one, other))
    return tuple(found)


def _by_id(result: AuditResult) -> dict[str, Finding]:
    return {finding.id: finding for finding in result.findings if finding.classed in SHOWN}


def _changed(before: Finding, after: Finding) -> tuple[str, ...]:
    """Fields that differ; of values, their text: a definition that only moved is no change."""

    def what(finding: Finding) -> dict[str, object]:
        texts = [value.text if value is not None else None for value in (finding.old, finding.new)]
        return {
            "class": finding.classed, "kind": finding.kind, "old": texts[0], "new": texts[1],
            "aliases": sorted(finding.aliases), "package": finding.package,
        }  # fmt: skip

    one, other = what(before), what(after)
    return tuple(name for name in one if one[name] != other[name])
