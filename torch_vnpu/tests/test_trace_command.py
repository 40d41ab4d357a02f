"""`vnpu trace`: what is wrong with a trace, and where; what a repair rescues; where the time went."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, record_function

from torch_vnpu.cli import commands
from torch_vnpu.profiler import reading
from torch_vnpu.profiler.checking import check
from torch_vnpu.profiler.reading import Reader
from torch_vnpu.profiler.repairing import repair
from torch_vnpu.profiler.summing import summarise, union

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
EVENTS = st.lists(
    st.fixed_dictionaries({"ph": st.just("i"), "name": TEXTS, "ts": st.integers(0, 10**9)}), min_size=1, max_size=8
)
files = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def write(tmp_path):
    def write(content, name="trace.json"):
        if not isinstance(content, bytes | str):
            content = json.dumps(content)
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write


@pytest.fixture(params=[7, 64, 1 << 20], ids="chunks of {}".format)
def chunk(request, monkeypatch):
    monkeypatch.setattr(reading, "_CHUNK", request.param)


def x(start, length, lane=(0, 0), category="kernel", **arguments):
    return {
        "ph": "X",
        "cat": category,
        "name": "n",
        "pid": lane[0],
        "tid": lane[1],
        "ts": start,
        "dur": length,
        "args": arguments,
    }


def flow(phase, time, id=1):
    return {"ph": phase, "cat": "ac2g", "name": "ac2g", "id": id, "pid": 0, "tid": 0, "ts": time}


def kinds(file):
    return {problem.kind: problem.count for problem in check(file).problems.values()}


def repaired(file):
    target = io.BytesIO()
    done = repair(file, target)
    return done, json.loads(target.getvalue())


# ------------------------------------------------------------------------------------------------ reading
@files
@given(EVENTS, st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_what_json_reads_is_read(write, chunk, events, array, indent, ascii):
    trace = events if array else {"a": [1], "traceEvents": events, "é": {"b": None}}
    file = write(json.dumps(trace, indent=indent, ensure_ascii=ascii))
    with open(file, "rb") as source:
        items = list(Reader(source))
    content = file.read_bytes()
    assert [json.loads(content[item.start : item.end]) for item in items if item.key is None] == events
    assert kinds(file) == {}


@files
@given(EVENTS, st.data())
def test_a_file_that_was_cut_off_is_told_and_repaired(write, chunk, events, data):
    content = json.dumps({"traceEvents": events}).encode()
    cut = data.draw(st.integers(len('{"traceEvents": ['), len(content) - 1))
    file = write(content[:cut])
    ((byte, message), *_) = check(file).problems["json"].examples
    assert byte == cut or "UTF-8" in message
    assert "cut" in message
    done, trace = repaired(file)
    assert done.cut
    assert trace["traceEvents"] == events[: done.events]
    whole = content[:cut].count(b'{"ph"') - 1
    assert done.events >= whole


@files
@given(EVENTS, st.data())
def test_a_quote_too_much_is_told_and_repaired(write, chunk, events, data):
    number = data.draw(st.integers(0, len(events) - 1))
    events[number]["name"] = "@"
    for one in range(len(events)):
        events[one]["ts"] = one
    before, after = (
        json.dumps({"traceEvents": events}).split('"@"')[0:2] if json.dumps(events).count('"@"') == 1 else (None, None)
    )
    if before is None:
        return
    file = write(f'{before}"say "hello" now"{after}')
    ((byte, message), *_) = check(file).problems["json"].examples
    assert byte == len(before) + len('"say "')
    assert "unescaped quote" in message
    done, trace = repaired(file)
    assert (done.events, done.repaired, done.lost) == (len(events), 1, 0)
    events[number]["name"] = 'say "hello" now'
    assert trace["traceEvents"] == events


@pytest.mark.parametrize(
    ("content", "byte", "reason"),
    [
        ("", 0, "empty"),
        ("no", 0, "neither an object nor an array"),
        ('{"traceEvents": [{"ph": "i", "ts": 1, "name": "a\tb"}]}', 48, "control character U+0009"),
        ('{"traceEvents": [{"ph": "i", "ts": 1, "name": "C:\\path"}]}', 49, "backslash"),
        ('{"k"k": 1, "traceEvents": []}', 4, "unescaped quote in the key"),
        ("{'traceEvents': []}", 1, "name of a member"),
        ('{"traceEvents": [{"ph": None}]}', 24, "Python"),
        ('{"traceEvents": [{"ph": "M"}]}{"traceEvents": []}', 30, "two traces"),
        (b'{"traceEvents": [{"ph": "M", "name": "\xf0\x9f"}]}', 38, "UTF-8"),
        ('{"traceEvents": [{"ph": "i", "ts": NaN}]}', 17, "NaN"),
    ],
)
def test_the_byte_and_the_cause(write, chunk, content, byte, reason):
    ((at, message), *_) = check(write(content)).problems["json"].examples
    assert at == byte
    assert reason in message


def test_a_bare_array_may_lack_its_end_and_a_file_may_be_packed(write, tmp_path):
    assert kinds(write('[{"ph": "M"},\n{"ph": "M"}')) == kinds(write('[{"ph": "M"},')) == {}
    assert kinds(write(gzip.compress(b'{"traceEvents": [{"ph": "M"}]}'))) == {}
    assert kinds(write(b'\xef\xbb\xbf[{"ph": "M"}]')) == {}
    assert "json" in kinds(write(gzip.compress(b'{"traceEvents": [{"ph": "M"}]}' * 100)[:-20]))


# ----------------------------------------------------------------------------------------------- checking
@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([x(0, 10), x(10, 5)], {}),
        ([x(0, 10), x(9.999, 5)], {"lane": 1}),
        ([x(0, 10), x(2, 3)], {"lane": 1}),  # on a stream nothing nests
        ([x(0, 10, category="cpu_op"), x(2, 3, category="cpu_op")], {}),
        ([x(0, 10, category="cpu_op"), x(2, 9, category="cpu_op")], {"lane": 1}),
        ([x(0, 10, category="python_function"), x(2, 9, category="cpu_op")], {"python stack": 1}),
        ([x(0, 10), x(5, 10, lane=(0, 1))], {}),
        ([flow("s", 1), flow("f", 2)], {}),
        ([flow("f", 2), flow("s", 1)], {}),
        ([flow("s", 3), flow("f", 2)], {"flow": 1}),
        ([flow("s", 1)], {"flow": 1}),
        ([flow("f", 1, id=2), flow("s", 1)], {"flow": 2}),
        ([flow("s", 1), flow("s", 1), flow("f", 2)], {"flow": 1}),
        (
            [x(1, 1, category="cuda_runtime", correlation=7), x(3, 1, category="cuda_runtime", correlation=7)],
            {"correlation": 1},
        ),
        ([x(1, 1, category="cuda_runtime", correlation=7), x(3, 1, lane=(1, 1), correlation=7)], {}),
        ([x(1.7e15, 1)], {"precision": 1}),
        ([x(1, -1)], {"form": 1}),
        ([{"ph": "X", "name": "n"}], {"form": 1}),
        ([7], {"form": 1}),
        ([], {"form": 1}),
        ([{"ph": "B", "ts": 1}, {"ph": "E", "ts": 2}], {}),
        ([{"ph": "E", "ts": 1}, {"ph": "B", "ts": 2}], {"begin and end": 2}),
    ],
)
def test_what_is_wrong(write, events, found):
    assert kinds(write({"traceEvents": events})) == found


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_a_union_covers_the_same_times_once(spans):
    spans = [(start, start + length) for start, length in spans]
    covered = union(spans)
    assert {time for start, end in spans for time in range(start, end)} == {
        t for start, end in covered for t in range(start, end)
    }
    assert all(end < start for (_, end), (start, _) in pairwise(covered))


# ---------------------------------------------------------------------------------------------- summing up
def test_where_the_time_went(write):
    events = [
        x(100, 10, correlation=1),
        x(105, 10, lane=(0, 7), category="gpu_memcpy", correlation=2),
        x(120, 10, correlation=3),  # five idle, launched before
        x(150, 5, correlation=4),  # twenty idle, launched when it was idle
        x(10, 1, (9, 9), "privateuse1_runtime", correlation=1),
        x(11, 1, (9, 9), "privateuse1_runtime", correlation=2),
        x(12, 1, (9, 9), "privateuse1_runtime", correlation=3),
        x(140, 1, (9, 9), "privateuse1_runtime", correlation=4),
    ]
    summary = summarise(write({"traceEvents": events}))
    (device,) = summary.devices
    assert (device.span, device.compute, device.copy, device.overlap, device.idle) == (55, 25, 10, 5, 25)
    assert (device.host_bound, device.host_bound_gaps) == (20, 1)
    assert [(gap.length, gap.host_bound) for gap in device.gaps] == [(20, True), (5, False)]
    assert [(stream.stream, stream.busy, stream.idle) for stream in summary.streams] == [(0, 25, 30), (7, 10, 0)]
    assert [(kernel.kind, kernel.count, kernel.total) for kernel in summary.kernels] == [
        ("kernel", 3, 25),
        ("gpu_memcpy", 1, 10),
    ]


# ------------------------------------------------------------------------------------------------ commands
@pytest.fixture
def vnpu():
    def run(*arguments):
        return CliRunner().invoke(commands, ["trace", *map(str, arguments)])

    return run


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    file = tmp_path_factory.mktemp("real") / "trace.json"
    model = torch.nn.Linear(16, 4).npu()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as profiler:
        with record_function("step"):
            model(torch.randn(8, 16).npu()).sum().backward()
    profiler.export_chrome_trace(str(file))
    return file


def test_a_trace_of_ours_is_right(vnpu, real):
    done = vnpu("check", real)
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "nothing is wrong")
    told = json.loads(vnpu("check", real, "--json").output)
    assert told["problems"] == {}
    assert told["events"] == len(json.loads(real.read_bytes())["traceEvents"])


def test_a_broken_trace_of_ours_is_repaired(vnpu, real, tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_bytes(real.read_bytes().replace(b'"name": "step"', b'"name": "st"ep"'))
    done = vnpu("check", broken)
    assert done.exit_code == 1
    assert "an unescaped quote before" in done.output
    assert vnpu("summary", broken).exit_code == 1
    done = vnpu("repair", broken)
    assert done.exit_code == 0, done.output
    assert "1 repaired, 0 lost" in done.output
    whole = tmp_path / "broken.repaired.json"
    assert vnpu("check", whole).exit_code == 0
    expected = json.loads(real.read_bytes())["traceEvents"]
    for event in expected:
        event["name"] = event["name"].replace("step", 'st"ep')
    assert json.loads(whole.read_bytes())["traceEvents"] == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken.json", "broken.repaired.json"]


def test_a_summary_of_ours(vnpu, real):
    summary = json.loads(vnpu("summary", real, "--json").output)
    (device,) = summary["devices"]
    assert device["span"] == pytest.approx(device["compute"] + device["copy"] - device["overlap"] + device["idle"])
    assert {"npu::addmm", "Memcpy HtoD"} <= {kernel["name"] for kernel in summary["kernels"]}
    assert sum(kernel["total"] for kernel in summary["kernels"]) == pytest.approx(
        sum(one["busy"] for one in summary["streams"])
    )
    page = vnpu("summary", real, "--top", 2).output
    assert "host-bound" in page
    # Every time has its unit, beside it or in the head of its column.
    lines = page.splitlines()
    heads = [line.split("  ") for line in lines if line.lstrip().startswith(("device  stream", "total"))]
    assert [[name.strip() for name in head if name.strip()] for head in heads] == [
        ["device", "stream", "slices", "busy (µs)", "idle (µs)"],
        ["total (µs)", "count", "longest (µs)", "kernel"],
    ]
    times = re.findall(r"\d+\.\d{3}\b(.{3})", "\n".join(lines[: lines.index("")]))
    assert len(times) > 6
    assert set(times) == {" µs"}
    assert "more (--top)" in page


def test_a_drawing_shows_every_slice_and_escapes(vnpu, real, write, tmp_path):
    page = tmp_path / "page.html"
    assert vnpu("draw", real, "-o", page).exit_code == 0
    events = json.loads(real.read_bytes())["traceEvents"]
    drawn = page.read_text()
    assert drawn.count("<rect") == sum(event["ph"] == "X" and event["cat"] != "Trace" for event in events)
    assert drawn.count("<path") == sum(event["ph"] == "s" and event["cat"] == "ac2g" for event in events)
    assert "NPU 0, stream 0" in drawn
    assert vnpu("draw", write([x(0, 10) | {"name": "<b>"}]), "-o", page).exit_code == 0
    assert "<b>" not in page.read_text()
    assert vnpu("draw", write([{"ph": "M"}]), "-o", page).exit_code == 1


#: What JSON, as Python reads and writes it, can have for a field.
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(),
    st.sampled_from([10**400, 2**62, 2**63 * 1000, 1e300, -1e17]),
    st.floats(),
    st.text(st.characters(codec=None, exclude_categories=()), max_size=5),
    st.sampled_from(["<script>", "kernel", "cuda_runtime", "cpu_op", "ac2g", "python_function", "a\nb\x1b[31m"]),
    st.lists(st.integers(), max_size=1),
    st.dictionaries(st.sampled_from(["correlation", "labels", "x"]), st.integers() | st.lists(st.none()), max_size=2),
)
FIELDS = ("cat", "name", "pid", "tid", "ts", "dur", "id", "args")


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from("XXXsfBEiM"), st.dictionaries(st.sampled_from(FIELDS), VALUES), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_the_fields_are_the_answer_is_a_report_or_a_sentence(vnpu, write, tmp_path, events):
    whole = x(1, 1) | {"id": 1}
    file = write([(whole if based else {}) | fields | {"ph": phase} for phase, fields, based in events])
    results = {
        "check": vnpu("check", file),
        "summary": vnpu("summary", file),
        "repair": vnpu("repair", file, "-o", tmp_path / "whole.json"),
        "draw": vnpu("draw", file, "-o", tmp_path / "page.html"),
    }
    for command, done in results.items():
        assert done.exit_code in (0, 1), (command, done.exception)
        if command in ("summary", "draw") and done.exit_code:
            assert re.fullmatch(r"Error: .* cannot be (drawn|summed up): .*\n", done.output), done.output
        assert "\x1b" not in done.output
    # What readers are told to trust can be summed up.
    assert results["check"].exit_code or results["summary"].exit_code == 0, results["summary"].output
    if results["draw"].exit_code == 0:
        page = (tmp_path / "page.html").read_text()
        assert "<script>" not in page
        assert not re.search(r'="-?(nan|inf)', page)
    assert json.loads(vnpu("check", file, "--json").output)["events"] == len(events)


PACKED = gzip.compress(json.dumps([x(1, 1)] * 200).encode())
BROKEN = {
    "empty": b"",
    "a number": b"7",
    "garbage": bytes(range(256)),
    "UTF-16": "[]".encode("utf-16"),
    "no bytes packed": b"\x1f\x8b",
    "garbage packed": b"\x1f\x8b\x08\x00" + bytes(range(100)),
    "packed and cut off": PACKED[:-20],
    "packed and altered": PACKED[:20] + bytes([PACKED[20] ^ 255]) + PACKED[21:],
    "another checksum": PACKED[:-8] + b"12345678",
    "a long number": b'[{"ph": "X", "ts": ' + b"1" * 5000 + b"}]",
    "nested deeply": b"[" + b'{"a":' * 100_000,
    "nested deeply, whole": b"[" + b"[" * 100_000 + b"]" * 100_000 + b"]",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_told_in_a_sentence(vnpu, write, tmp_path, kind):
    file = write(BROKEN[kind])
    assert "json: 1 problem" in vnpu("check", file).output
    for arguments in (["summary", file], ["draw", file, "-o", tmp_path / "page.html"]):
        done = vnpu(*arguments)
        assert done.exit_code == 1
        assert re.fullmatch(r"Error: .* is no JSON: byte \d+: .*\n", done.output), done.output
    done = vnpu("repair", file, "-o", tmp_path / "whole.json")
    assert done.exit_code in (0, 1)
    assert isinstance(done.exception, SystemExit | None)
    if (tmp_path / "whole.json").exists():
        json.loads((tmp_path / "whole.json").read_bytes())


def test_wrong_usage(vnpu, tmp_path):
    assert vnpu("check", tmp_path / "none.json").exit_code == 2
    nothing = tmp_path / "nothing.json"
    nothing.write_text("hello")
    assert vnpu("repair", nothing).exit_code == 1
    assert vnpu("summary", nothing, "--top", -1).exit_code == 2
    assert [file.name for file in tmp_path.iterdir()] == ["nothing.json"]
    for command in ("check", "repair", "summary"):
        assert "Example:" in vnpu(command, "--help").output


NO_TORCH = """
import importlib.util, sys
# As where the package itself cannot be imported.
sys.modules["torch_vnpu"] = importlib.util.module_from_spec(importlib.util.find_spec("torch_vnpu"))
import torch_vnpu.profiler.checking, torch_vnpu.profiler.repairing, torch_vnpu.profiler.summing
print("torch" in sys.modules)
"""


def test_the_checker_needs_no_torch():
    done = subprocess.run([sys.executable, "-c", NO_TORCH], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
