"""What the environment switches on at import."""

import os
import subprocess
import sys
from typing import Any

import pytest

IMPORT = """
    import warnings, os, sys
    {before}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch_vnpu, torch
    print(os.environ.get("TASK_QUEUE_ENABLE"), [str(w.message)[:44] for w in caught], torch.cuda.is_available())
"""
QUIET = "None [] False"
TOLD = "['torch_vnpu: this is an interactive session, ']"


@pytest.mark.parametrize(("value", "active"), [("1", True), ("0", False)])
def test_transfer_is_switched_on_by_one(with_torch: Any, value: str, active: bool) -> None:
    done = with_torch(IMPORT.format(before=""), TORCH_TRANSFER_TO_NPU=value).passed()
    assert done.lines == [f"None [] {active}"]


@pytest.mark.parametrize("value", ["", "2", "true", "yes", " 1"])
def test_another_value_is_refused_by_name(with_torch: Any, value: str) -> None:
    done = with_torch(IMPORT.format(before=""), TORCH_TRANSFER_TO_NPU=value)
    assert done.code == 1
    assert f"ValueError: TORCH_TRANSFER_TO_NPU must be 0 or 1, not {value!r}" in done.err


@pytest.mark.parametrize("sign", ["sys.ps1 = '>>> '", "import builtins; builtins.__IPYTHON__ = True"])
def test_an_interactive_session_runs_tasks_at_once(with_torch: Any, sign: str) -> None:
    assert with_torch(IMPORT.format(before=sign)).passed().lines == [f"0 {TOLD[:-2]}'] False"]


@pytest.mark.parametrize("value", ["0", "1"])
def test_what_the_user_set_is_kept(with_torch: Any, value: str) -> None:
    done = with_torch(IMPORT.format(before="sys.ps1 = '>>> '"), TASK_QUEUE_ENABLE=value).passed()
    assert done.lines == [f"{value} [] False"]


def test_a_script_keeps_the_queue(with_torch: Any) -> None:
    assert with_torch(IMPORT.format(before="")).passed().lines == [QUIET]


def test_the_interpreter_with_i_is_interactive() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TASK_QUEUE_ENABLE"}
    done = subprocess.run(
        [sys.executable, "-i", "-c", "import torch_vnpu, os; print(os.environ['TASK_QUEUE_ENABLE'])"],
        env=environment,
        input="",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split()[0] == "0"
    assert "interactive session" in done.stderr
