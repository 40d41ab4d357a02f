"""`unpatch run --without`: found patches are never written, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from unpatch.audit.errors import AuditError
from unpatch.audit.suppress import parse_ids

MAIN = "from unpatch.cli import main; main()"
TARGET = """
TABLE = {"a": 1}
ORDER = []
def first(): return "original"
def second(): return "original"
also_first = first
class Thing:
    def method(self): return "original"
class Operator:
    implementation = None
operator = Operator()
def handler(): return "original"
"""
PATCHER = """
import target
def new(*a): return "patched"
target.first = new
target.also_first = new
target.second = lambda: "patched"
target.Thing.method = new
target.TABLE["a"] = 2
target.TABLE.update(b=3, c=4)
target.ORDER.append("patched")
target.operator.implementation = "patched"
vars(target).update(by_update="patched")
exec("target.handler = new")
"""
SCRIPT = """
import sys
import target, patcher
print(target.first(), target.also_first(), target.second(), target.Thing().method(), target.TABLE, target.ORDER,
      target.operator.implementation, getattr(target, "by_update", None), target.handler(), sys.argv[1:])
"""


@pytest.fixture
def run(write):
    folder = write(target=TARGET, patcher=PATCHER)
    (folder / "script.py").write_text(SCRIPT)

    def run(*ids: str, script: str = "script.py") -> subprocess.CompletedProcess[str]:
        options = [part for id in ids for part in ("--without", id)]
        command = [sys.executable, "-c", MAIN, "run", *options, script, "--flag", "x"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    return run


PATCHED = [
    "patched",
    "patched",
    "patched",
    "patched",
    "{'a': 2, 'b': 3, 'c': 4}",
    "['patched']",
    "patched",
    "patched",
    "patched",
]


@pytest.mark.parametrize(
    ("ids", "changed"),
    [
        (["target.second@patcher"], {2: "original"}),
        (["target.first@patcher"], {0: "original", 1: "original"}),  # with its alias
        (["target.Thing.method@patcher"], {3: "original"}),
        (["target.TABLE['a']@patcher,target.second@patcher"], {2: "original", 4: "{'a': 1, 'b': 3, 'c': 4}"}),
        (["target.TABLE['b']@patcher", "target.ORDER[…]@patcher"], {4: "{'a': 2, 'c': 4}", 5: "[]"}),
        (["target.operator.implementation@patcher"], {6: "None"}),
        (["target.by_update@patcher"], {7: "None"}),
    ],
)
def test_what_is_left_out_was_never_written(run, ids, changed):
    expected = [changed.get(number, word) for number, word in enumerate(PATCHED)]
    done = run(*ids)
    assert done.stdout.strip() == " ".join(expected) + " ['--flag', 'x']"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("patcher", "id"),
    [
        (
            "import wrapt\nwrapt.wrap_function_wrapper('target', 'first', lambda *a: 'patched')\n",
            "target.first@patcher",
        ),
        ("import copyreg, target\ntarget.register(lambda: 'patched')\n", "target.HOOKS['first']~patcher"),
    ],
    ids=["wrapt", "registering function"],
)
def test_what_others_write_for_the_package(run, write, patcher, id):
    target = TARGET + "HOOKS = {'first': first}\ndef register(f): HOOKS['first'] = f\n"
    folder = write(target=target, patcher=patcher)
    (folder / "script.py").write_text("import target, patcher\nprint(target.first(), target.HOOKS['first']())\n")
    done = run(id)
    assert (done.returncode, done.stdout) == (0, "original original\n"), done.stderr


def test_an_untraced_writer_is_undone_and_said_so(run):
    done = run("target.handler~patcher")
    assert done.stdout.split()[-3] == "original"
    assert "undone after the import of patcher instead of never written" in done.stderr
    assert done.returncode == 0


def test_what_is_never_written_is_told(run):
    done = run("target.third@patcher")
    assert done.returncode == 1
    assert "Never written, so nothing was left out: target.third@patcher." in done.stderr


def test_no_id_is_wrong_usage(run):
    done = run("target.third")
    assert done.returncode == 2
    assert "'target.third' is no id of a found patch" in done.stderr


def test_a_script_may_patch_by_itself(run, write):
    folder = write()
    (folder / "alone.py").write_text("import target\ntarget.first = lambda: 'patched'\nprint(target.first())\n")
    assert run("target.first@__main__", script="alone.py").stdout == "original\n"


def test_the_exit_code_is_the_programs(run, write):
    folder = write()
    (folder / "leaving.py").write_text("import target, patcher, sys\nsys.exit(7)\n")
    assert run("target.second@patcher", script="leaving.py").returncode == 7


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("a.b@c", ["a.b"]),
        ("a.b@c,d.e~f", ["a.b", "d.e"]),
        ("a.T[(int, float)]@c,a.b@c", ["a.T[(int, float)]", "a.b"]),
        ("a.T['x@y,z']@c", ["a.T['x@y,z']"]),
        ("a.b@c#2", ["a.b"]),
    ],
)
def test_ids_are_separated_outside_of_brackets(text, targets):
    assert [id.target for id in parse_ids([text])] == targets


def test_what_is_no_id_is_refused():
    with pytest.raises(AuditError, match="no id"):
        parse_ids(["a.b"])


FIRST = "target.first@patcher"


@pytest.mark.parametrize(
    ("last", "code", "stderr"),
    [
        ("1 / 0", 1, 'Traceback (most recent call last):\n  File "{script}", line 2, in <module>\n    1 / 0\n'),
        ("raise OSError(28, 'mine')", 1, "OSError: [Errno 28] mine\n"),
        ("input()", 1, "EOFError"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
        ("sys.exit('a word')", 1, "a word\n"),
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.excepthook = lambda *a: print('mine', file=sys.stderr); 1 / 0", 1, "mine\n"),
        ("(", 1, "SyntaxError: '(' was never closed\n"),
    ],
)
def test_the_program_ends_as_it_does_in_python(run, tmp_path, last, code, stderr):
    (tmp_path / "ending.py").write_text(f"import sys, target, patcher\n{last}\n")
    done = run(FIRST, script="ending.py")
    assert done.returncode == code, done.stderr
    assert stderr.format(script=tmp_path / "ending.py") in done.stderr
    assert "unpatch" not in done.stderr


def test_a_program_that_exits_well_is_asked_too_what_it_never_wrote(run, tmp_path):
    (tmp_path / "ending.py").write_text("import sys, target\nsys.exit(0)\n")
    done = run(FIRST, script="ending.py")
    assert done.returncode == 1
    assert f"nothing was left out: {FIRST}" in done.stderr
