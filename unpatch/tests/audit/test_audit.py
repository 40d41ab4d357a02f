"""What an audit says beyond its rows: errors, limits, copies, aliases, attribution, what packages that do not patch give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from unpatch.audit.errors import AuditError
from unpatch.audit.records import SHOWN, Activation, Tag
from unpatch.audit.run import audit

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
TARGET = """
def function(x): return x
def other(x): return x
alias = function
HOOKS = []
class Thing:
    def method(self): pass
"""


def shown(result):
    return [finding for finding in result.findings if finding.classed in SHOWN]


def test_a_package_that_does_not_patch_gives_no_row(audit_of):
    result = audit_of(
        "quiet",
        target=TARGET,
        quiet="""
            import collections, dataclasses, enum, functools, json, logging, re, typing, warnings
            import target
            from target import Thing

            logger = logging.getLogger(__name__)
            logger.addHandler(logging.NullHandler())
            warnings.filterwarnings("ignore", message="nothing")
            re.compile("[a-z]+quiet")

            class Mine(Thing):
                def method(self): return super().method()

            Mine.method.__doc__ = "Mine."
            Mine.extra = 1

            @dataclasses.dataclass(frozen=True)
            class Data:
                x: int = 0

            class Colour(enum.Enum):
                RED = 1

            Point = collections.namedtuple("Point", "x y", defaults=(0,))

            class Named(typing.NamedTuple):
                x: int = 1

            @functools.wraps(target.function)
            def wrapper(x): return target.function(x)
            wrapper.mark = True

            table = {}
            table["a"] = [1]
            table["a"].append(2)
            thing = Thing()
            thing.attribute = 3
            setattr(thing, "other", 4)
        """,
    )
    assert result.error == ""
    assert shown(result) == []


def test_a_failing_import_gives_its_error_and_what_was_written_until_then(audit_of):
    source = "import target\ntarget.function = len\n1 / 0\ntarget.other = len\n"
    result = audit_of("patcher", target=TARGET, patcher=source)
    assert "ZeroDivisionError" in result.error
    assert 'patcher/__init__.py", line 3' in result.error
    assert result.complete
    assert [finding.target for finding in shown(result)] == ["target.function"]


@pytest.mark.parametrize(
    ("ending", "says"), [("os._exit(3)", "exit code 3"), ("time.sleep(60)", "No end after 4 s while activating")]
)
def test_a_process_that_ends_early_tells_what_was_written(audit_of, ending, says):
    # Only once the snapshot is taken: the first pass must come through.
    source = f"import os, time, target\ntarget.function = len\nif target.FIRST:\n    {ending}\n"
    target = TARGET + "import os\nFIRST = os.path.exists(__file__ + '.seen')\nopen(__file__ + '.seen', 'w').close()\n"
    result = audit_of("patcher", target=target, patcher=source, timeout=4.0)
    assert not result.complete
    assert says in result.error
    assert [(finding.target, finding.site.line) for finding in result.findings] == [("target.function", 2)]


def test_calls_scripts_and_variables_activate(write, audit_of):
    source = """
        import os, target
        def apply(name):
            setattr(target, name, len)
        if os.environ.get("PATCHING") == "1":
            target.other = len
    """
    result = audit_of("patcher", "patcher.apply('function')", target=TARGET, patcher=source)
    assert [finding.target for finding in shown(result)] == ["target.function"]
    result = audit(Activation("patcher", environment={"PATCHING": "1"}))
    assert [finding.target for finding in shown(result)] == ["target.other"]
    script = write() / "script.py"
    script.write_text("import sys, target\nassert __name__ == '__main__'\ntarget.added = 1\nsys.exit()\n")
    result = audit(Activation(str(script)))
    assert (result.error, [finding.id for finding in shown(result)]) == ("", ["target.added@__main__"])


def test_on_narrows(audit_of):
    source = """
        import json, sys, types, target
        target.function = len
        target.HOOKS.append(len)
        json.dumps = len
        sys.modules["json.more"] = types.ModuleType("json.more")
    """
    targets = {
        on: [finding.target for finding in shown(audit_of("patcher", target=TARGET, patcher=source, on=(on,)))]
        for on in ("json", "target.HOOKS", "targ")
    }
    assert targets == {
        "json": ["json.dumps", "sys.modules['json.more']"],
        "target.HOOKS": ["target.HOOKS[…]"],
        "targ": [],
    }


def test_aliases_of_one_function_are_one_patch(audit_of):
    source = "import target\ndef new(x): pass\ntarget.alias = new\ntarget.function = new\ntarget.other = new\n"
    findings = shown(audit_of("patcher", target=TARGET, patcher=source))
    assert [(finding.target, finding.aliases) for finding in findings] == [
        ("target.alias", ("target.function",)),
        ("target.other", ()),
    ]


def test_who_still_holds_the_original_and_who_took_the_replacement(audit_of):
    result = audit_of(
        "patcher",
        target=TARGET,
        before="from target import function\nclass Uses:\n    call = function\ndef default(f=function): pass\n",
        patcher="import target, before\ndef new(x): pass\ntarget.function = target.alias = new\nimport patcher.after\n",
        patcher__after="from target import function as mine\n",
    )
    (finding,) = shown(result)
    stale = {copy.where for copy in finding.stale}
    assert {"before.function", "before.Uses.call", "a default of before.default"} <= stale
    assert {copy.where for copy in finding.copied} == {"patcher.after.mine"}


def test_a_dependency_is_blamed_for_its_own_writes(audit_of):
    result = audit_of(
        "patcher",
        "patcher.go()",
        target=TARGET,
        dependency="import target\ntarget.other = len\ndef apply(): target.HOOKS.append(apply)\n",
        patcher="import dependency\ndef go(): dependency.apply()\n",
    )
    assert [(one.target, one.classed, one.what, one.package) for one in shown(result)] == [
        ("target.other", "dependency", "patch", "dependency"),
        ("target.HOOKS[…]", "dependency", "registration", "dependency"),
    ]
    stack = result.findings[1].site.stack
    assert [frame.split()[1] for frame in stack[:2]] == ["apply", "go"]


def test_looking_runs_no_code_of_what_is_looked_at(audit_of):
    target = (
        TARGET
        + """
