"""What the tests share: one torch thread a worker, interpreters to run snippets in, and an npu left as it was found."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

SECONDS = 120  # nothing takes nearly as long; a hang becomes a failure
# What a developer may have exported must not reach a snippet.
_OURS = (
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCH_NPU_SANITIZER",
    "TORCH_TRANSFER_TO_NPU",
    "VNPU_DEVICES",
    "VNPU_MEMORY",
    "ASCEND_RT_VISIBLE_DEVICES",
    "TASK_QUEUE_ENABLE",
    "ASCEND_LAUNCH_BLOCKING",
    "TORCH_NPU_LOGS",
    "TORCH_NPU_LOGS_FILTER",
    "TORCH_NPU_COMPACT_ERROR_OUTPUT",
    "NPU_ASD_ENABLE",
    "ASCEND_HOME_PATH",
    "ASCEND_OPP_PATH",
    "UNPATCH_DISABLE",
    "PYTHONWARNINGS",
)


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


@pytest.fixture(scope="session")
def fresh() -> Snippet:
    """Run a snippet in a fresh interpreter (some seconds): `fresh(code, VARIABLE="value")`."""

    def run(code: str, **variables: str) -> Run:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=_environment(variables),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return Run(done.stdout, done.stderr, done.returncode)

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

    def run(code: str, **variables: str) -> Run:
        stdin.write(json.dumps({"code": textwrap.dedent(code), "env": variables}) + "\n")
        stdin.flush()
        return Run(**json.loads(stdout.readline()))

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
