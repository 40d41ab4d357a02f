"""Patches that were declared with a patching library: which one, and what its declaration says.

Read from the libraries' own records, raw; a library that is not loaded declares nothing.
"""

from __future__ import annotations

import sys
import types
from typing import Any, Protocol

from unpatch.audit import raw
from unpatch.audit.records import Declaration


class Written(Protocol):
    """What must be known of a found patch."""

    target: str
    new: Any
    via: str


#: Attributes in which gorilla keeps originals beside what it patches.
GORILLA_BOOKKEEPING = "_gorilla_"


def declaration(written: Written) -> Declaration | None:
    """The declaration behind a found patch, if a library that we know made it."""
    inner = written.new
    while type(inner) in (staticmethod, classmethod):
        inner = inner.__func__
    if raw.is_wrapt(inner):
        return Declaration("wrapt", {"wrapper": raw.describe(inner).text})
    match written.via:
        case "mpat":
            return _mpat(inner)
        case "gorilla":
            return Declaration("gorilla", _gorilla(inner))
        case "unpatch":
            return _unpatch(written.target)
        case "mock" | "unittest":
            return Declaration(written.via, {})
    return None


def _mpat(function: object) -> Declaration:
    identity = (raw.instance_dict(function) or {}).get("__mpat_identity__")
    registry = sys.modules.get("mpat._registry")
    declared = vars(registry).get("_declarations", {}).get(identity) if registry is not None else None
    names = ("target", "note", "until", "review_by", "on_drift", "depends_on", "declared_in", "status")
    kept = raw.instance_dict(declared) or {} if declared is not None else {}
    return Declaration("mpat", {name: _text(kept[name]) for name in names if kept.get(name)})


def _gorilla(value: object) -> dict[str, str]:
    data = (raw.instance_dict(value) or {}).get("_gorilla_decorator_data")
    patches = (raw.instance_dict(data) or {}).get("patches", ()) if data is not None else ()
    details: dict[str, str] = {}
    for patch in patches:
        kept = raw.instance_dict(patch) or {}
        details["name"] = str(kept.get("name", ""))
        details["destination"] = raw.describe(kept.get("destination")).text
        if kept.get("settings") is not None:
            settings = raw.instance_dict(kept["settings"]) or {}
            details["settings"] = ", ".join(f"{name}={value!r}" for name, value in sorted(settings.items()))
    return details


def _unpatch(target: str) -> Declaration:
    """The patches of unpatch's managers are found by their target."""
    from unpatch.patches import managers

    for manager in managers():
        for patch in manager.patches:
            if patch.writes_to(target):
                details = {"id": f"{manager.name}/{patch.id}", "group": patch.group, "reason": patch.reason}
                return Declaration("unpatch", details)
    return Declaration("unpatch", {})


def _text(value: object) -> str:
    if type(value) is tuple:
        return ", ".join(map(_text, value))
    return value.__qualname__ if type(value) is types.FunctionType else str(value)
