"""The stream check on programs with known truth, in both modes of execution, and what surrounds it."""

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import stream_programs
import torch
from stream_programs import fresh as fresh_memory
from stream_programs import on

from torch_vnpu import _C
from torch_vnpu.sanitizer import Sanitizer, SanitizerError, SanitizerWarning, kernel_check, render
from torch_vnpu.sanitizer.dispatch_capture import DispatchCapture, Kernel, connect_gpu_trace
from torch_vnpu.sanitizer.findings import Finding
from torch_vnpu.sanitizer.log import LogError, Recorder, replay

SUPPORT = Path(stream_programs.__file__).parent


# ---- the table of truths ----


@pytest.fixture(scope="module")
def results(fresh):
    """By mode of execution, what was found in each program."""

    def run(capture, queues):
        code = f"""
        import json, sys
        sys.path.insert(0, {str(SUPPORT)!r})
        import stream_programs
        print(json.dumps(stream_programs.run({capture!r})))
        """
        return json.loads(fresh(code, TASK_QUEUE_ENABLE=queues).passed().out)

    return {
        "synchronous": run("native", "0"),
        "asynchronous": run("native", "1"),
        "dispatch": run("dispatch", "1"),
    }


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "dispatch"])
@pytest.mark.parametrize("name", stream_programs.PROGRAMS)
def test_programs_of_known_truth(results, mode, name):
    result = results[mode][name]
    if mode == "dispatch" and name == "10: operator_of_another_thread":
        assert result["found"] == []  # a dispatch mode sees its own thread
        return
    assert result["found"] == result["expected"], result["text"]


def test_all_rows_of_the_table_are_there():
    rows = {name.partition(":")[0] for name in stream_programs.PROGRAMS}
    assert rows >= {str(row) for row in range(1, 26)}


def test_the_hidden_write_is_found_as_well_as_the_read():
    with Sanitizer("collect") as check:
        stream_programs.write_after_write_behind_a_read()
    assert [finding.first.written for finding in check.findings] == [True, False]
    assert all(finding.second.written for finding in check.findings)


# ---- what a finding says ----


def race():
    stream = torch.npu.Stream()
    x = fresh_memory()
    x.fill_(1)
    with on(stream):
        x.sum()
    return stream


def test_a_finding_names_both_sides_their_stacks_and_the_fix():
    with Sanitizer("collect") as check:
        stream = race()
    (finding,) = check.findings
    assert (finding.kind, finding.first.operation, finding.first.argument) == ("race", "aten::fill_.Scalar", "self")
    assert (finding.second.operation, finding.second.argument) == ("aten::sum.dim_IntList", "self")
    assert (finding.first.device, finding.first.stream, finding.second.stream) == (0, 0, stream.stream_id)
    assert (finding.first.written, finding.second.written) == (True, False)
    assert finding.owner == (0, 0)
    assert finding.bytes == 256
    first, second = (finding.frames(side.stack) for side in (finding.first, finding.second))
    assert [(Path(frame.file).name, frame.function) for frame in (first[0], second[0])] == [
        ("test_sanitizer.py", "race")
    ] * 2
    assert second[0].line == first[0].line + 2
    assert finding.frames(finding.allocated)[0].function == "fresh"
    assert finding.fix.startswith(f"stream_{stream.stream_id}.wait_stream(torch.npu.default_stream(0))")
    text = check.text()
    assert f"stream {stream.stream_id} of npu:0" in text
    assert finding.fix in text
    assert text.endswith("npu sanitizer: 1 × race")


def test_the_fix_of_a_use_after_free_and_of_a_race_with_the_host():
    with Sanitizer("collect") as check:
        stream_programs.freed_while_another_stream_reads()
        stream_programs.host_overwrites_the_source_of_a_copy()
    freed, host = check.findings
    assert freed.kind == "use_after_free"
    assert freed.reused
    assert "record_stream(stream_" in freed.fix
    assert "torch.npu.default_stream(0).wait_stream(" in freed.fix
    assert freed.frames(freed.freed)[0].function == "_free_and_use_again"
    assert host.kind == "host_race"
    assert host.second.is_host
    assert ".synchronize()" in host.fix


