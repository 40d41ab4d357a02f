"""Traces of torch.profiler that a reader can load, whatever texts went into them, and that show these texts."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.profiler

from torch_vnpu._init.patches import manager, patch
from unpatch.patches import NotAppliedError, Origin, original


def writer_escapes_metadata() -> bool:
    """torch writes metadata with a quote and a backslash as JSON that a reader can load"""
    try:
        add, low = original(add_metadata), original(add_metadata_json)
    except NotAppliedError:
        add, low = torch.profiler.profile.add_metadata, torch.autograd._add_metadata_json
    text = 'a"b\\c\td'
    spelled: dict[str, str] = {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with warnings.catch_warnings(action="ignore"):
            add(SimpleNamespace(_trace_metadata=spelled), "as text", text)
        low(text, json.dumps([text]))
    trace = _trace(profiler.profiler)
    return trace is not None and trace.get(text) == [text] and spelled["as text"] == json.dumps(text)


def writer_escapes_names() -> bool:
    """torch writes names with a quote, and beyond ASCII, as JSON that a reader can load"""
    name = 'a"b é'
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with torch.profiler.record_function(name):
            pass
    trace = _trace(profiler.profiler)
    return trace is not None and any(event["name"] == name for event in trace["traceEvents"])


def _trace(profiler: Any) -> dict[str, Any] | None:
    """What torch itself writes; None where that is no JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.kineto_results.save(str(path))
        try:
            return json.loads(path.read_bytes())
        except ValueError:
            return None


_metadata = manager.declare(
    id="trace-metadata",
    group="profiler",
    title="Metadata of a trace that a reader can load",
    reason=(
        "A quote or a control character in a key or a value of torch.profiler's metadata makes the whole exported trace "
        "unreadable, and backslashes are turned over: keys are not escaped and the escapes of values are destroyed."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=writer_escapes_metadata,
    risk="Without it a quote in the metadata makes a trace that nothing can load.",
    fingerprints={
        "torch.profiler.profiler._KinetoProfile.add_metadata": "source:7b163bb61458",
        "torch.autograd._add_metadata_json": "signature:d1fb00da68cb",
    },
)


@_metadata.replace("torch.profiler.profiler._KinetoProfile.add_metadata")
def add_metadata(self: Any, key: str, value: str) -> None:
    self._trace_metadata[key] = spelled = json.dumps(value, ensure_ascii=False)
    torch.autograd._add_metadata_json(key, spelled)


@_metadata.replace("torch.autograd._add_metadata_json")
def add_metadata_json(key: str, value: str) -> None:
    from torch_vnpu.profiler import metadata

    shown, altered = metadata.value(value)
    if altered:
        warnings.warn(
            f"the trace shows {altered} text{'s' if altered > 1 else ''} of the metadata {key!r} with other characters: its "
            "writer takes no quotes, backslashes and control characters, and JSON only",
            stacklevel=3,
        )
    original(add_metadata_json)(metadata.key(key), shown)


@patch(
    "torch.autograd.profiler.profile.export_chrome_trace",
    id="trace-names",
    group="profiler",
    title="Names in a trace as they are",
    reason=(
        "A quote in the name of a range, an operator, a module, a file or a thread makes the whole exported trace unreadable, "
        "a backslash is turned over, and every name beyond printable ASCII is written as 'unknown'."
    ),
    origin=Origin(introduced="torch_vnpu 0.1.0"),
    versions="torch>=2.13",
    remove_when=writer_escapes_names,
    risk="Without it a quote in a name makes a trace that nothing can load.",
    fingerprints={"torch.autograd.profiler.profile.export_chrome_trace": "source:55e03ab90628"},
)
def export_chrome_trace(self: Any, path: str, metadata: Any = None, use_python_export: bool = False) -> Any:
    if use_python_export or not self.kineto_results:
        return original(export_chrome_trace)(self, path, metadata, use_python_export)
    from torch_vnpu.profiler import names

    with tempfile.TemporaryDirectory() as folder:
        # torch writes to a path of another name where this one has a backslash.
        written = path if names.is_clean(path) else str(Path(folder, "trace.json"))
        original(export_chrome_trace)(self, written, metadata)
        try:
            names.restore(Path(written), [event.name() for event in self.kineto_results.trace_activities()], path)
        except ValueError as error:
            warnings.warn(f"{error}: a name with quotes would make it unreadable (vnpu trace check)", stacklevel=3)
        if written != path:
            shutil.copyfile(written, path)
