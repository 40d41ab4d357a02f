"""Commands in a hostile world: signals, packages that exit, hang or flood, objects that answer no question, strange names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "unpatch"]
TARGET = "def function(x): return x\nTABLE = {}\n"
WRITING = "import target, os, sys, time\ndef new(x): return x\ntarget.function = new\n"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def unpatch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Given, not inherited: readline, which pytest loads, sets COLUMNS behind the back of os.environ.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*RUN, *arguments], cwd=folder, capture_output=True, text=True, env=environment, check=False)


def targets(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [one["target"] for one in json.loads(done.stdout)["findings"] if one["classed"] == "patch"]


@pytest.mark.parametrize(
    ("last", "code", "error"),
    [
        ("sys.exit('bye')", 1, "SystemExit: bye"),
        ("os._exit(0)", 1, "ended with exit code 0 while activating"),
        ("os.kill(os.getpid(), 9)", 1, "ended with exit code -9 while activating"),
        ("sys.stderr.write('x' * 3_000_000 + '\\nlast'); os._exit(5)", 1, "\nlast"),
        ("while True: time.sleep(1)", 1, "No end after 6 s while activating"),
        ("print('x' * 3_000_000); os.fork() or os._exit(3)", 0, ""),
        ("import threading; threading.Thread(target=time.sleep, args=[1000]).start()", 0, ""),
        ("raise type('E', (BaseException,), {})('\\x1b[31m')", 1, "E: \x1b[31m"),
    ],
)
def test_what_a_package_does_costs_its_process_only(tmp_path, last, code, error):
    write(tmp_path, target=TARGET, patcher=f"{WRITING}{last}\n")
    limit = "6" if "while True" in last else "100"
    done = unpatch(tmp_path, "audit", "patcher", "--json", "--timeout", limit)
    assert (done.returncode, done.stderr) == (code, "")
    assert targets(done) == ["target.function"]
    said = json.loads(done.stdout)["error"]
    assert (error in said) if error else said == ""
    assert len(said) < 20_000


@pytest.mark.parametrize(
    "call",
    [[], ["--call", "missing()"], ["--call", "("], ["--call", "patcher.missing()"]],
    ids=lambda call: " ".join(call) or "syntax",
)
def test_an_error_is_shown_from_the_first_line_of_the_target_on(tmp_path, call):
    write(tmp_path, target=TARGET, patcher=WRITING if call else "def (:\n")
    done = unpatch(tmp_path, "audit", "patcher", *call)
    assert done.returncode == 1
    assert done.stderr.startswith("patcher failed:\n")
    assert "Error" in done.stderr
    assert "unpatch" not in done.stderr
    assert "importlib" not in done.stderr


EVIL = """
class Meta(type):
    def __getattribute__(cls, name): raise RuntimeError(name)
    def __eq__(self, other): raise RuntimeError
    def __hash__(self): raise RuntimeError
class Evil:
    def __getattribute__(self, name): raise RuntimeError(name)
    def __eq__(self, other): raise RuntimeError
    def __repr__(self): raise RuntimeError
    def __bool__(self): raise RuntimeError
    __hash__ = None
class Silent(metaclass=Meta): pass
def __getattr__(name): raise RuntimeError(name)
"""


def test_objects_that_answer_no_question_are_audited_and_listed(tmp_path):
    write(
        tmp_path,
        target=TARGET,
        patcher=f"{EVIL}{WRITING}target.evil = Evil()\ntarget.silent = Silent\ntarget.TABLE['e'] = Evil()\n"
        "sys.modules['target.lost'] = Evil()\n",
        declared="class Evil:\n    def __getattr__(self, name): raise RuntimeError(name)\n"
        "from unpatch.patches import PatchManager\nevil = Evil()\nmanager = PatchManager('declared')\n"
        "manager.declare(id='evil', group='g', reason='r').replace('target.function', evil)\n"
        "manager.declare(id='probe', group='g', reason='r', remove_when=lambda: 1 / 0).add('target.more', 1)\n",
    )
    done = unpatch(tmp_path, "audit", "patcher", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert targets(done) == ["target.function"]
    for command in ("list", "check"):
        done = unpatch(tmp_path, command, "declared")
        assert "declared/evil" in done.stdout, done.stderr
        assert "Traceback" not in done.stderr


def test_an_error_cannot_steer_the_terminal(tmp_path):
    write(tmp_path, failing="raise ValueError('\x1b[31m')\n")
    assert unpatch(tmp_path, "audit", "failing").stderr.endswith("ValueError: \\x1b[31m\n")
    assert "\x1b" not in unpatch(tmp_path, "conflicts", "failing", "json").stderr


def test_an_exception_without_words_and_one_with_escapes_are_sentences(tmp_path):
    write(
        tmp_path,
        wordless="class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n",
        escaping="class E(BaseException): pass\nraise E('\\x1b[31mred')\n",
    )
    done = unpatch(tmp_path, "list", "wordless")
    assert (done.returncode, done.stderr) == (2, "Error: Importing 'wordless' failed with E: (its __str__ fails)\n")
    done = unpatch(tmp_path, "list", "escaping")
    assert (done.returncode, done.stderr) == (2, "Error: Importing 'escaping' failed with E: \\x1b[31mred\n")


KEYS = ["with 'both\" quotes", "a\nline", "a,comma", "#@~", "]", "[(", "\\", "\\'", "ünï", "", "\x1b"]


def test_entries_with_any_key_are_left_out_by_their_ids(tmp_path):
    write(
        tmp_path,
        target=TARGET,
        patcher=WRITING + "".join(f"target.TABLE[{key!r}] = new\n" for key in KEYS),
        script="import target, patcher\nprint(list(target.TABLE))\n",
    )
    findings = json.loads(unpatch(tmp_path, "audit", "patcher", "--json").stdout)["findings"]
    ids = [one["id"] for one in findings if one["kind"] == "entry"]
    assert len(ids) == len(KEYS)
    done = unpatch(tmp_path, "run", "--without", ",".join(ids), "script.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@pytest.mark.parametrize("ids", ["", ",", " , "])
def test_leaving_out_nothing_is_wrong_usage(tmp_path, ids):
    write(tmp_path, script="print(1)\n")
    done = unpatch(tmp_path, "run", "--without", ids, "script.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--without names no patch" in done.stderr


@pytest.mark.parametrize(
    "line",
    ["env = 3", "env = {A = []}", "call = 3", "call = [1]", "on = {}", "target = 5", "timeout = 'x'", "timeout = -1"],
)
def test_a_value_of_the_wrong_kind_names_its_key(tmp_path, line):
    write(tmp_path, target=TARGET)
    (tmp_path / "audit.toml").write_text(line + "\n")
    done = unpatch(tmp_path, "audit", "target", "--config", "audit.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"audit.toml, key '{line.split()[0]}': Expected" in done.stderr


def test_a_patch_that_is_named_twice_is_adopted_once(tmp_path):
    write(tmp_path, target=TARGET, patcher=WRITING)
    (tmp_path / "found.json").write_text(unpatch(tmp_path, "audit", "patcher", "--json").stdout)
    done = unpatch(tmp_path, "adopt", *["target.function@patcher"] * 2, "--from", "found.json")
    assert done.stdout.count("manager.declare(") == 1
    assert done.stderr == "Now delete the writes at patcher.py:3.\n"


def _children(folder: Path) -> list[int]:
    """The processes that work in `folder` or below it, as audited packages and trials do."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if Path(os.readlink(process / "cwd")).is_relative_to(folder.resolve()):
                found.append(int(process.name))
        except OSError:
            continue
    return found