@pytest.mark.parametrize(
    "grow",
    [
        lambda x: x.resize_(5000),
        lambda x: x.set_(x.untyped_storage(), 0, (5000,), (1,)),
        lambda x: x.untyped_storage().resize_(1 << 16),
    ],
    ids=["resize_", "set_", "storage"],
)
@pytest.mark.parametrize("waited", [False, True])
def test_memory_that_grows_is_read(grow, waited):
    x, stream = torch.zeros(8, device="npu"), torch.npu.Stream()
    stream.wait_stream(torch.npu.current_stream())
    with Sanitizer("collect") as check:
        with torch.npu.stream(stream):
            x.add_(1)
        if waited:
            torch.npu.current_stream().wait_stream(stream)
        grow(x)
        torch.npu.synchronize()
        check.finish()
    growth = [
        one for one in check.findings if one.kind == "race" and one.second.operation.endswith(("resize_", "set_"))
    ]
    assert len(growth) == (not waited), check.text()
    assert not waited or not check.findings, check.text()


@pytest.mark.parametrize(("before", "depth"), [(True, 32), (True, 0), (False, 32), (False, 0)])
def test_where_memory_was_allocated_or_why_that_is_not_known(before, depth):
    x = fresh_memory() if before else None
    with Sanitizer("collect", stack_depth=depth) as check:
        x = fresh_memory() if x is None else x
        x.fill_(1)
        with on(torch.npu.Stream()):
            x.sum()
    assert len(check.findings) == 1
    allocated = check.text().partition("allocated at\n")[2].splitlines()[0]
    for text in (allocated, check.html()):
        assert ("before the sanitizer was on" in text) == before
    if not before:
        assert ("(no Python stack)" in allocated) == (depth == 0)


def test_json_and_html():
    with Sanitizer("collect") as check:
        race()
    (one,) = json.loads(check.json())["findings"]
    assert one["kind"] == "race"
    assert one["second"]["access"] == "read"
    assert one["second"]["stack"][0]["function"] == "race"
    page = check.html()
    assert page.count('class="lane"') == 2
    assert page.count("<rect") == 2
    assert 'class="missing"' in page


def test_html_is_escaped():
    side = ("<script>", "a&b", 0, 1, True, 1)
    raw = ("race", side, ("x", "y", 0, 0, False, 0), 0, 0, 0, 1, 0, False, 0, 0)
    page = render.as_html([Finding.of(raw, lambda stack: [("<file>", "<b>f</b>", 1)])])
    assert "<script>" not in page
    assert "<file>" not in page
    assert "<b>" not in page


def test_the_same_finding_is_told_once():
    with Sanitizer("collect") as check:
        x, stream = fresh_memory(), torch.npu.Stream()
        for _ in range(50):
            x.fill_(1)
            with on(stream):
                x.sum()
    assert [finding.kind for finding in check.findings] == [
        "race"
    ] * 2  # the read after the write, and the other way round
    assert check.statistics["repeated"] > 50


# ---- modes ----


def test_raise_in_the_operator_that_completes_the_finding():
    x, stream = fresh_memory(), torch.npu.Stream()
    with Sanitizer("raise") as check:
        x.fill_(1)
        with on(stream):
            with pytest.raises(SanitizerError, match=r"fill_\.Scalar") as raised:
                x.sum()
    assert raised.value.finding is check.findings[0]
    torch.npu.synchronize()
    assert x.sum().item() == 64  # the operators go on


def test_raise_comes_through_a_backward_pass():
    leaf = torch.ones(4, device="npu", requires_grad=True)
    other = fresh_memory()
    result = stream_programs._ReadsInBackward.apply(leaf, other, torch.npu.Stream()).sum()
    with Sanitizer("raise"):
        other.fill_(1)
        with pytest.raises(SanitizerError):
            result.backward()


