"""What a write is: pure rules over what is known of it, one row of the table in docs/audit.md each."""

from __future__ import annotations

from typing import Any

from unpatch.audit import raw
from unpatch.audit.raw import ABSENT
from unpatch.audit.records import Class, Kind


def what_it_does(kind: Kind, owner: str, old: Any, new: Any, traced: bool) -> Class:
    """Patch, addition or registration.

    Args:
        kind: what is written.
        owner: the kind of what is written to (`snapshot.OwnerKind`).
        old: what was there, inherited included, or ABSENT.
        new: what is there now, or ABSENT.
        traced: the package's own source writes it; else the target's own code does, which was called by the package.
    """
    if kind in ("code", "bases", "state"):
        return "patch"
    if kind in ("entry", "kernel"):
        return "registration"
    if old is ABSENT:
        return "addition" if traced or owner in ("module", "class") else "registration"
    # A setter of the target keeps a function in the place of nothing: that is what the place is for.
    return "patch" if traced or raw.is_code(old) else "registration"


def unwritten(owner_package: str, new: Any) -> Class:
    """A change that neither a traced package nor a value of one explains: the target's own doing."""
    return (
        "self-patch"
        if new is not ABSENT and raw.is_code(new) and raw.top(raw.origin(new)) == owner_package
        else "noise"
    )


def blamed(what: Class, package: str, audited: frozenset[str]) -> Class:
    """The class of a finding: what another package than the audited ones did is a dependency's."""
    return what if package in audited else "dependency"
