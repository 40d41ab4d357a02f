"""How an audit is shown: a table for people and pipes, one HTML file, SARIF for code scanning."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from unpatch import __version__
from unpatch.audit.records import CLASSES, SHOWN, AuditResult, Class, Finding, Value
from unpatch.report import columns
from unpatch.report.json import indented
from unpatch.report.pages import page
from unpatch.report.words import count, line, visible

_STYLES: dict[Class, str] = {
    "patch": "bold red",
    "addition": "yellow",
    "registration": "cyan",
    "dependency": "magenta",
    "self-patch": "dim",
    "noise": "dim",
}
_LEVELS: dict[Class, str] = {"patch": "warning", "addition": "note", "registration": "note", "dependency": "note"}
_LISTED = 20  #: registrations of a kind by a package that are listed one by one
_RULES: dict[Class, str] = {
    "patch": "Behaviour of another package is replaced or deleted",
    "addition": "Something new is put into another package",
    "registration": "An entry or a kernel is registered with another package",
    "dependency": "A dependency writes to another package",
}


def shown(result: AuditResult, everything: bool = False) -> list[Finding]:
    """The findings that a reader is shown: by class, then in the order of the writes."""
    classes = CLASSES if everything else SHOWN
    chosen = [finding for finding in result.findings if finding.classed in classes]
    return sorted(chosen, key=lambda finding: CLASSES.index(finding.classed))


def summed(findings: Sequence[Finding]) -> tuple[list[Finding], list[str]]:
    """The findings without the registrations of which a package makes many of a kind, and a line on each such lot."""
    lots: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if finding.classed == "registration":
            lots.setdefault((finding.kind, finding.package), []).append(finding)
    many = {key: lot for key, lot in lots.items() if len(lot) > _LISTED}
    rest = [one for one in findings if one.classed != "registration" or (one.kind, one.package) not in many]
    lines = [
        line(f"{len(lot):,} registrations ({kind}) by {package}, such as {lot[0].target}: --all lists them")
        for (kind, package), lot in many.items()
    ]
    return rest, lines


def table(findings: Sequence[Finding], lines: bool) -> Table:
    """One row a finding; with `lines`, each of several aliases in a line of its own."""
    made = columns.table("class", "target", "from", "to", "written at", "by")
    for finding in findings:
        targets = ("\n" if lines else " = ").join((finding.target, *finding.aliases))
        made.add_row(
            Text(finding.classed, _STYLES[finding.classed]),
            columns.plain(targets),
            columns.plain(value_text(finding.old)),
            columns.plain(value_text(finding.new)),
            columns.plain(where(finding)),
            columns.plain(finding.package + (f" via {finding.via}" if finding.via else "")),
        )
    return made


def value_text(value: Value | None) -> str:
    """A value with the place of its definition."""
    if value is None:
        return "nothing"
    return f"{value.text} ({value.defined})" if ":" in value.defined else value.text


def where(finding: Finding) -> str:
    """`file:line` of the write, or that it is not known."""
    return f"{finding.site.file}:{finding.site.line}" if finding.site is not None else "no traced writer"


def details(finding: Finding) -> list[str]:
    """What else is known, one line each."""
    lines = []
    if finding.declared is not None:
        told = "; ".join(f"{name}: {text}" for name, text in finding.declared.details.items())
        lines.append(f"declared with {finding.declared.library}{f' ({told})' if told else ''}")
    if finding.stale:
        lines.append("the original is still held by " + ", ".join(copy.where for copy in finding.stale))
    if finding.copied:
        lines.append("the replacement is also held by " + ", ".join(copy.where for copy in finding.copied))
    tags = [tag for tag in finding.tags if tag != "no writer"]
    if tags:
        lines.append("; ".join(tags))
    return list(map(line, lines))


def summary(result: AuditResult) -> str:
    """One sentence that says it all."""
    names: tuple[Class, ...] = ("patch", "addition", "registration")
    told = ", ".join(count(len(result.of(name)), name) for name in names)
    others = len(result.of("dependency"))
    if others:
        told += f"; {count(others, 'write')} of its dependencies"
    unfinished = "" if result.complete else " until its process ended"
    return visible(f"{result.activation.target}{unfinished}: {told}.")


def html(result: AuditResult) -> str:
    """One page without scripts or network."""
    return page(
        "audit.html",
        result=result,
        findings=shown(result),
        where=where,
        value_text=value_text,
        details=details,
        summary=summary(result),
    )


def sarif(result: AuditResult) -> str:
    """SARIF 2.1.0 for code scanning: one result a finding, located at its write, with its id as fingerprint."""
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in _RULES.items()]
    results = []
    for finding in shown(result):
        entry: dict[str, object] = {
            "ruleId": finding.classed,
            "level": _LEVELS[finding.classed],
            "message": {"text": visible(f"{finding.target}: {value_text(finding.old)} → {value_text(finding.new)}")},
            "partialFingerprints": {"unpatchId/v1": finding.id},
        }
        if finding.site is not None:
            location = {
                "artifactLocation": {"uri": finding.site.file},
                "region": {"startLine": max(1, finding.site.line)},
            }
            entry["locations"] = [{"physicalLocation": location}]
        results.append(entry)
    driver = {"name": "unpatch", "version": __version__, "rules": rules}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return indented(document)