def test_raise_of_a_race_with_the_host():
    host = torch.ones(64).pin_memory()
    stream = torch.npu.Stream()
    with Sanitizer("raise"):
        with on(stream):
            host.to("npu", non_blocking=True)
        with pytest.raises(SanitizerError, match="host"):  # noqa: PT012
            host.fill_(2)
            len([])  # the exception comes at the next call at the latest


def test_raise_at_a_device_synchronisation():
    with Sanitizer("raise"):
        stream_programs._free_and_use_again(reuse=False)
        with pytest.raises(SanitizerError, match="freed"):
            torch.npu.synchronize()


def test_warn():
    with pytest.warns(SanitizerWarning, match="Race"), Sanitizer("warn"):
        race()


def test_stopped_where_a_finding_is_told(monkeypatch):
    check = Sanitizer("warn")
    monkeypatch.setattr(warnings, "warn", lambda *_, **__: check.stop())
    with check:
        race()
        race()
    assert len(check.findings) == 1
    assert not _C.listening()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "stop"}, "raise, warn, collect"),
        ({"capture": "magic"}, "native, dispatch"),
        ({"stack_depth": 1000}, "0 to 128"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sanitizer(**arguments)


def test_the_environment_switches_it_on(fresh):
    run = fresh(
        f"""
        import sys
        sys.path.insert(0, {str(SUPPORT)!r})
        import stream_programs
        try:
            stream_programs.unordered_write_and_read()
        except RuntimeError as error:
            print(type(error).__name__)
        """,
        TORCH_NPU_SANITIZER="raise",
    )
    assert run.lines == ["SanitizerError"]
    assert run.code == 0


def test_what_was_never_ordered_is_judged_at_the_end_of_the_process(fresh):
    run = fresh(
        f"""
        import sys
        sys.path.insert(0, {str(SUPPORT)!r})
        import stream_programs
        stream_programs._free_and_use_again(reuse=False)
        """,
        TORCH_NPU_SANITIZER="1",
    )
    assert run.code == 0
    assert "Use after free" in run.err


# ---- other backends ----


class _Trace:
    """Callbacks as PyTorch's `_gpu_trace` modules have them."""

    def __init__(self):
        self.callbacks = {}

    def __getattr__(self, name):
        kind = name.removeprefix("register_callback_for_")
        if kind == name:
            raise AttributeError(name)
        return lambda callback: self.callbacks.setdefault(kind, callback)


@pytest.mark.parametrize("waits", [True, False])
def test_operators_of_another_backend(waits):
    found, stream = [], 1
    detector, trace = _C.Detector(), _Trace()
    connect_gpu_trace(detector, trace, lambda: 0)
    capture = DispatchCapture(detector, found.append, "meta", lambda index: stream)
    capture.describe = lambda func, args, kwargs, result: Kernel(
        "mine::op", 0, stream, (("x", 4096, 64, 0, 0, 4, (16,), (1,), True),), False
    )
    trace.callbacks["memory_allocation"](4096)
    with capture:
        torch.empty(1)
        stream = 2
        if waits:
            trace.callbacks["event_record"](7, 1)
            trace.callbacks["event_wait"](7, 2)
        torch.empty(1)
    assert [finding[0] for finding in found] == ([] if waits else ["race"])
    trace.callbacks["memory_deallocation"](4096)
    assert detector.statistics()["blocks"] == 0


# ---- suppressions ----


@pytest.mark.parametrize("rule", ["race:aten::sum*", "*:*/test_sanitizer.py:race", "# all\n\n*:aten::fill_.Scalar"])
def test_suppressed(tmp_path, rule):
    path = tmp_path / "suppressions"
    path.write_text(rule + "\n")
    with Sanitizer("raise", suppress=path) as check:
        race()
    assert (check.findings, check.suppressed) == ([], 1)
    assert check.text() == "npu sanitizer: nothing found, 1 suppressed"
    assert "<h1>npu sanitizer: nothing found, 1 suppressed</h1>" in check.html()
    assert json.loads(check.json())["suppressed"] == 1


def test_suppressions_of_something_else(tmp_path):
    path = tmp_path / "suppressions"
    path.write_text("host_race:aten::sum*\nrace:aten::mul*\n")
    with Sanitizer("collect", suppress=path) as check:
        race()
    assert len(check.findings) == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": ["alloc"]}',
        b'{"event": ["access",0,0,"",0,0,0], "at": 0}',
        b'{"event": ["dance",0,0,"",0,0,0], "at": 0}',
        b"[1]",
        b"7",
        b"null",
        b"",
        b"[" * 100_000,
        b'{"event": ["alloc",0,0,"",1,16,0]}',
        b'{"event": ["alloc",0,0,"",' + b"1" * 5000 + b',16,0], "at": 0}',
        b'{"event": ["alloc",0.5,0,"",1,-1,0], "at": null}',
        b'{"stack": 1, "frames": [["file", "function", null]]}',
        b'{"stack": [1], "frames": []}',
        b'{"events": 1}',
        b"\xff\xfe",
    ],
)
def test_a_log_with_a_bad_line(tmp_path, line):
    path = tmp_path / "log"
    path.write_bytes(b'{"format": "torch_vnpu.sanitizer.log", "version": 2}\n' + line + b'\n{"events": 0}\n')
    with pytest.raises(LogError, match=r"^\S*log:2: no log of the npu sanitizer: [^\n]*$"):
        replay(path)


