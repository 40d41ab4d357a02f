"""The command `vnpu`: programs run as python runs them, and `vnpu info` tells the truth, on a broken environment too."""

import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from torch_vnpu._init.variables import VARIABLES

SOURCES = Path(__file__).resolve().parents[1]
RUN = "from torch_vnpu.cli import main; main({!r})"

#: Shows what a program can see of how it was started.
MIRROR = """
import sys, pickle, atexit
class Thing: pass
atexit.register(lambda: print("at exit", Thing.__module__))
print(sys.argv, sys.path[0], __name__, __file__, __spec__ if not {module} else __spec__.name, __package__)
print(sys.modules["__main__"].Thing is Thing, type(pickle.loads(pickle.dumps(Thing()))) is Thing, __doc__)
import helper
print(helper.__name__)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("code", [0, 3])
def test_a_script_runs_as_python_runs_it(with_vnpu: Any, folder: Path, code: int) -> None:
    script = folder / "program.py"
    script.write_text(MIRROR.format(module=False))
    arguments = [str(script), str(code), "--cuda", "-m", "x y"]
    python = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    done = with_vnpu(RUN.format(["run", "--no-cuda", *arguments]))
    assert (done.out, done.code) == (python.stdout, python.returncode)


def test_a_module_runs_as_python_runs_it(with_vnpu: Any, folder: Path) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "__main__.py").write_text(MIRROR.format(module=True))
    python = subprocess.run([sys.executable, "-m", "pack", "2"], capture_output=True, text=True, cwd=folder)
    code = f"import os; os.chdir({str(folder)!r}); " + RUN.format(["run", "-m", "pack", "2"])
    done = with_vnpu(code)
    assert (done.out, done.code) == (python.stdout, python.returncode)


def test_a_script_may_come_through_a_pipe(with_vnpu: Any, folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("import sys; print(__name__, sys.argv[1:])",), daemon=True)
    writer.start()
    done = with_vnpu(RUN.format(["run", str(pipe), "x"])).passed()
    assert done.lines == ["__main__ ['x']"]


#: Shows what differs between a file, a folder, a packed one and stdin.
KIND = """
import sys
print(sys.argv, sys.path[0], __name__, __file__, type(__loader__).__name__, __spec__ and __spec__.name, __package__)
print(sys.modules["__main__"].sys is sys)
sys.exit("the end")
"""


@pytest.mark.parametrize("kind", ["relative.py", "link.py", "compiled.pyc", "pack", "pack.zip", "-"])
def test_whatever_python_runs_is_run_as_python_runs_it(with_vnpu: Any, folder: Path, kind: str) -> None:
    (folder / "pack").mkdir()
    for path in ("relative.py", "pack/__main__.py", "pack/linked.py"):
        (folder / path).write_text(KIND)
    (folder / "link.py").symlink_to("pack/linked.py")
    py_compile.compile(str(folder / "relative.py"), str(folder / "compiled.pyc"))
    shutil.make_archive(str(folder / "pack"), "zip", folder / "pack")
    with open(folder / "relative.py") as source:
        python = subprocess.run([sys.executable, kind, "x"], capture_output=True, text=True, cwd=folder, stdin=source)
    code = f"import os; os.chdir({str(folder)!r}); os.dup2(os.open('relative.py', os.O_RDONLY), 0); "
    done = with_vnpu(code + RUN.format(["run", kind, "x"]))
    assert done == (python.stdout, python.stderr, python.returncode)
    assert done.err == "the end\n"


@pytest.mark.parametrize("text", ["def f():\n    return 1 / 0\nf()\n", "def f(:\n", "import nowhere", "x = 1\n  y = 2"])
@pytest.mark.parametrize("kind", ["program.py", "-"])
def test_a_traceback_is_the_program_s(with_vnpu: Any, folder: Path, text: str, kind: str) -> None:
    (folder / "program.py").write_text(text)
    with open(folder / "program.py") as source:
        python = subprocess.run([sys.executable, kind], capture_output=True, text=True, cwd=folder, stdin=source)
    code = f"import os; os.chdir({str(folder)!r}); os.dup2(os.open('program.py', os.O_RDONLY), 0); "
    done = with_vnpu(code + RUN.format(["run", kind]))
    assert (done.err, done.code) == (python.stderr, python.returncode)


@pytest.mark.parametrize("module", ["no_such_module", "xml", "bad", "json.no_such"])
def test_a_module_that_cannot_be_run_is_told_as_python_tells_it(with_vnpu: Any, folder: Path, module: str) -> None:
    (folder / "bad.py").write_text("def f(:\n")
    python = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, cwd=folder)
    done = with_vnpu(f"import os; os.chdir({str(folder)!r}); " + RUN.format(["run", "-m", module]))
    told = [line for line in python.stderr.splitlines() if "<frozen " not in line and not line.startswith("Traceback")]
    assert (done.err.splitlines(), done.code) == (told, python.returncode)


@pytest.mark.parametrize(("option", "cuda"), [([], True), (["--cuda"], True), (["--no-cuda"], False)])
def test_a_program_and_its_children_find_cuda_and_torch_npu(
    with_vnpu: Any, folder: Path, option: list[str], cuda: bool
) -> None:
    script = folder / "program.py"
    script.write_text(
        "import os, torch, torch_npu\n"
        "print(torch.cuda.is_available(), torch_npu.npu is torch.npu, os.environ['TORCH_TRANSFER_TO_NPU'])\n"
        "from importlib import metadata; print(metadata.version('torch_npu'))"
    )
    for before in ("", "import torch_vnpu.contrib.transfer_to_npu; "):
        done = with_vnpu(before + RUN.format(["run", *option, str(script)])).passed()
        assert done.lines == [f"{cuda} True {int(cuda)}", "2.13.0"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["run", "no-such-file.py"], 2, "there is no file 'no-such-file.py' to run"),
        (["run", "nosuch.py"], 2, "there is no file 'nosuch.py' to run\n"),
        (["run", "no_such.module"], 2, "to run; for a module, say vnpu run -m no_such.module"),
        (["run", "."], 2, "there is no __main__.py in '.'\n"),
        (["run"], 2, "Missing argument 'PROGRAM'"),
        (["run", "--no-such-option", "x.py"], 2, "No such option"),
        (["no-such-command"], 2, "No such command"),
        (["run", "--help"], 0, ""),
        (["info", "--help"], 0, ""),
        (["--help"], 0, ""),
    ],
)
def test_usage(with_vnpu: Any, arguments: list[str], code: int, told: str) -> None:
    done = with_vnpu(RUN.format(arguments))
    assert done.code == code
    assert told in done.err
    assert ("Example" in done.out) == (len(arguments) == 2 and code == 0)


def test_the_real_torch_npu_is_not_hidden(with_vnpu: Any, folder: Path) -> None:
    (folder / "torch_npu.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); " + RUN.format(["run", str(folder / "helper.py")])
    done = with_vnpu(code)
    assert done.code == 1
    assert "the real torch_npu is installed" in done.err


def facts(done: Any) -> dict[str, Any]:
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_info(with_vnpu: Any) -> None:
    variables = {"VNPU_DEVICES": "3", "VNPU_MEMORY": "1M", "TASK_QUEUE_ENABLE": "0", "UNPATCH_DISABLE": "api"}
    found = facts(with_vnpu(RUN.format(["info", "--json"]), **variables))
    assert found["torch_vnpu"] == {"loaded": True}
    assert found["versions"]["torch"].startswith("2.13")
    assert found["environment"] == dict.fromkeys(VARIABLES) | variables
    assert [device["device"] for device in found["devices"]] == ["npu:0", "npu:1", "npu:2"]
    assert {device["total bytes"] for device in found["devices"]} == {1 << 20}
    assert found["features"]["task queue"] is False
    assert found["features"]["transfer_to_npu"] is False
    patches = {patch["patch"]: patch for patch in found["patches"]}
    assert patches["torch_vnpu/dlpack-device"]["state"] == "applied"  # the import was before the variable


def test_info_tells_what_is_on(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import torch_vnpu.compat, torch_vnpu.sanitizer
        import torch_vnpu.contrib.transfer_to_npu
        torch_vnpu.compat.install()
        torch_vnpu.sanitizer.enable_npu_sanitizer()
        from torch_vnpu.cli import main
        main(["info", "--json"])
    """)
    found = facts(done)
    on = ("sanitizer", "task queue", "torch_npu is torch_vnpu", "transfer_to_npu")
    assert all(found["features"][name] is True for name in on)
    assert any(
        patch["patch"] == "transfer_to_npu/cuda-module" and patch["state"] == "applied" for patch in found["patches"]
    )


