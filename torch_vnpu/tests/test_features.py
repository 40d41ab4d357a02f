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


FLAGS = ("TORCH_TRANSFER_TO_NPU", "NPU_ASD_ENABLE", "TORCH_NPU_COMPACT_ERROR_OUTPUT")


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        *((name, value, "0 or 1") for name in FLAGS for value in ("", "2", "true", "yes", "0 1")),
        *(("TORCH_NPU_SANITIZER", value, "collect") for value in ("wran", "2", "tru", "raise,warn")),
    ],
)
def test_another_value_is_refused_by_name(with_torch: Any, name: str, value: str, choices: str) -> None:
    done = with_torch("import torch_vnpu", **{name: value})
    (told,) = (line for line in done.err.splitlines() if line.startswith("ValueError: "))
    assert (done.code, told.startswith(f"ValueError: {name} is {value!r}, but must be ")) == (1, True)
    assert choices in told
    assert "ERR00003 PTA invalid value" in done.err


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TORCH_NPU_SANITIZER": "1", "TORCH_NPU_SANITIZER_SUPPRESSIONS": "/none"}, "SUPPRESSIONS is '/none', which"),
        ({"TORCH_NPU_SANITIZER": "1", "TORCH_NPU_SANITIZER_SUPPRESSIONS": __file__}, "is no suppression; write kind:"),
        ({"ASCEND_OPP_DEBUG_PATH": __file__}, f"ASCEND_OPP_DEBUG_PATH is {__file__!r}, where the folder"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_variable(
    with_torch: Any, variables: dict[str, str], words: str
) -> None:
    done = with_torch("import torch_vnpu", **variables)
    assert done.code == 1
    (told,) = (line for line in done.err.splitlines() if line.startswith("ValueError: " + [*variables][-1]))
    assert words in told


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