def test_a_log_that_was_cut_off_is_refused_wherever_that_was(tmp_path):
    path = tmp_path / "log"
    with Recorder(path):
        race()
    content = path.read_bytes()
    assert replay(path)
    for end in {*range(0, len(content) - 1, 7), *(at for at, byte in enumerate(content[:-1], 1) if byte == ord("\n"))}:
        path.write_bytes(content[:end])
        with pytest.raises(LogError, match="empty" if end == 0 else "cut off"):
            replay(path)
    path.write_bytes(content + content)
    with pytest.raises(LogError, match="after the end"):
        replay(path)


def test_a_log_through_a_pipe_and_one_of_another_version(tmp_path):
    path, pipe = tmp_path / "log", tmp_path / "pipe"
    with Recorder(path):
        race()
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()), daemon=True)
    writer.start()
    assert replay(pipe) == replay(path) != []
    path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":3', 1))
    with pytest.raises(LogError, match="version 3 is not known, only 2"):
        replay(path)


def test_names_that_are_no_unicode_are_shown_by_escapes(tmp_path):
    path = tmp_path / "log"
    with Recorder(path):
        race()
    path.write_bytes(path.read_bytes().replace(b"test_sanitizer.py", b"\\udcff<b>.py"))
    page = render.as_html(replay(path))
    assert "\\udcff&lt;b&gt;.py" in page
    page.encode()


SCRIPT = """
import sys, torch
s = torch.npu.Stream()
x = torch.ones(4, device="npu")
if "order" in sys.argv:
    s.wait_stream(torch.npu.current_stream())
with torch.npu.stream(s):
    x.sum()
sys.exit(5 if "fail" in sys.argv else None)
"""


