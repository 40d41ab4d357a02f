"""Reports as JSON. The evidence is the judged study with the version of its schema, written for programs and read back here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from unpatch.errors import UnpatchError
from unpatch.model import StudyResult

#: Raised whenever a reader of the previous schema would misread or refuse the new one.
SCHEMA_VERSION = 1


class EvidenceError(UnpatchError):
    """A file is not evidence that this version can read."""


class _Header(msgspec.Struct):
    schema_version: int


class _Evidence(msgspec.Struct):
    schema_version: int
    study: StudyResult


def indented(document: object) -> str:
    """Records and plain data as indented JSON with a line end: the same document gives the same text."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def dumps(result: StudyResult) -> str:
    """The study as JSON."""
    return indented(_Evidence(SCHEMA_VERSION, result))


def load(path: Path) -> StudyResult:
    """Read what `dumps` wrote. Raises EvidenceError for a file that is missing, of another kind or another schema."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise EvidenceError(f"Cannot read {path}: {reason}. Name an evidence.json that a study wrote.") from error
    try:
        version = msgspec.json.decode(data, type=_Header).schema_version
        if version != SCHEMA_VERSION:
            raise EvidenceError(
                f"{path} has evidence of schema {version}, and this version of unpatch reads schema {SCHEMA_VERSION}: "
                "use the version that wrote it, or run the study again."
            )
        return msgspec.json.decode(data, type=_Evidence).study
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EvidenceError(
            f"{path} is not evidence of a study ({error}): name an evidence.json that a study wrote."
        ) from error
