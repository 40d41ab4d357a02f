"""What the tests share: one torch thread a worker, interpreters to run snippets in, and an npu left as it was found."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
import torch

from torch_vnpu._init.variables import VARIABLES

SECONDS = 120  # nothing takes nearly as long; a hang becomes a failure that shows what was printed until then
# What a developer may have exported must not reach a snippet.
_OURS = (*VARIABLES, "PYTHONWARNINGS")


class Run(NamedTuple):
    """What a snippet left behind."""

    out: str
    err: str
    code: int

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def passed(self) -> "Run":
        """Itself, after the check that it ended well and said nothing on stderr."""
        assert (self.code, self.err) == (0, ""), self.err + self.out
        return self


Snippet = Callable[..., Run]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables


def _hangs(seconds: float, out: str, err: str) -> NoReturn:
    pytest.fail(f"the snippet did not end within {seconds} s; until then it had printed:\n{out}{err}", pytrace=False)


@pytest.fixture(scope="session")
def fresh() -> Snippet:
    """Run a snippet in a fresh interpreter (some seconds): `fresh(code, VARIABLE="value")`."""

    def run(code: str, seconds: float = SECONDS, **variables: str) -> Run:
        with subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(code)],
            env=_environment(variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    _hangs(seconds, *process.communicate())
                raise
        return Run(out, err, process.returncode)

    return run


def _forking(*modules: str, **variables: str) -> Iterator[Snippet]:
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("fork_server.py")), *modules],
        env=_environment(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    stdin, stdout = server.stdin, server.stdout

    def run(code: str, seconds: float = SECONDS, **variables: str) -> Run:
        stdin.write(json.dumps({"code": textwrap.dedent(code), "env": variables, "seconds": seconds}) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        if answer["code"] is None:
            _hangs(seconds, answer["out"], answer["err"])
        return Run(**answer)

    yield run
    stdin.close()
    server.wait(SECONDS)


@pytest.fixture(scope="session")
def with_torch() -> Iterator[Snippet]:
    """Run a snippet where `torch` was imported without its backends and nothing was done with it (milliseconds)."""
    yield from _forking("torch", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.fixture(scope="session")
def with_vnpu() -> Iterator[Snippet]:
    """Run a snippet where `torch_vnpu` was imported and no npu was used yet (milliseconds)."""
    # torch.manual_seed loads Dynamo; once is enough.
    yield from _forking("torch_vnpu", "torch._dynamo")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _clean_npu() -> Iterator[None]:
    """Seeded generators before each test; the first device and its default stream after it."""
    torch.manual_seed(0)
    yield
    for index in reversed(range(torch.npu.device_count())):
        torch.npu.set_stream(torch.npu.default_stream(index))
