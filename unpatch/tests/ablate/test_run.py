"""A whole run: what is refused, what is kept, what an interrupt leaves behind, and studies that cannot be used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from unpatch.ablate.errors import AblationError, StoreMismatchError, UnknownPatchError
from unpatch.ablate.run import run_study
from unpatch.files import WriteError
from unpatch.model import StudyResult
from unpatch.study import StudyError


def verdicts(result: StudyResult) -> dict[str, str]:
    return {found.patch.id: found.verdict for found in result.patches}


COUNTED = """
@study.workload()
def doubles(case):
    import os, pathlib
    with open(os.environ["COUNTER"], "a") as file:
        file.write("x")
    case.output("y", library.double(2))
"""


@pytest.fixture
def counter(tmp_path, monkeypatch) -> Path:
    """A file that each run of the workload makes longer."""
    file = tmp_path / "counter"
    monkeypatch.setenv("COUNTER", str(file))
    return file


# ------------------------------------------------------------------------------------------ the store
def test_resume_runs_nothing_again(write_study, tmp_path, counter):
    folder, out, events = write_study(COUNTED), tmp_path / "out", []
    first = run_study(folder, out)
    assert len(counter.read_text()) == 4  # A, A′, reach, B
    second = run_study(folder, out, resume=True, progress=events.append)
    assert len(counter.read_text()) == 4
    assert second.patches == first.patches
    assert [event.kind for event in events] == ["planned", *["reused"] * 4, "planned"]


def test_a_plain_run_begins_anew(write_study, tmp_path, counter):
    folder, out = write_study(COUNTED), tmp_path / "out"
    run_study(folder, out)
    run_study(folder, out)
    assert len(counter.read_text()) == 8


def test_resume_without_an_earlier_run_is_a_plain_run(write_study, tmp_path):
    assert verdicts(run_study(write_study(), tmp_path / "out", resume=True)) == {"double": "inert"}


@pytest.mark.parametrize("changed", ["study.py", "library.py"])
def test_resume_refuses_trials_of_other_sources(write_study, tmp_path, changed):
    folder, out = write_study(), tmp_path / "out"
    run_study(folder, out)
    with open(folder / changed, "a") as file:
        file.write("\n# another state\n")
    with pytest.raises(StoreMismatchError, match=f"another state of source of {changed}; run without --resume"):
        run_study(folder, out, resume=True)


def test_resume_refuses_another_timeout(write_study, tmp_path):
    folder, out = write_study(), tmp_path / "out"
    run_study(folder, out, timeout=60)
    with pytest.raises(StoreMismatchError, match="timeout"):
        run_study(folder, out, timeout=61, resume=True)


def test_resume_refuses_what_is_no_store(write_study, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "study.sqlite").write_text("not a database, but long enough to be looked at as one " * 20)
    with pytest.raises(StoreMismatchError, match="no store of a study"):
        run_study(write_study(), out, resume=True)


def test_a_folder_of_somebody_else_is_not_cleared(write_study, tmp_path):
    out = tmp_path / "out"
    (out / "trials").mkdir(parents=True)
    (out / "trials" / "precious").write_text("mine")
    with pytest.raises(StoreMismatchError, match="give another --out"):
        run_study(write_study(), out)
    assert (out / "trials" / "precious").read_text() == "mine"


def test_two_runs_do_not_share_a_folder(write_study, tmp_path):
    folder, out, refused = write_study(), tmp_path / "out", []

    def start_another(event) -> None:
        if event.kind == "planned":
            with pytest.raises(StoreMismatchError, match="Another run is using") as raised:
                run_study(folder, out)
            refused.append(raised.value)

    assert verdicts(run_study(folder, out, progress=start_another)) == {"double": "inert"}
    assert refused
    assert verdicts(run_study(folder, out)) == {"double": "inert"}


@pytest.mark.parametrize("out", ["file/out", "file"])
def test_a_folder_that_cannot_be_made_is_named(write_study, tmp_path, out):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=rf"Cannot write into .*{out}.*another --out"):
        run_study(write_study(), tmp_path / out)


def test_children_end_with_a_killed_parent(write_study, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    folder = write_study(
        """
        @study.workload()
        def waits(case):
            import os, time
            with open(os.environ["PIDS"], "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(600)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", "from unpatch.cli import main; main()", "ablate", folder, "--out", tmp_path / "out"]
    )
    try:
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert parent.poll() is None
            time.sleep(0.01)
    finally:
        parent.kill()
        parent.wait()
    for pid in pids.read_text().split():
        while is_running(int(pid)):  # without end, if nothing ends it
            time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie that only waits for being reaped."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_study_that_cannot_be_imported_costs_no_evidence(write_study, tmp_path):
    folder, out = write_study(), tmp_path / "out"
    run_study(folder, out)
    (folder / "study.py").write_text("import nothing_of_that_name")
    with pytest.raises(AblationError):
        run_study(folder, out)
    assert (out / "study.sqlite").exists()