def test_info_is_a_page(with_vnpu: Any) -> None:
    done = with_vnpu(RUN.format(["info"])).passed()
    headings = [line for line in done.lines if line and not line.startswith(" ")]
    assert headings == ["torch_vnpu", "versions", "environment", "devices", "features", "patches"]
    assert any("VNPU_MEMORY" in line and "not set" in line for line in done.lines)


def test_info_of_a_runtime_that_cannot_start(with_vnpu: Any) -> None:
    found = facts(with_vnpu(RUN.format(["info", "--json"]), VNPU_MEMORY="much"))
    assert "VNPU_MEMORY is 'much'" in found["devices"]["error"]
    assert found["features"]["runtime"] == "virtual"


@pytest.mark.parametrize("arguments", [["info", "--json"], ["run", __file__]])
def test_a_package_that_cannot_be_imported(with_torch: Any, arguments: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {arguments!r}; import torch_vnpu_cli; torch_vnpu_cli.main()"
    done = with_torch(code, TORCH_TRANSFER_TO_NPU="perhaps")
    reason = "TORCH_TRANSFER_TO_NPU is 'perhaps', but must be 0 or 1"
    if arguments[0] == "run":
        assert done.code == 1
        assert reason in done.err
        return
    found = facts(done)
    assert found["torch_vnpu"]["loaded"] is False
    assert reason in found["torch_vnpu"]["error"]
    assert found["environment"]["TORCH_TRANSFER_TO_NPU"] == "perhaps"
    assert found["versions"]["torch"].startswith("2.13")


def test_python_m_is_the_command(fresh: Any) -> None:
    done = fresh(
        "import runpy, sys; sys.argv = ['vnpu', '--help']; runpy.run_module('torch_vnpu', run_name='__main__')"
    )
    assert done.out.startswith("Usage: vnpu ")


def test_every_variable_is_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "environment.md").read_text(encoding="utf-8")
    assert [name for name in VARIABLES if f"`{name}`" not in page] == []


