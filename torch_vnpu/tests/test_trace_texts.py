"""Whatever text goes into a trace, the file loads and shows it: metadata, and names of ranges, modules, files and threads."""

from __future__ import annotations

import json
import unicodedata
import warnings

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, record_function

from torch_vnpu.profiler import metadata
from torch_vnpu.profiler.names import restore

CPU = [ProfilerActivity.CPU]
HARD = [
    '"',
    "\\",
    '\\"',
    "\t",
    "\n",
    "\r",
    "\0",
    "\x01",
    "\x7f",
    "é",
    "\U0001f600",
    "C:\\new\\tab",
    'x", "pid": 7, "y": "',
    "a" * 20000,
]
# All of Unicode, lone surrogates included.
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=30)
WRITABLE = st.text(st.characters(codec="utf-8"), max_size=30)
CLEAN = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters='"\\'), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def load(tmp_path):
    def load(profiler, name="trace.json"):
        file = tmp_path / name
        profiler.export_chrome_trace(str(file))
        return json.loads(file.read_bytes())

    return load


def names(trace, category="user_annotation"):
    return [event["name"] for event in trace["traceEvents"] if event.get("cat") == category]


def shown(text):
    """As the README of the writer has it: quotes and backslashes by characters that are compatible with them."""
    return metadata.plain(text)


# ---------------------------------------------------------------------------------------------- metadata
@given(TEXTS)
def test_a_plain_text_needs_no_escapes_and_stays(text):
    plain = metadata.plain(text)
    assert json.loads(f'"{plain}"') == plain
    assert metadata.plain(plain) == plain
    assert len(plain) == len(text)


@given(CLEAN)
def test_a_clean_text_is_plain(text):
    assert metadata.plain(text) == text
    assert metadata.value(json.dumps(text, ensure_ascii=False)) == (json.dumps(text, ensure_ascii=False), 0)


@given(WRITABLE)
def test_what_a_text_is_replaced_by_is_compatible_or_a_picture(text):
    for original, character in zip(text, metadata.plain(text), strict=True):
        assert unicodedata.normalize("NFKC", character) == unicodedata.normalize("NFKC", original) or unicodedata.name(
            character
        ).startswith("SYMBOL FOR ")


@given(JSON)
def test_a_json_value_keeps_its_form(tree):
    text, altered = metadata.value(json.dumps(tree))
    assert "\\" not in text
    again, none = metadata.value(text)
    assert (again, none) == (text, 0)  # idempotent
    assert _sizes(json.loads(text)) == _sizes(tree)  # no key has swallowed another
    if altered == 0:
        assert json.loads(text) == tree


def _sizes(tree):
    if isinstance(tree, dict):
        return sorted(map(str, (_sizes(item) for item in tree.values())))
    if isinstance(tree, list):
        return [_sizes(item) for item in tree]
    return None if isinstance(tree, str) else tree


@given(st.dictionaries(TEXTS, st.just("1"), min_size=2))
def test_distinct_keys_stay_distinct_and_exact(keys):
    trace = json.loads("{" + ",".join(f'"{metadata.key(key)}": 1' for key in keys) + "}")
    assert len(trace) == len(keys)
    assert {key for key in keys if key not in metadata.RESERVED} <= trace.keys()


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "no json", '{"a":', '"open', "[" * 100_000, "1" * 5000 + "x"])
def test_what_is_no_json_becomes_a_text(text):
    spelled, altered = metadata.value(text)
    assert altered == 1
    assert json.loads(spelled) == metadata.plain(text)


def test_numbers_and_white_space_pass_as_they_are():
    text = '{"a":\n\t[1e999, 1.50, -0,  12345678901234567890]}'
    assert metadata.value(text) == (text, 0)
    assert metadata.value('["\\u00e9", 1e999, 1.50]') == ('["é", 1e999, 1.50]', 0)


@few
@given(st.dictionaries(WRITABLE, WRITABLE, max_size=5))
@example({text: text for text in HARD})
@example({"traceEvents": "mine", "schemaVersion": "mine"})
def test_metadata_of_any_text_is_in_the_trace(load, entries):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with profile(activities=CPU) as profiler:
            for key, value in entries.items():
                profiler.add_metadata(key, value)
                profiler.add_metadata(key, value)  # twice is once
    trace = load(profiler)
    for key, value in entries.items():
        assert trace[json.loads(f'"{metadata.key(key)}"')] == shown(value)
    altered = [value for value in entries.values() if shown(value) != value]
    assert len([one for one in told if "metadata" in str(one.message)]) == 2 * len(altered)


