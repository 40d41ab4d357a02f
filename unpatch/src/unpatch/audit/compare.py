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

    @property
    def is_new(self) -> bool:
        """Whether something is done now that was not done before; a patch that got a declaration does what it did."""
        return self.change == "new" or (self.change == "changed" and self.what != ("declared",))


def load(path: Path) -> AuditResult:
    """Read what `unpatch audit --json` wrote. Raises AuditError where it is not that."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=AuditResult)
    except OSError as error:
        raise AuditError(f"Cannot read {path}: {error.strerror}.") from error
    except msgspec.DecodeError as error:
        raise AuditError(f"{path} is no result of `unpatch audit --json`: {error}.") from error


def differences(before: AuditResult, after: AuditResult) -> tuple[Difference, ...]:
    """What is new, gone or changed, by id; lines may move without being a change.

    A patch that is declared writes where its declaration is applied, so its id differs from that of the undeclared write: it
    is the same one where target and package are.
    """
    old, new = _by_id(before), _by_id(after)
    found = []
    for id, other in sorted(new.items()):
        one = old.get(id) or _moved(other, old, new)
        if one is None:
            continue
        del old[one.id], new[id]
        if changed := _changed(one, other):
            found.append(Difference(id, "changed", changed, one, other))
    found += [Difference(id, "gone", (), one, None) for id, one in old.items()]
    found += [Difference(id, "new", (), None, other) for id, other in new.items()]
    return tuple(sorted(found, key=lambda difference: difference.id))


def _moved(other: Finding, old: dict[str, Finding], new: dict[str, Finding]) -> Finding | None:
    """The one of before that a new finding is, where one of the two is declared with unpatch and the other is not."""
    for one in old.values():
        same = (one.target, one.package) == (other.target, other.package)
        if same and one.id not in new and _by_unpatch(one) != _by_unpatch(other):
            return one
    return None


def _by_unpatch(finding: Finding) -> bool:
    return finding.declared is not None and finding.declared.library == "unpatch"


def _by_id(result: AuditResult) -> dict[str, Finding]:
    return {finding.id: finding for finding in result.findings if finding.classed in SHOWN}


def _changed(before: Finding, after: Finding) -> tuple[str, ...]:
    """Fields that differ; of values, their text: a definition that only moved is no change."""

    def what(finding: Finding) -> dict[str, object]:
        texts = [value.text if value is not None else None for value in (finding.old, finding.new)]
        return {
            "class": finding.classed, "kind": finding.kind, "old": texts[0], "new": texts[1],
            "aliases": sorted(finding.aliases), "package": finding.package, "declared": _by_unpatch(finding),
        }  # fmt: skip

    one, other = what(before), what(after)
    return tuple(name for name in one if one[name] != other[name])
