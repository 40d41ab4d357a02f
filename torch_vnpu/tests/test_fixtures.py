"""The fixtures that run snippets: one that hangs is a failure that shows what it printed, and leaves no process behind."""

import time
from typing import Any

import pytest

HANGS = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid)
print("told", file=sys.stderr)
time.sleep(600)
"""


@pytest.mark.parametrize("fixture", ["fresh", "with_torch"])
def test_a_snippet_that_hangs(request: Any, fixture: str) -> None:
    run = request.getfixturevalue(fixture)
    with pytest.raises(pytest.fail.Exception, match="did not end within 5 s") as caught:
        run(HANGS, seconds=5)
    *_, child, told = str(caught.value).splitlines()
    assert told == "told"
    for _ in range(100):
        if not is_running(int(child.removeprefix("child "))):
            break
        time.sleep(0.1)
    else:
        raise AssertionError("the snippet's own child is still there")
    assert run("print(1)").passed().lines == ["1"]


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"  # nobody has to wait for an orphan here
    except FileNotFoundError:
        return False


def test_a_snippet_that_ends_in_time_is_what_it_was(with_torch: Any) -> None:
    assert with_torch("import os; os.kill(os.getpid(), 9)", seconds=60).code == -9
    assert with_torch("import os; print(os.getpgid(0) == os.getpid())").lines == ["True"]
