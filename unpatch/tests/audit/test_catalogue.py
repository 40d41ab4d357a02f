"""Every kind of write of the catalogue is found, classified right, and located at its line."""

from __future__ import annotations

import pytest
from audit_catalogue import CASES, found, is_right, sources, surplus, write

from unpatch.audit.records import Activation
from unpatch.audit.run import audit


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalogue")
    write(folder)
    with pytest.MonkeyPatch.context() as patching:
        patching.setenv("PYTHONPATH", str(folder), prepend=":")
        patching.syspath_prepend(folder)
        result = audit(Activation("patcher"), cache=False)
    assert result.error == ""
    return result


def test_there_are_at_least_25_kinds():
    assert len({case.name for case in CASES}) == len(CASES) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_is_found_and_classified(result, case):
    (finding,) = found(case, result)
    assert is_right(case, finding), finding
    assert finding.package == {"dependency": "helper"}.get(case.classed, finding.package)
    if case.classed in ("patch", "addition", "registration"):
        assert finding.package == "patcher"
    if case.traced and case.code:
        lines = sources()["patcher"].splitlines()
        start = lines.index(f"# {case.name}") + 1
        end = start + len(case.code.splitlines())
        assert start < finding.site.line <= end
        assert finding.site.file == "patcher/__init__.py"
        assert finding.site.stack[0].startswith(f"patcher/__init__.py:{finding.site.line} ")


def test_nothing_else_is_found(result):
    assert surplus(result) == []


def test_ids_are_unique_and_say_target_and_writer(result):
    ids = [one.id for one in result.findings]
    assert len(set(ids)) == len(ids)
    assert {"target.by_setattr@patcher", "target.executed~patcher", "target.by_helper@helper"} <= set(ids)


def test_order_is_that_of_the_writes(result):
    written = [one for one in result.findings if one.site is not None and one.order]
    orders = [one.order for one in written]
    assert orders == sorted(orders)
    by_line = [one.site.line for one in written if one.package == "patcher" and one.site.function == "<module>"]
    assert by_line == sorted(by_line)
