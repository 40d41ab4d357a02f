"""Operators of the database that do not agree with CPU, each with its reason. An entry that has become untrue fails a test."""

#: Operator, or (operator, dtype), to reason.
KNOWN: dict[str | tuple[str, str], str] = {}


def reason(op: str, dtype: str) -> str | None:
    """Why `op` is known not to agree with `dtype`; None where it is expected to."""
    return KNOWN.get((op, dtype)) or KNOWN.get(op)
