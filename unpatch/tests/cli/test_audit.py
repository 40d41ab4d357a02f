"""The commands around audits: what they print, in a pipe and as JSON, HTML and SARIF, and their exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner

from unpatch.cli import main

MAIN = "from unpatch.cli import main; main()"
TARGET = "def function(x): return x\ndef other(x): return x\nTABLE = {}\n"
PATCHER = """
import target

def new(x): return x

target.function = new
target.added = "<b>\\x1b[31m</b>"
target.TABLE["k"] = new
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "target.py").write_text(TARGET)
    (tmp_path / "patcher.py").write_text(PATCHER)

    class Project:
        folder = tmp_path

        def write(self, **files: str) -> None:
            for name, text in files.items():
                (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))

        def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-c", MAIN, *arguments]
            # Given, not inherited: readline, which pytest loads, sets COLUMNS behind the back of os.environ.
            environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
            return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)

        def audit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
            return self.run("audit", *arguments, "--no-cache")

        def saved(self, name: str, *arguments: str) -> str:
            (tmp_path / name).write_text(self.audit("patcher", "--json", *arguments).stdout)
            return str(tmp_path / name)

    return Project()


def test_a_row_in_a_pipe_is_a_line(project):
    done = project.audit("patcher")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    assert lines[0] == ["class", "target", "from", "to", "written at", "by"]
    assert [line[:2] for line in lines[1:4]] == [
        ["patch", "target.function"],
        ["addition", "target.added"],
        ["registration", "target.TABLE['k']"],
    ]
    assert lines[1][2:] == ["target.function (target.py:1)", "patcher.new (patcher.py:4)", "patcher.py:6", "patcher"]
    assert done.stdout.endswith("patcher: 1 patch, 1 addition, 1 registration.\n")
    assert "\x1b" not in done.stdout


def test_json_html_and_sarif_say_the_same(project):
    html, sarif = project.folder / "out" / "audit.html", project.folder / "out" / "audit.sarif"
    done = project.audit("patcher", "--json", "--html", str(html), "--sarif", str(sarif))
    document = json.loads(done.stdout)
    ids = [finding["id"] for finding in document["findings"] if finding["classed"] != "noise"]
    assert ids == ["target.function@patcher", "target.added@patcher", "target.TABLE['k']@patcher"]
    assert (document["schema"], document["complete"], document["error"]) == (1, True, "")
    page = html.read_text()
    assert "target.function@patcher" in page
    assert "<b>" not in page
    assert "<script" not in page
    run = json.loads(sarif.read_text())["runs"][0]
    assert [result["partialFingerprints"]["unpatchId/v1"] for result in run["results"]] == ids
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("patcher.py", 6)


def test_a_failing_target_exits_with_1_and_shows_its_own_error(project):
    project.write(failing="import target\ntarget.function = len\nraise ValueError('mine')\n")
    done = project.audit("failing")
    assert done.returncode == 1
    assert "ValueError: mine" in done.stderr
    assert "target.function" in done.stdout


@pytest.mark.parametrize("command", [["audit", "--no-cache"], ["run", "--without", "target.function@failing"]])
@pytest.mark.parametrize(
    "write", ["O.pop = 1", "del O.pop", "setattr(O, 'pop', 1)", "target.TABLE[[]] = 1", "target.TABLE.update(1)"]
)
def test_a_write_that_fails_is_the_targets_own_error(project, command, write):
    """No frame of the tracer that does the write, nor in what was being handled meanwhile."""
    project.write(
        failing=f"import target\nfrom collections import OrderedDict as O\nfrom builtins import setattr\n"
        f"target.function = len\ntry:\n    {write}\nexcept TypeError:\n    import deeper\n",
        deeper=f"import target\nfrom collections import OrderedDict as O\ndef deep():\n    {write}\ndeep()\n",
    )
    done = project.run(*command, "failing.py")
    assert done.returncode == 1
    files = re.findall(r'File "([^"]+)"', done.stderr)
    assert [os.path.basename(file) for file in files] == ["failing.py", "failing.py", "deeper.py", "deeper.py"]
    assert done.stderr.splitlines()[-1].startswith("TypeError: ")