def test_every_variable_that_is_read_is_known() -> None:
    name = r'"((?:ASCEND|NPU|TASK|TORCH|UNPATCH|VNPU)_[A-Z_]+)"'
    read = set()
    for path in (*SOURCES.glob("src/**/*.py"), *SOURCES.glob("csrc/**/*.cpp")):
        text = path.read_text()
        if "environ" in text or "getenv" in text:  # directly, or by a constant
            read |= set(re.findall(rf"(?:getenv\(|environ\.get\(|environ\[|choice\(|flag\(|= ){name}", text))
    assert read <= VARIABLES.keys()
    assert {"VNPU_DEVICES", "TORCH_NPU_SANITIZER", "TORCH_TRANSFER_TO_NPU"} <= read


# ------------------------------------------------------------------------------------------------ output
def vnpu(*arguments: object, out: Any = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "torch_vnpu_cli", *map(str, arguments)]
    return subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.json"
    file.write_text(
        json.dumps([{"ph": "X", "cat": "kernel", "name": "\ud800", "pid": 0, "tid": 0, "ts": 1, "dur": -1}])
    )
    return file


@pytest.mark.parametrize("arguments", [["--help"], ["trace", "--help"], ["info"], ["trace", "check"]])
def test_output_that_cannot_be_written_is_one_sentence(arguments: list[str], trace: Path) -> None:
    with open("/dev/full", "w") as full:
        done = vnpu(*arguments, *([trace] if arguments[-1] == "check" else []), out=full)
    assert (done.returncode, done.stderr) == (2, "Error: Cannot write the output: No space left on device.\n")


def test_a_log_without_findings_into_a_full_disk(with_vnpu: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"format": "torch_vnpu.sanitizer.log", "version": 2}\n{"events": 0}\n')
    full = "import os, sys; sys.stdout.flush(); os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
    done = with_vnpu(full + RUN.format(["sanitize", "--replay", str(log)]))
    assert (done.code, done.err) == (2, "Error: Cannot write the output: No space left on device.\n")


def test_a_pipe_whose_reader_has_gone_is_silent(trace: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = vnpu("trace", "check", trace, out=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_text_that_cannot_be_encoded_is_shown_by_escapes(with_vnpu: Any, trace: Path) -> None:
    assert "\\ud800" in vnpu("trace", "check", trace).stdout
    done = with_vnpu("import os; os.environb[b'VNPU_MEMORY'] = b'\\xff'; " + RUN.format(["info"])).passed()
    assert "\\udcff" in done.out
    # A program's output is its own.
    script = trace.with_name("program.py")
    script.write_text("print('\\ud800')")
    assert "UnicodeEncodeError" in with_vnpu(RUN.format(["run", str(script)])).err
    assert "surrogates" in with_vnpu(RUN.format(["run", str(script)]), PYTHONIOENCODING="utf-8").err


def test_help_and_traces_need_no_torch(trace: Path) -> None:
    code = (
        "import sys, torch_vnpu_cli\nsys.argv[1:] = {}\n"
        "try: torch_vnpu_cli.main()\nfinally: assert 'torch' not in sys.modules"
    )
    for arguments in (["--help"], ["run", "--help"], ["trace", "check", str(trace)], ["trace", "summary", str(trace)]):
        done = subprocess.run([sys.executable, "-c", code.format(arguments)], capture_output=True, text=True)
        assert "Traceback" not in done.stderr
