"""What two packages both write to, and whether it matters which comes first."""

from __future__ import annotations

from msgspec import Struct

from unpatch.audit.records import SHOWN, Activation, AuditResult, Finding
from unpatch.audit.run import audit


class Conflict(Struct, frozen=True):
    """A target that both packages write."""

    target: str
    first: str  #: what is there in the end when the first package comes first
    second: str  #: the same when the second one does
    writers: tuple[str, ...]  #: `package at file:line`

    @property
    def depends_on_order(self) -> bool:
        return self.first != self.second


def conflicts(first: str, second: str, *, timeout: float = 300.0) -> tuple[tuple[Conflict, ...], tuple[str, ...]]:
    """Import both packages in both orders, each in fresh processes.

    Returns the conflicts, and the errors of the activations.
    """
    results = []
    for one, other in ((first, second), (second, first)):
        results.append(audit(Activation(one, then=(other,)), timeout=timeout))
    forwards, backwards = map(_by_target, results)
    found = []
    for target in sorted({*forwards, *backwards}):
        writes = [*forwards.get(target, ()), *backwards.get(target, ())]
        packages = {finding.package for finding in writes}
        if len(packages) < 2:
            continue
        writers = tuple(sorted({_writer(finding) for finding in writes}))
        found.append(Conflict(target, _last(forwards.get(target)), _last(backwards.get(target)), writers))
    return tuple(found), tuple(result.error for result in results if result.error)


def _by_target(result: AuditResult) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in result.findings:
        # What one of them wrote and the other wrote over is not there in the end, but it is half of the conflict.
        if finding.classed in SHOWN or "taken back" in finding.tags:
            for target in (finding.target, *finding.aliases):
                found.setdefault(target, []).append(finding)
    return found


def _writer(finding: Finding) -> str:
    return f"{finding.package} at {finding.site.file}:{finding.site.line}" if finding.site else finding.package


def _last(findings: list[Finding] | None) -> str:
    if not findings:
        return "as it was"
    last = max(findings, key=lambda finding: finding.order)
    return last.new.text if last.new is not None else "deleted"
