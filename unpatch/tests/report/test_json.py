"""Evidence as data: it comes back as it was, and what is not evidence is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evidence_study import study
from hostile import hostile_texts, infested
from hypothesis import given, settings

from unpatch.report.json import SCHEMA_VERSION, EvidenceError, dumps, load


@given(hostile_texts)
@settings(deadline=None, max_examples=30)
def test_a_study_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    result = infested(text)
    path = tmp_path_factory.mktemp("json") / "evidence.json"
    path.write_bytes(dumps(result).encode())
    assert load(path) == result


def test_any_program_can_read_it() -> None:
    data = json.loads(dumps(study()))
    assert data["schema_version"] == SCHEMA_VERSION
    assert [patch["verdict"] for patch in data["study"]["patches"]] == [patch.verdict for patch in study().patches]


def changed(**changes: object) -> bytes:
    return json.dumps({**json.loads(dumps(study())), **changes}).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not evidence"),
        (b"\xff\xfe", "not evidence"),
        (b"[1, 2]", "not evidence"),
        (b'{"a": 1}', "schema_version"),
        (changed(study={}), "info"),
        (changed(study={"info": 1}), "info"),
        (changed(schema_version="1"), "schema_version"),
        (changed(schema_version=SCHEMA_VERSION + 1, study={}), f"schema {SCHEMA_VERSION + 1}"),
    ],
)
def test_what_is_not_evidence_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(EvidenceError, match=says) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(EvidenceError, match="Cannot read"):
            load(path)