def test_many_registrations_are_a_line(project):
    project.write(patcher=PATCHER + "for number in range(25): target.TABLE[number] = new\n")
    lines = project.audit("patcher").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["patch", "addition"]
    assert lines[3:] == [
        "26 registrations (entry) by patcher, such as target.TABLE['k']: --all lists them",
        "patcher: 1 patch, 1 addition, 26 registrations.",
    ]
    everything = project.audit("patcher", "--all").stdout.splitlines()
    assert sum(line.split()[0] == "registration" for line in everything) == 26
    assert len(json.loads(project.audit("patcher", "--json").stdout)["findings"]) == 28


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument 'TARGET'"),
        (["no_such_package_at_all"], "There is no module 'no_such_package_at_all'"),
        (["patcher", "--fail-on", "new"], "give it with --baseline"),
        (["patcher", "--env", "NAME"], "--env takes NAME=VALUE"),
        (["patcher", "--config", "wrong.toml"], "unknown key 'targets'"),
        (["patcher", "--baseline", "wrong.toml", "--fail-on", "new"], "is no result of `unpatch audit --json`"),
    ],
)
def test_wrong_usage_exits_with_2(project, arguments, says):
    (project.folder / "wrong.toml").write_text('targets = "x"\n')
    done = project.audit(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_options_may_stand_in_a_file(project):
    (project.folder / "audit.toml").write_text('target = "patcher"\non = ["json"]\ncall = ["patcher.more()"]\n')
    project.write(patcher=PATCHER + "import json\ndef more(): json.loads = new\n")
    document = json.loads(project.audit("--config", "audit.toml", "--json").stdout)
    assert [finding["target"] for finding in document["findings"] if finding["classed"] == "patch"] == ["json.loads"]


def test_a_baseline_fails_on_what_is_new(project):
    baseline = project.saved("baseline.json")
    assert project.audit("patcher", "--baseline", baseline, "--fail-on", "new").returncode == 0
    assert project.audit("patcher", "--fail-on", "any").returncode == 1
    project.write(patcher="\n\n" + PATCHER + "target.other = new\n")  # what was there only moved
    done = project.audit("patcher", "--baseline", baseline, "--fail-on", "new")
    assert done.returncode == 1
    assert done.stderr == "Not in the baseline: target.other@patcher\n"


def test_two_audits_are_compared(project):
    old = project.saved("old.json")
    project.write(patcher=PATCHER.replace("target.added =", "target.other =").replace('["k"] = new', '["k"] = len'))
    new = project.saved("new.json")
    done = project.run("audit", "--diff", old, new)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "changed (new): target.TABLE['k']@patcher",
        "gone: target.added@patcher",
        "new: target.other@patcher",
        "3 differences.",
    ]
    assert [one["change"] for one in json.loads(project.run("audit", "--diff", old, new, "--json").stdout)] == [
        "changed",
        "gone",
        "new",
    ]
    assert project.run("audit", "--diff", old, old).returncode == 0


