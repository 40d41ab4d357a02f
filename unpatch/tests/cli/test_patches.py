"""`unpatch list` and `unpatch check`: what they print, in a pipe and as JSON, and their exit codes."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from unpatch.cli import main

PACKAGE = '''
print("noise of an import")
from unpatch.patches import Origin, PatchManager, original

manager = PatchManager("{name}", order=("first", "second"))

@manager.patch(
    "{library}.save", id="saving", group="second", reason="Why\\x1b[31m.", origin=Origin(introduced="1a2b"),
    versions="python>=3.11", remove_when="python>=99", fingerprints={{"{library}.save": "{fingerprint}"}},
)
def save(value):
    return original(save)(value)

manager.declare(id="old", group="first", reason="r", versions="python<3").replace("{library}.gone", 1)

def is_there():
    """The library has more of its own"""
    return {due}

adding = manager.declare(id="adding", group="first", reason="r", remove_when=is_there)
adding.add("{library}.more", 1)
adding.add("{library}.TABLE['key']", 2)
manager.register_patch_module("{name}.late_patches")
manager.apply_all()
'''
LATE = """
from {name} import manager

@manager.register_patch("second")
def opaque():
    "Something unknown."
"""
_numbers = itertools.count()


class Project:
    """A library and a package that patches it, importable from a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        number = next(_numbers)
        self.name, self.library = f"patching_{number}", f"patched_{number}"

    def write(self, fingerprint: str = "", due: bool = False) -> None:
        (self.folder / f"{self.library}.py").write_text("TABLE = {}\ndef save(value):\n    return value\n")
        package = self.folder / self.name
        package.mkdir(exist_ok=True)
        details = {"name": self.name, "library": self.library, "due": due}
        present = fingerprint or self._present()
        (package / "__init__.py").write_text(PACKAGE.format(fingerprint=present, **details))
        (package / "late_patches.py").write_text(LATE.format(**details))
        importlib.invalidate_caches()

    def _present(self) -> str:
        from unpatch.patches.fingerprints import fingerprint

        return fingerprint(importlib.import_module(self.library).save)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("UNPATCH_DISABLE", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    project = Project(tmp_path)
    yield project
    if manager := getattr(sys.modules.get(project.name), "manager", None):
        for patch in manager.applied:
            if patch.writes:
                manager.revert(patch.id)
    for module in [name for name in sys.modules if name.partition(".")[0] in (project.name, project.library)]:
        del sys.modules[module]


def _rows(text: str) -> list[list[str]]:
    return [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]


def test_the_list_in_a_pipe_is_one_line_a_patch(project):
    project.write()
    result = project.run("list", project.name)
    assert result.exit_code == 0, result.output
    name, library = project.name, project.library
    assert _rows(result.stdout) == [
        ["patch", "group", "state", "targets", "for versions", "goes when"],
        [f"{name}/old", "first", "other version", f"{library}.gone", "python<3", "no condition declared"],
        [f"{name}/adding", "first", "applied", f"{library}.more, {library}.TABLE['key']", "not stated",
         "The library has more of its own"],
        [f"{name}/saving", "second", "applied", f"{library}.save", "python>=3.11", "python>=99"],
        [f"{name}/{name}.late_patches.opaque", "second", "applied", "unknown (an opaque function)", "not stated",
         "no condition declared"],
    ]  # fmt: skip
    assert "noise of an import" not in result.stdout


def test_the_list_as_json_knows_everything_that_was_declared(project):
    project.write()
    document = json.loads(project.run("list", project.name, "--json").stdout)
    assert document["module"] == project.name
    patches = {patch["id"]: patch for patch in document["patches"]}
    saving = patches["saving"]
    assert {key: saving[key] for key in ("manager", "group", "state", "reason", "versions", "remove_when", "due")} == {
        "manager": project.name, "group": "second", "state": "applied", "reason": "Why\x1b[31m.",
        "versions": "python>=3.11", "remove_when": "python>=99", "due": False,
    }  # fmt: skip
    assert saving["origin"]["introduced"] == "1a2b"
    assert saving["writes"] == [
        {"kind": "replace", "target": f"{project.library}.save", "original": f"{project.library}.save",
         "replacement": f"{project.name}.save"}
    ]  # fmt: skip
    assert saving["declared_at"].endswith("__init__.py:7")
    assert (patches["old"]["state"], "python<3" in patches["old"]["why"]) == ("other version", True)
    assert [write["target"] for write in patches["adding"]["writes"]][1] == f"{project.library}.TABLE['key']"
    assert not patches[f"{project.name}.late_patches.opaque"]["revertible"]


@pytest.mark.parametrize("command", ["list", "check"])
def test_without_disables_a_patch_or_a_group_before_the_import(project, monkeypatch, command):
    project.write()
    monkeypatch.setenv("UNPATCH_DISABLE", "")
    result = project.run(command, project.name, "--json", "--without", "first", "--without", f"{project.name}/saving")
    assert result.exit_code == 0, result.output
    states = {patch["id"]: patch["state"] for patch in json.loads(result.stdout)["patches"]}
    assert (states["adding"], states["saving"], states["old"]) == ("disabled", "disabled", "disabled")


def test_a_check_that_finds_nothing_to_do_exits_with_0(project):
    project.write()
    result = project.run("check", project.name)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"4 patches of {project.name}: none drifted."
    assert [f"{project.name}/saving", "applied", "ok"] in _rows(result.stdout)
    assert f"{project.name}/old: note: not for this version: it is for python<3, and python 3" in result.stdout
    document = json.loads(project.run("check", project.name, "--json").stdout)
    assert (document["failing"], {patch["result"] for patch in document["patches"]}) == (False, {"ok"})


def test_drift_exits_with_1_and_says_what_to_paste(project):
    project.write(fingerprint="source:000000000000")
    result = project.run("check", project.name)
    assert result.exit_code == 1
    (said,) = re.findall(r"source:000000000000 is now (source:\w{12})", result.stdout)
    assert (
        f'{project.name}/saving: to declare what is there now: fingerprints={{"{project.library}.save": "{said}"}},'
        in result.stdout
    )
    assert result.stdout.endswith(f"4 patches of {project.name}: 1 drifted.\n")
    document = json.loads(project.run("check", project.name, "--json").stdout)
    (drifted,) = [patch for patch in document["patches"] if patch["result"] == "drifted"]
    assert document["failing"]
    assert drifted["fingerprints"] == {f"{project.library}.save": said}
    assert [(finding["kind"], finding["failing"]) for finding in drifted["findings"]] == [("changed", True)]


def test_what_was_pasted_is_accepted(project):
    project.write(fingerprint="source:000000000000")
    code = "from unpatch.cli import main; main()"
    command = [sys.executable, "-c", code, "check", project.name, "--json"]
    # A cached module of the same size and second would be taken for the rewritten one.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, cwd=project.folder, env=environment, check=False)

    before = run()
    assert before.stdout, before.stderr
    (pasted,) = {now for patch in json.loads(before.stdout)["patches"] for now in patch["fingerprints"].values()}
    project.write(fingerprint=pasted)
    after = run()
    assert (before.returncode, after.returncode) == (1, 0)


def test_what_is_due_exits_with_1(project):
    project.write(due=True)
    result = project.run("check", project.name)
    assert result.exit_code == 1
    assert [f"{project.name}/adding", "applied", "due"] in _rows(result.stdout)
    assert "due: the patch can be deleted: The library has more of its own: yes" in result.stdout
    assert "The library has more of its own (due)" in project.run("list", project.name).stdout


@pytest.mark.parametrize("command", ["list", "check"])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no_such_module_at_all"], "There is no module 'no_such_module_at_all'"),
        (["json"], "'json' declares no patches"),
        (["broken"], "Importing 'broken' failed with ZeroDivisionError"),
        (["leaving"], "Importing 'leaving' failed with SystemExit"),
        (["needing"], "Importing 'needing' failed with ModuleNotFoundError: No module named 'what_is_not_there'"),
        (["{}", "--without", "savin"], "No patch and no group is named 'savin'; did you mean 'saving'?"),
        ([], "Missing argument 'MODULE'"),
        *(
            ([name], f"{name!r} is no name of a module")
            for name in ("", ".", "./a.py", "../a", "a/b", "a b", "a..b", "a.")
        ),
    ],
)
def test_wrong_usage_exits_with_2(project, command, arguments, says):
    project.write()
    for name, text in (
        ("broken", "1 / 0"),
        ("leaving", "import sys; sys.exit(0)"),
        ("needing", "import what_is_not_there"),
    ):
        (project.folder / f"{name}.py").write_text(text)
    result = project.run(command, *(argument.format(project.name) for argument in arguments))
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["list", "check"])
def test_help_has_an_example(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"unpatch {command} torch_vnpu" in result.stdout


def test_nothing_of_a_patch_reaches_the_terminal_as_a_command(project):
    project.write()
    for output in (project.run("list", project.name).stdout, project.run("check", project.name).stdout):
        assert "\x1b" not in output


def test_the_list_for_a_terminal_fits_it(project, monkeypatch):
    project.write()
    monkeypatch.setenv("COLUMNS", "60")
    result = project.run("list", project.name)
    assert max(map(len, result.stdout.splitlines())) <= 60


def test_a_module_whose_manager_has_no_patches_has_nothing_that_fails(project):
    (project.folder / f"{project.name}.py").write_text(
        f"from unpatch.patches import PatchManager\nmanager = PatchManager('{project.name}')\n"
    )
    importlib.invalidate_caches()
    result = project.run("check", project.name, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"module": project.name, "failing": False, "patches": []}
    assert json.loads(project.run("list", project.name, "--json").stdout) == {"module": project.name, "patches": []}
