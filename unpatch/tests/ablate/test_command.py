"""The command line of a study: what it prints, where, and with which exit code."""

from __future__ import annotations

import msgspec
from click.testing import CliRunner

from unpatch.cli import main


def run(*arguments: object):
    return CliRunner().invoke(main, ["ablate", *map(str, arguments)])


def test_it_judges_and_writes_the_evidence(write_study, tmp_path):
    done = run(write_study(), "--out", tmp_path / "out", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "inert" in done.stdout
    assert "A, all patches: 1 passed" in done.stderr
    assert (tmp_path / "out" / "evidence.json").is_file()
    again = run(tmp_path / "study", "--out", tmp_path / "out", "--resume")
    assert "from an earlier run" in again.stderr


def test_json_is_all_there_is_on_stdout(write_study, tmp_path):
    done = run(write_study(), "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0
    assert msgspec.json.decode(done.stdout_bytes)["study"]["patches"][0]["verdict"] == "inert"
    assert (tmp_path / "out" / "study.sqlite").is_file()


def test_a_study_that_cannot_be_judged_is_a_negative_result(write_study, tmp_path):
    done = run(write_study("raise RuntimeError('broken')"), "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "RuntimeError: broken" in done.stderr


def test_wrong_usage(write_study, tmp_path):
    folder = write_study()
    assert run(tmp_path / "absent").exit_code == 2
    assert run(folder, "--jobs", 0).exit_code == 2
    assert run(folder, "--timeout", 0).exit_code == 2
    done = run(folder, "--out", tmp_path / "out", "--only", "absent")
    assert done.exit_code == 2
    assert "declares no patch absent" in done.stderr
    assert run(folder, "--only", " , ").exit_code == 2


SEVERAL = """
for name in ("one", "two", "three"):
    manager.declare(id=name, group="all", reason="r").add(f"library.{name}", 1)

@study.workload()
def doubles(case):
    case.output("y", library.double(2))
"""


def test_some_patches_are_judged_by_commas_or_by_repeating(write_study, tmp_path):
    folder = write_study(SEVERAL)
    done = run(folder, "--out", tmp_path / "out", "--json", "--only", "double, one", "--only", "three")
    assert done.exit_code == 0, done.output
    judged = [patch["patch"]["id"] for patch in msgspec.json.decode(done.stdout_bytes)["study"]["patches"]]
    assert judged == ["double", "one", "three"]


FAILING = """
@study.workload(params=range(7))
def fails(case, number):
    raise ValueError(f"bad {number}\\nmore of it")

@study.workload()
def doubles(case):
    case.output("y", library.double(2))
"""


def test_what_fails_with_all_patches_is_told_with_its_place(write_study, tmp_path):
    source = (write_study(FAILING) / "study.py").read_text().splitlines()
    line = next(number for number, text in enumerate(source, 1) if "raise ValueError" in text)
    done = run(tmp_path / "study", "--out", tmp_path / "out", "--jobs", 1)
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    start = lines.index("A, all patches: 1 passed, 7 failed")
    assert lines[start + 1 : start + 7] == [
        *(f"  fails[{n}]: builtins.ValueError at study.py:{line}: bad {n}" for n in range(5)),
        "  … and 2 more, in the evidence",
    ]
    assert done.stderr.count("fails[0]") == 1  # of arm A alone


def test_an_interrupt_is_one_sentence(write_study, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("unpatch.ablate.run.run_study", interrupted)
    done = run(write_study(), "--out", tmp_path / "out")
    assert done.exit_code == 130
    assert done.stderr == "Interrupted. Finished trials are kept: go on with --resume.\n"


def test_a_folder_with_files_of_others_is_wrong_usage(write_study, tmp_path):
    (tmp_path / "out" / "trials").mkdir(parents=True)
    done = run(write_study(), "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