def test_adopted_patches_do_what_the_writes_did(project):
    found = project.saved("found.json")
    done = project.run(
        "adopt", "target.function@patcher", "target.TABLE['k']@patcher", "--from", found, "--out", "adopted.py"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Now delete the writes at patcher.py:6, patcher.py:8.\n"
    project.write(patcher="def new(x): return x\n", trying="import target, patcher, adopted\n"
                  "assert target.function is not patcher.new\nadopted.manager.apply_all()\n"
                  "assert target.function is patcher.new and target.TABLE == {'k': patcher.new}\n"
                  "adopted.manager.revert('target-function')\nassert target.function is not patcher.new\n")  # fmt: skip
    tried = subprocess.run(
        [sys.executable, "trying.py"], cwd=project.folder, capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stderr


def test_aliases_and_keys_of_several_parts_are_adopted_whole(project):
    project.write(
        target="class Old: pass\nAlias = Old\nTABLE = {}\n",
        patcher="import target\nclass New: pass\ntarget.Old = target.Alias = New\ntarget.TABLE['a', 'b'] = New\n",
    )
    found = project.saved("found.json")
    ids = [one["id"] for one in json.loads((project.folder / "found.json").read_text())["findings"]]
    assert project.run("adopt", *ids, "--from", found, "--out", "adopted.py").returncode == 0
    project.write(
        patcher="class New: pass\n",
        trying="import target, patcher, adopted\nadopted.manager.apply_all()\n"
        "assert target.Old is target.Alias is target.TABLE['a', 'b'] is patcher.New\n",
    )
    tried = subprocess.run(
        [sys.executable, "trying.py"], cwd=project.folder, capture_output=True, text=True, check=False
    )
    assert tried.returncode == 0, tried.stderr + (project.folder / "adopted.py").read_text()


_PACKAGE = """
import target

class Class:
    def adopted(x): return x

def function(x): return x
"""
_WRITES = "target.function = function\ntarget.TABLE['k'] = Class\n"
_APPLY = "from mypkg import adopted\nadopted.manager.apply_all()\n"


@pytest.mark.parametrize(
    ("init", "patching"),
    [("from mypkg import patching\n", _APPLY), (f"from mypkg import patching\n{_APPLY}", "")],
    ids=["where the writes stood", "in __init__"],
)
def test_a_package_that_adopts_its_patches_makes_the_same_ones_as_before(project, init, patching):
    folder = project.folder / "mypkg"
    folder.mkdir()
    (folder / "__init__.py").write_text("from mypkg import patching\n")
    (folder / "patching.py").write_text(_PACKAGE + _WRITES)
    old = project.folder / "old.json"
    old.write_text(project.audit("mypkg", "--json").stdout)
    ids = ["target.function@mypkg.patching", "target.TABLE['k']@mypkg.patching"]
    done = project.run("adopt", *ids, "--from", str(old), "--out", "mypkg/adopted.py")
    assert done.returncode == 0, done.stderr
    (folder / "__init__.py").write_text(init)
    (folder / "patching.py").write_text(_PACKAGE + patching)

    done = project.audit("mypkg", "--baseline", str(old), "--fail-on", "new", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    new = project.folder / "new.json"
    new.write_text(done.stdout)
    told = project.run("audit", "--diff", str(old), str(new)).stdout.splitlines()
    assert [line.rpartition("@")[0] for line in told[:-1]] == [
        "changed (declared): target.TABLE['k']",
        "changed (declared): target.function",
    ]
    assert told[-1] == "2 differences."

    (folder / "patching.py").write_text(_PACKAGE + patching + "target.other = function\n")
    done = project.audit("mypkg", "--baseline", str(old), "--fail-on", "new")
    assert (done.returncode, done.stderr) == (1, "Not in the baseline: target.other@mypkg.patching\n")


def test_what_cannot_be_adopted_is_refused(project):
    found = project.saved("found.json")
    done = project.run("adopt", "target.added@patcher", "--from", found)
    assert done.returncode == 2
    assert "target.added@patcher cannot be declared: its replacement has no name" in done.stderr
    assert "found no patch 'x@y'" in project.run("adopt", "x@y", "--from", found).stderr


def test_conflicts_say_what_depends_on_the_order(project):
    project.write(
        first="import target\ndef one(x): pass\ntarget.function = one\ntarget.shared = 1\ntarget.alone = 1\n",
        second="import target\ndef two(x): pass\ntarget.function = two\ntarget.shared = 1\n",
    )
    done = project.run("conflicts", "first", "second", "--json")
    assert done.returncode == 1
    rows = {row["target"]: row for row in json.loads(done.stdout)["conflicts"]}
    assert set(rows) == {"target.function", "target.shared"}
    assert rows["target.function"]["depends_on_order"]
    assert (rows["target.function"]["first"], rows["target.function"]["second"]) == ("second.two", "first.one")
    assert not rows["target.shared"]["depends_on_order"]
    told = project.run("conflicts", "first", "second").stdout
    assert "target.function: written by first at first.py:3 and by second at second.py:3" in told
    project.write(second="import target\n")
    assert project.run("conflicts", "first", "second").returncode == 0


@pytest.mark.parametrize("command", ["audit", "run", "adopt", "conflicts"])
def test_help_has_an_example(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"unpatch {command} " in result.stdout.partition("Example:")[2]