def test_an_interrupt_keeps_finished_trials_and_ends_children(write_study, tmp_path, counter, monkeypatch, request):
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    folder = write_study(
        COUNTED
        + """
@study.workload()
def waits_once_interrupted(case):
    import os, pathlib, time
    if pathlib.Path(os.environ["COUNTER"] + ".stop").exists():
        with open(os.environ["PIDS"], "a") as file:
            file.write(f"{os.getpid()} ")
        time.sleep(600)
"""
    )
    out, stop = tmp_path / "out", Path(f"{counter}.stop")

    def interrupt(event) -> None:
        """As Ctrl-C does, once the second trial hangs."""
        if event.kind == "finished":
            stop.touch()
        if stop.exists() and event.kind == "advanced":
            while not pids.exists():
                time.sleep(0.01)
            signal.raise_signal(signal.SIGINT)

    # A shell that starts the tests in the background has SIGINT ignored, and so would the tests.
    request.addfinalizer(
        partial(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
    )
    with pytest.raises(KeyboardInterrupt):
        run_study(folder, out, jobs=1, progress=interrupt)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    stop.unlink()
    events: list = []
    run_study(folder, out, resume=True, progress=events.append)
    assert [event.trial for event in events if event.kind == "reused"] == ["A, all patches"]


# ------------------------------------------------------------------------------------------ choosing
TWO = """
@manager.patch("library.other", id="other", group="all", title="Other", reason="to be judged")
def other(x):
    return x

library.other = lambda x: x

@study.workload(covers=["double"])
def doubles(case):
    case.output("y", library.double(2))

@study.workload(covers=["other"])
def others(case):
    case.output("y", library.other(2))
"""


def test_only_runs_the_cases_of_the_patches_asked_for(write_study, tmp_path):
    result = run_study(write_study(TWO), tmp_path / "out", only=["other"])
    assert verdicts(result) == {"other": "inert"}
    assert result.trials == 4
    assert [case.case for case in result.patches[0].cases] == ["others"]


def test_only_refuses_what_is_not_declared(write_study, tmp_path):
    with pytest.raises(UnknownPatchError, match="declares no patch absent; it declares double"):
        run_study(write_study(), tmp_path / "out", only=["absent"])


def test_a_difference_that_the_other_cases_made_is_not_blamed_on_the_patch(write_study, tmp_path):
    """`counts` runs alone in arm B, so that the library remembers nothing there."""
    body = """
    @study.workload(covers=["unrelated"])
    def remembers(case):
        library.memory = 1

    @study.workload(covers=["double"])
    def counts(case):
        case.output("y", (library.double(2), getattr(library, "memory", 0)))

    unrelated = manager.declare(id="unrelated", group="all", title="Unrelated", reason="covered by the other case")
    unrelated.add("library.x", 1)
    """
    result = run_study(write_study(body), tmp_path / "out")
    assert verdicts(result)["double"] == "inert"
    assert result.trials == 3 + 2 + 1


def test_a_single_file_is_a_study(write_study, tmp_path):
    file = write_study().joinpath("study.py").rename(tmp_path / "study" / "small_study.py")
    assert verdicts(run_study(file, tmp_path / "out")) == {"double": "inert"}


@pytest.mark.parametrize("name", ["json", "msgspec"])
def test_a_study_named_like_a_module_in_use_is_refused(write_study, tmp_path, name):
    file = write_study().joinpath("study.py").rename(tmp_path / "study" / f"{name}.py")
    with pytest.raises(AblationError, match=rf"{name}\.py has the name of a module that others import; rename it"):
        run_study(file, tmp_path / "out")


def test_patches_disabled_in_the_shell_do_not_falsify_an_arm(write_study, tmp_path, monkeypatch):
    monkeypatch.setenv("UNPATCH_DISABLE", "double")
    result = run_study(write_study(), tmp_path / "out")
    assert result.patches[0].reach.calls == 1


def test_relative_import_paths_hold_in_children(write_study, tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "elsewhere.py").write_text("value = 5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", os.environ.get("PYTHONPATH", "")]))
    folder = write_study(
        "@study.workload()\ndef f(case):\n    import elsewhere\n    case.output('y', elsewhere.value)\n"
    )
    (found,) = run_study(folder, tmp_path / "out").patches
    assert found.cases[0].verdict == "inert"