class Meta(type):
    def __getattribute__(cls, name): raise SystemError("looked at")
class Touchy(metaclass=Meta): pass
class Lazy:
    def __getattribute__(self, name): raise SystemError("looked at")
    def __eq__(self, other): raise SystemError("compared")
    __hash__ = None
touchy, lazy = Touchy, Lazy()
LIST = [lazy]
"""
    )
    result = audit_of("patcher", target=target, patcher="import target\ntarget.function = len\n")
    assert (result.error, [finding.target for finding in shown(result)]) == ("", ["target.function"])


def test_the_cache_changes_nothing(audit_of):
    files = {"target": TARGET, "patcher": "import target\ntarget.function = len\n"}
    first, second = audit_of("patcher", **files), audit_of("patcher")
    assert first.findings == second.findings
    changed = audit_of("patcher", patcher="import target\n\n\ntarget.other = len\n")
    assert [(one.target, one.site.line) for one in shown(changed)] == [("target.other", 4)]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("no_such_package_at_all", "There is no module 'no_such_package_at_all'"),
        ("missing.py", "no script"),
        ("a b", "no module"),
    ],
)
def test_a_target_that_is_not_there_is_refused(target, says):
    with pytest.raises(AuditError, match=says):
        audit(Activation(target))


def test_a_module_that_keeps_its_own_names_is_called_by_its_own_name(audit_of):
    source = "SELF = globals()\ndef function(x): return x\n"
    result = audit_of(
        "patcher",
        target="",
        target__inner=source,
        patcher="import target.inner\ndef new(x): return x\n"
        "target.inner.SELF['function'] = new\nexec('target.inner.other = new')\n",
    )
    assert [finding.target for finding in shown(result)] == ["target.inner.function", "target.inner.other"]


def test_the_page_lists_every_tag():
    (row,) = re.findall(r"^\| … `tags` \| (.*) \|$", PAGE, re.MULTILINE)
    assert sorted(re.findall("`(.+?)`", row)) == sorted(get_args(Tag))


def test_an_entry_that_untraced_code_replaces_or_removes_says_so(audit_of):
    result = audit_of(
        "patcher",
        target="def gone(): pass\nTABLE = {'gone': gone, 'kept': gone}\n",
        patcher="import target\ndef new(): pass\ntarget.TABLE[new] = 1\n"
        'exec(\'target.TABLE["kept"] = new; del target.TABLE["gone"]; target.TABLE["more"] = new\')\n',
    )
    tags = {finding.target: finding.tags for finding in result.findings}
    assert tags["target.TABLE['kept']"] == ("no writer", "replaces an entry")
    assert tags["target.TABLE['gone']"] == ("no writer", "removes an entry")
    assert tags["target.TABLE['more']"] == ("no writer",)