def test_one_warning_counts_what_was_altered(load):
    with profile(activities=CPU) as profiler:
        with pytest.warns(UserWarning, match="shows 3 texts of the metadata 'mine'") as told:
            profiler.add_metadata_json("mine", json.dumps({'a"': ["b\\", "c"], "d": "\t", "é": 1}))
    assert len(told) == 1
    assert told[0].filename == __file__
    assert load(profiler)["mine"] == {"a＂": ["b＼", "c"], "d": "␉", "é": 1}


def test_preset_metadata_and_clean_metadata(load, recwarn):
    profiler = profile(activities=CPU)
    profiler.preset_metadata_json('preset"', '{"é": [1, 2.50]}')
    with profiler:
        profiler.add_metadata("clean", "it's all right: é")
    trace = load(profiler)
    assert (trace['preset"'], trace["clean"]) == ({"é": [1, 2.5]}, "it's all right: é")
    assert [one for one in recwarn if "metadata" in str(one.message)] == []


# ------------------------------------------------------------------------------------------------- names
@few
@given(st.lists(WRITABLE.filter(lambda text: "\0" not in text), min_size=1, max_size=4))
@example([text for text in HARD if "\0" not in text])
def test_ranges_of_any_name_are_in_the_trace(load, given_names):
    with profile(activities=CPU) as profiler:
        for name in given_names:
            with record_function(name):
                torch.ones(1)
    trace = load(profiler)
    assert names(trace) == given_names
    assert names(trace, "cpu_op") == ["aten::ones", "aten::empty", "aten::fill_"] * len(given_names)


def test_names_of_modules_functions_and_files(load):
    function = type(
        'F"é',
        (torch.autograd.Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "backward": staticmethod(lambda ctx, g: g)},
    )
    module = type('M"\\', (torch.nn.Linear,), {})(2, 2)
    place: dict = {"torch": torch}
    exec(compile("def work():\n torch.ones(2)\n", 'C:\\it"s.py', "exec"), place)
    with profile(activities=CPU, with_stack=True) as profiler:
        function.apply(torch.ones(2, requires_grad=True)).sum().backward()
        module(torch.ones(2))
        place["work"]()
    trace = load(profiler)
    assert 'F"é' in names(trace, "cpu_op")
    assert 'nn.Module: M"\\_0' in names(trace, "python_function")
    assert 'C:\\it"s.py(1): work' in names(trace, "python_function")


@pytest.mark.parametrize("name", ['qu"ote.json', "back\\slash.json", "é.json", 'pa"ck\\ed.json.gz'])
def test_a_trace_may_have_any_path(name, tmp_path):
    import gzip

    with profile(activities=CPU) as profiler:
        torch.ones(1)
    file = tmp_path / name
    profiler.export_chrome_trace(str(file))
    assert [found.name for found in tmp_path.iterdir()] == [name]
    content = gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()
    trace = json.loads(content)
    if not name.endswith(".gz"):  # of which torch has the name of a temporary file
        assert trace["traceName"] == str(file)


THREAD = """
import json, tempfile, torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.multiprocessing._set_thread_name('a"\\n\\\\é' + "\\U0001f600" * 3)
    torch.ones(2)
with tempfile.TemporaryDirectory() as folder:
    profiler.export_chrome_trace(folder + "/trace.json")
    events = json.load(open(folder + "/trace.json"))["traceEvents"]
print(json.dumps([event["args"]["name"].partition("(")[2] for event in events if event["name"] == "thread_name"][-1]))
"""


def test_the_name_of_a_thread(fresh):
    told = fresh(THREAD)
    assert told.code == 0, told.err
    # The system takes fifteen bytes, which end inside of the third face.
    assert json.loads(told.out) == 'a"\n\\é\U0001f600\U0001f600\ufffd)'


def test_a_clean_trace_is_left_as_torch_wrote_it(tmp_path):
    with profile(activities=CPU) as profiler:
        with record_function("a clean range"):
            torch.ones(1)
    file = tmp_path / "trace.json"
    profiler.profiler.kineto_results.save(str(file))
    before = file.read_bytes()
    written = [event.name() for event in profiler.profiler.kineto_results.trace_activities()]
    there = file.stat().st_ino
    restore(file, written, str(file))
    assert file.stat().st_ino == there
    assert file.read_bytes() == before
    # A name that must be restored, and nothing else, changes.
    restore(file, ['a "range"', *written[1:]], str(file))
    assert file.read_bytes() == before.replace(b"a clean range", rb"a \"range\"")
    with pytest.raises(ValueError, match="of the 1000 events"):
        restore(file, ['"'] * 1000, str(file))
    assert [found.name for found in tmp_path.iterdir()] == ["trace.json"]