# ------------------------------------------------------------------------------------------ applying fails
def test_a_patch_that_breaks_the_others_when_it_is_missing_is_required(write_study, tmp_path):
    body = """
    first = manager.declare(id="first", group="all", title="First", reason="brings the target of the next")
    first.add("library.brought", lambda x: x)
    second = manager.declare(id="second", group="all", title="Second", reason="replaces it")
    second.replace("library.brought", lambda x: x)

    @study.workload()
    def calls(case):
        case.output("y", library.double(2))
    """
    found = verdicts(run_study(write_study(body), tmp_path / "out"))
    assert found["first"] == "required"


# ------------------------------------------------------------------------------------------ unusable studies
HEAD = "from unpatch.patches import PatchManager\nfrom unpatch.study import Study\nmanager = PatchManager('m')\n"


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ("", "import nothing_of_that_name", r"study\.py cannot be imported:\n(.|\n)*line 1(.|\n)*ModuleNotFoundError"),
        ("", "raise SystemExit(3)", r"SystemExit: 3"),
        ("", "import os; os._exit(3)", r"exit code 3"),
        ("", "x = 1", r"defines no `study`"),
        ("", "study = 3", r"a `study` that is a int"),
        (HEAD, "study = Study('s', 't', patches=manager)", r"declares no patch"),
        (None, "", r"has no workload"),
        (
            None,
            "@study.workload(covers=['absent'])\ndef f(case): ...",
            r"f names the patch 'absent', which is not",
        ),
        (None, "@study.probe('absent')\ndef f(probe): ...\n@study.workload()\ndef g(case): ...", r"the patch 'absent'"),
        (None, "@study.workload(params=[])\ndef f(case, x): ...", r"params is empty"),
        (None, "@study.workload(params=[1, 1])\ndef f(case, x): ...", r"two cases are named 'f\[1\]'"),
        (None, "for _ in 1, 2:\n    @study.workload()\n    def f(case): ...", r"two cases are named 'f'"),
        (None, "for _ in 1, 2:\n    @study.probe('double')\n    def f(probe): ...", r"two probes are named 'f'"),
        (None, "@study.workload(covers='double')\ndef f(case): ...", r"one string; give a list"),
        (None, "@study.workload(params=[object()])\ndef f(case, x): ...", r"give params as a mapping"),
        (None, "@study.workload(params='ab')\ndef f(case, x): ...", r"one string; give a list"),
    ],
)
def test_a_study_that_cannot_be_used_says_why(write_study, tmp_path, head, body, message):
    folder = write_study(body) if head is None else write_study(body, head=head)
    with pytest.raises(AblationError, match=message):
        run_study(folder, tmp_path / "out")


def test_a_missing_study_is_named(tmp_path):
    with pytest.raises(StudyError, match="There is no study at"):
        run_study(tmp_path / "absent", tmp_path / "out")
