"""Patches declared with patching libraries are found like all others, blamed on who declares them, and shown as declared."""

from __future__ import annotations

import importlib.machinery
import os
import sys

import pytest

from unpatch.audit.records import SHOWN

TARGET = "def function(x): return x\ndef other(x): return x\nclass Thing:\n    def method(self): return 1\n"
EXTRAS = [folder for folder in os.environ.get("UNPATCH_AUDIT_EXTRAS", "").split(os.pathsep) if folder]


def one(result):
    assert result.error == ""
    (finding,) = [finding for finding in result.findings if finding.classed in SHOWN]
    return finding


@pytest.fixture
def needs(monkeypatch):
    def needs(*packages: str) -> None:
        for name in packages:
            if importlib.machinery.PathFinder.find_spec(name, [*EXTRAS, *sys.path]) is None:
                pytest.skip(f"{name} is not installed; requirements-audit.txt says how")
        for folder in EXTRAS:
            monkeypatch.setenv("PYTHONPATH", folder, prepend=":")

    return needs


def test_wrapt(audit_of):
    source = """
        import wrapt
        import target
        def wrapper(wrapped, instance, args, kwargs): return wrapped(*args, **kwargs)
        wrapt.wrap_function_wrapper("target", "Thing.method", wrapper)
    """
    finding = one(audit_of("patcher", target=TARGET, patcher=source))
    assert (finding.target, finding.classed, finding.package, finding.via) == (
        "target.Thing.method",
        "patch",
        "patcher",
        "wrapt",
    )
    assert finding.site.line == 5
    assert finding.declared.library == "wrapt"
    assert "patcher.wrapper" in finding.declared.details["wrapper"]


def test_unpatch(audit_of):
    source = """
        from unpatch.patches import PatchManager
        manager = PatchManager("mine")
        @manager.patch("target.function", id="the-id", group="g", reason="the reason")
        def function(x): return x
        manager.apply_all()
    """
    finding = one(audit_of("patcher", target=TARGET, patcher=source))
    assert (finding.target, finding.classed, finding.package, finding.via) == (
        "target.function",
        "patch",
        "patcher",
        "unpatch",
    )
    assert finding.declared.library == "unpatch"
    assert finding.declared.details == {"id": "mine/the-id", "group": "g", "reason": "the reason"}


def test_gorilla(audit_of, needs):
    needs("gorilla")
    source = """
        import gorilla
        import target
        @gorilla.patch(target, settings=gorilla.Settings(allow_hit=True))
        def function(x): return x
        gorilla.apply(gorilla.Patch(target, "function", function, gorilla.Settings(allow_hit=True)))
    """
    finding = one(audit_of("patcher", target=TARGET, patcher=source))
    assert (finding.target, finding.package, finding.via) == ("target.function", "patcher", "gorilla")
    assert finding.site.line == 6
    assert finding.declared.library == "gorilla"
    assert finding.declared.details["destination"] == "module target"


def test_mpat(audit_of, needs):
    needs("mpat", "tomli_w")
    source = """
        import mpat
        @mpat.patch("target.function", note="the note")
        def function(original, x): return original(x)
    """
    finding = one(audit_of("patcher", target=TARGET, patcher=source))
    assert (finding.target, finding.package, finding.via) == ("target.function", "patcher", "mpat")
    assert finding.declared.library == "mpat"
    assert finding.declared.details["note"] == "the note"