def vnpu(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch_vnpu", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_thread_that_outlives_the_script_is_checked(tmp_path):
    script = tmp_path / "script.py"
    race = SCRIPT.replace("import sys, torch\n", "").replace("\n", "\n    ")
    script.write_text(
        f"import sys, threading, time, torch\ndef work():\n    time.sleep(0.5)\n    {race}\n"
        "threading.Thread(target=work).start()\n"
    )
    done = vnpu("run", "--sanitize", script)
    assert (done.returncode, "1 × race" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(("argv", "code", "found"), [([], 1, 1), (["fail"], 1, 1), (["order", "fail"], 5, 0)])
def test_run_a_program_and_replay_its_log(tmp_path, argv, code, found):
    script, findings, log = tmp_path / "script.py", tmp_path / "found.json", tmp_path / "log"
    script.write_text(SCRIPT)
    done = vnpu("run", "--sanitize", "--findings", findings, "--log", log, script, *argv)
    assert done.returncode == code, done.stderr
    assert "npu sanitizer" in done.stderr
    document = json.loads(findings.read_text())
    assert len(document["findings"]) == found
    assert len(replay(log)) == found
    for finding in document["findings"]:  # nothing of what ran the script
        stacks = (finding["first"]["stack"], finding["second"]["stack"], finding["memory"]["allocation_stack"])
        assert [[(frame["file"], frame["line"]) for frame in stack] for stack in stacks] == [
            [(str(script), line)] for line in (4, 8, 4)
        ]
    if argv == ["fail"]:
        page = tmp_path / "page.html"
        again = vnpu("sanitize", "--replay", log, "--json", "--html", page)
        assert again.returncode == 1, again.stderr
        assert len(json.loads(again.stdout)["findings"]) == found
        rules = tmp_path / "rules"
        rules.write_text("race:*/script.py:*")
        none = vnpu("sanitize", "--replay", log, "--suppress", rules)
        assert (none.returncode, none.stdout) == (0, "npu sanitizer: nothing found, 1 suppressed\n"), none.stderr
        assert "<html" in page.read_text()


def test_wrong_use_of_the_commands(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for arguments in (
        ["run", "--log", tmp_path / "log", script],
        ["sanitize"],
        ["sanitize", "--replay", tmp_path / "none"],
    ):
        assert vnpu(*arguments).returncode == 2
    assert vnpu("sanitize", "--replay", script).returncode == 2  # no log


ENDS = """
import os, sys, torch
x = torch.ones(4, device="npu")
if sys.argv[1] == "fork" and (child := os.fork()) == 0:
    x = None
    sys.exit(3)
elif sys.argv[1] == "fork":
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
elif sys.argv[1] == "closed":
    sys.stderr.close()
with torch.npu.stream(torch.npu.Stream()):
    x.sum()
assert sys.argv[1] != "fails"
"""


@pytest.mark.parametrize("kind", ["fork", "closed", "fails"])
def test_the_report_is_there_however_the_program_ends(with_vnpu, tmp_path, kind):
    script, log, findings = tmp_path / "script.py", tmp_path / "log", tmp_path / "findings.json"
    script.write_text(ENDS)
    arguments = ["run", "--sanitize", "--log", str(log), "--findings", str(findings), str(script), kind]
    done = with_vnpu(f"from torch_vnpu.cli import main; main({arguments!r})")
    assert done.code == 1
    assert done.err.count("npu sanitizer: ") == (kind != "closed")
    assert len(replay(log)) == len(json.loads(findings.read_text())["findings"]) > 0
    assert {file.name for file in tmp_path.iterdir()} == {"script.py", "log", "findings.json"}


MANY = "import torch\nx = torch.ones(4, device='npu')\nfor _ in range(300): x.add_(1)\nprint('ran')\n"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--log", "/proc/none/log", "No such file or directory: '/proc/none'\n"),
        ("--log", "/dev/full", "No space left on device: '/dev/full'\n"),
        ("--findings", "/proc/none.json", "Cannot write /proc/none.json: No such file"),
        ("--suppress", sys.executable, f"{sys.executable} is no file of suppressions: byte "),
    ],
)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(with_vnpu, tmp_path, option, value, told):
    script = tmp_path / "script.py"
    script.write_text(MANY)
    arguments = ["run", "--sanitize", option, value, str(script)]
    done = with_vnpu(f"from torch_vnpu.cli import main; main({arguments!r})")
    assert done.code == 2
    assert told in done.err
    assert "Traceback" not in done.err
    # What can be known before the program runs is.
    assert (done.out == "") == (option == "--suppress" or "none/log" in value)
    assert ("nothing found" in done.err) == (done.out != "")


# ---- the processes that a program starts ----

RACES = """
import os, sys, torch
def race():
    x = torch.ones(4, device="npu")
    with torch.npu.stream(torch.npu.Stream()):
        x.sum()
    return x
if __name__ == "__main__":
    kept = race()
    os._exit(0) if "os._exit" in sys.argv else sys.exit(3)
"""

STARTS = """
import multiprocessing, subprocess, sys, races
if __name__ == "__main__":
    kept = races.race() if "itself" in sys.argv else None
    for how in sys.argv[1:]:
        if how in ("spawn", "fork", "forkserver"):
            process = multiprocessing.get_context(how).Process(target=races.race)
            process.start()
            process.join()
        elif how == "os.fork":
            if not (child := races.os.fork()):
                kept = races.race()
                raise ValueError("a child fails")
            races.os.waitpid(child, 0)
        elif how != "itself":
            subprocess.run([sys.executable, races.__file__, how])
"""


@pytest.fixture
def started(with_vnpu, tmp_path):
    """Run STARTS under the check; returns the run, and the findings as a document."""
    (tmp_path / "races.py").write_text(RACES)
    (tmp_path / "starts.py").write_text(STARTS)
    (tmp_path / "temporary").mkdir()

    def run(*arguments, how=(), **options):
        findings = tmp_path / "findings.json"
        code = f"""
        import sys
        from torch_vnpu.cli.program import Program
        from torch_vnpu.sanitizer.run import run_checked
        program = Program({str(tmp_path / "starts.py")!r}, {arguments!r})
        sys.exit(run_checked(program.start, json={str(findings)!r}, html={str(tmp_path / "page.html")!r}, **{options!r}))
        """
        done = with_vnpu(code, TMPDIR=str(tmp_path / "temporary"))
        left = [path for path in (tmp_path / "temporary").iterdir() if path.name.startswith("vnpu")]
        assert left == []
        return done, json.loads(findings.read_text())

    return run


def test_processes_that_are_started_count(started, tmp_path):
    done, document = started("itself", "an <argument>", "os._exit")
    assert done.code == 1
    ended, silent = document["processes"]
    script = str(tmp_path / "races.py")
    assert (ended["argv"], ended["reported"]) == ([script, "an <argument>"], True)
    assert (silent["argv"], silent["reported"]) == ([script, "os._exit"], False)
    assert [(one["kind"], one.get("pid")) for one in document["findings"]] == [("race", None), ("race", ended["pid"])]
    child = document["findings"][1]
    assert [frame["line"] for frame in child["second"]["stack"]] == [6, 9]
    assert f"\nprocess {ended['pid']} ({script} 'an <argument>'):\n\nRace: " in done.err
    assert f"\nprocess {silent['pid']} ({script} os._exit) ended without a report" in done.err
    assert done.err.endswith("npu sanitizer: 2 × race, 1 process without a report\n")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 2
    assert "an &lt;argument&gt;" in page


def test_suppressions_and_the_depth_of_stacks_go_to_the_processes(started, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("race:*\n")
    done, document = started("spawn", suppress=str(rules), stack_depth=1)
    # What is allocated in a function is freed at its end.
    assert (done.code, [finding["kind"] for finding in document["findings"]]) == (1, ["use_after_free"])
    assert len(document["findings"][0]["first"]["stack"]) == 1
    assert document["suppressed"] == 1
    assert done.err.endswith("npu sanitizer: 1 × use after free, 1 suppressed\n")
    rules.write_text("*:*\n")
    done, document = started("fork", suppress=str(rules))
    assert (done.code, done.err) == (0, "npu sanitizer: nothing found, 2 suppressed\n")


@pytest.mark.parametrize("how", ["fork", "os.fork"])
def test_forked_processes_count(started, how):
    done, document = started(how)
    assert (done.code, document["findings"][0]["kind"]) == (1, "race")
    assert [process["reported"] for process in document["processes"]] == [True]


def test_a_process_that_leaves_npu_alone_says_nothing(started, tmp_path):
    (tmp_path / "races.py").write_text("import os\ndef race(): pass\n")
    done, document = started("fork", "os.fork")
    assert (done.code, document["processes"]) == (0, [])


def test_a_finding_goes_through_json():
    with Sanitizer("collect") as check:
        race()
        stream_programs.freed_while_another_stream_reads()
        stream_programs.host_overwrites_the_source_of_a_copy()
    assert {finding.kind for finding in check.findings} == {"race", "host_race", "use_after_free"}
    for finding in check.findings:
        again = Finding.of(json.loads(json.dumps(finding.raw())), finding.frames_of)
        assert again == finding
        assert again.as_dict() == finding.as_dict()


# ---- pytest ----


@pytest.mark.parametrize(
    ("flag", "outcome"),
    [((), "3 passed, 1 error"), (("--npu-sanitizer",), "1 failed, 2 passed, 1 error")],
)
def test_the_pytest_plugin(tmp_path, flag, outcome):
    (tmp_path / "test_some.py").write_text(
        "import torch\n"
        "def race():\n"
        "    x = torch.ones(4, device='npu')\n"
        "    with torch.npu.stream(torch.npu.Stream()): x.sum()\n"
        "def test_race(): race()\n"
        "def test_race_with_fixture(npu_sanitizer): race()\n"
        "def test_no_race(npu_sanitizer): torch.ones(4, device='npu').sum()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "torch_vnpu_pytest", *flag]
    run = subprocess.run(
        [*command, str(tmp_path)],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert outcome in run.stdout, run.stdout + run.stderr
    assert "1 × race" in run.stdout
    assert run.stdout.count("Failed: race: test_some.py:3 and :4") == 1 + bool(flag)
    assert "_pytest/" not in run.stdout
    assert "pluggy/" not in run.stdout


# ---- the kernel check ----


def test_the_kernel_check_names_each_operator_before_it_runs(fresh, tmp_path):
    run = fresh(
        f"""
        import os, torch, torch_vnpu
        print(sorted(os.listdir({str(tmp_path / "debug" / "npu_debug_kernels")!r})) == [str(os.getpid())])
        def step():
            torch.linalg.inv(torch.ones(2, 2, device="npu"))
        try:
            step()
        except RuntimeError:
            os.write(2, b"crash\\n")
        """,
        ASCEND_OPP_DEBUG_PATH=str(tmp_path / "debug"),
        TASK_QUEUE_ENABLE="1",
    )
    assert run.lines == ["True"]
    lines = run.err.splitlines()
    crash = lines.index("crash")
    starts = [line for line in lines[:crash] if line.startswith("[npu kernel check]")]
    assert "aten::linalg_inv_ex" in "".join(starts)
    assert "starts on the default stream of npu:0" in starts[-1]
    assert any("in step" in line for line in lines[lines.index(starts[-1]) : crash])
    assert not (tmp_path / "debug" / "npu_debug_kernels").exists()


def test_the_kernel_check_names_operators_on_threads_without_python(fresh, tmp_path):
    run = fresh(
        "import torch; torch.ones(2, device='npu', requires_grad=True).exp().sum().backward()",
        ASCEND_OPP_DEBUG_PATH=str(tmp_path),
    )
    assert run.code == 0
    assert "Exception" not in run.err
    lines = run.err.splitlines()
    (backward,) = (at for at, line in enumerate(lines) if "aten::mul" in line and " starts on " in line)
    assert lines[backward + 1] == "    (no Python frames on this thread)"


def test_the_debug_directory_stays_while_others_use_it(fresh, tmp_path):
    directory = tmp_path / "npu_debug_kernels"
    directory.mkdir()
    (directory / "1").touch()  # the first process is always alive
    fresh("import torch_vnpu", ASCEND_OPP_DEBUG_PATH=str(tmp_path)).passed()
    assert [entry.name for entry in directory.iterdir()] == ["1"]


def test_the_kernel_check_comes_before_the_runtime(tmp_path):
    torch.ones(1, device="npu")
    with pytest.raises(RuntimeError, match="before the runtime starts"):
        kernel_check.enable_kernel_check(tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_warning_without_a_finding():
    with warnings.catch_warnings(), Sanitizer("warn"):
        warnings.simplefilter("error")
        stream_programs.wait_stream_between()