WAITING = "open('started', 'w').close()\nimport time\nwhile True: time.sleep(0.1)\n"
WAITING_STUDY = """
from pathlib import Path
from unpatch.patches import PatchManager
from unpatch.study import Study

manager = PatchManager("m")
manager.declare(id="p", group="g", reason="r").replace("json.dumps", len)
study = Study("s", "t", patches=manager)

@study.workload()
def waits(case):
    import time
    Path(__file__).with_name("started").touch()
    while True:
        time.sleep(0.1)
"""


@pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="processes are found in /proc, which this system has not"
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize(
    "command",
    [["audit", "waiting"], ["conflicts", "waiting", "target"], ["ablate", "study.py"]],
    ids=lambda words: words[0],
)
def test_a_signal_ends_the_command_with_its_processes(tmp_path, command, number, code):
    write(tmp_path, target=TARGET, waiting=WAITING, study=WAITING_STUDY)
    process = subprocess.Popen(
        [*RUN, *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while not (tmp_path / "started").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (code, ""), stderr
        assert stderr.startswith("Interrupted.") if number == signal.SIGINT else stderr == ""
        assert _children(tmp_path) == []
    finally:
        process.kill()


@pytest.mark.parametrize("command", ["list", "check"])
def test_an_interrupt_is_no_negative_result(tmp_path, command):
    write(tmp_path, interrupted="raise KeyboardInterrupt\n")
    done = unpatch(tmp_path, command, "interrupted")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


@pytest.mark.parametrize(
    "command", [["list", "json"], ["check", "json"], ["audit", "json"], ["conflicts", "json", "os"]]
)
def test_a_current_folder_that_is_gone_is_one_sentence(tmp_path, command):
    leaving = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')"
    code = f"{leaving}\nfrom unpatch.cli import main\nmain({command!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: The current folder is gone (No such file or directory); change to another one.\n"


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    write(tmp_path, target=TARGET, patcher=WRITING)
    (tmp_path / "cache").write_text("a file where the folder should be")
    done = unpatch(tmp_path, "audit", "patcher", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert targets(done) == ["target.function"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_cannot_show_is_escaped(tmp_path, monkeypatch, encoding):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    write(
        tmp_path,
        target=TARGET,
        patcher=f"{WRITING}target.TABLE['→'] = 1\n",
        again="import target\ntarget.TABLE['→'] = 2\n",
    )
    done = unpatch(tmp_path, "audit", "patcher")
    assert (done.returncode, done.stderr) == (0, "")
    assert "target.TABLE['\\u2192']" in done.stdout
    assert unpatch(tmp_path, "conflicts", "patcher", "again").returncode == 1


def test_the_progress_of_a_study_is_one_line_a_trial(tmp_path):
    name = "a\n\x1b[31mb"
    write(
        tmp_path,
        library="def double(x): return 2 * x\n",
        study="import library\nfrom unpatch.patches import PatchManager\nfrom unpatch.study import Study\n"
        f"manager = PatchManager('m')\nmanager.declare(id={name!r}, group='g', reason='r')"
        ".replace('library.double', lambda x: x + x)\nstudy = Study('s', 't', patches=manager)\n"
        f"@study.workload(params=[{name!r}])\ndef w(case, x): raise ValueError(x)\n",
    )
    done = unpatch(tmp_path, "ablate", "study.py")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert "B, without a\\n\\x1b[31mb: 1 failed" in done.stderr.splitlines()


def test_the_profiler_inside_a_command_is_not_heard(tmp_path):
    done = unpatch(tmp_path, "ops", "nn.Linear(2, 2)", "--no-backward")
    assert (done.returncode, done.stderr) == (0, "")
