"""Ten programs that were written for CUDA run unchanged by `vnpu run`. Each checks itself; the last line says what it found."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

PROGRAMS = Path(__file__).with_name("cuda_programs")
WITH_HCCL = pytest.mark.skipif(not hasattr(dist.Backend, "HCCL"), reason="hccl backend not registered yet (issue 4)")
#: Program -> what it prints last.
CASES = {
    "training_amp": "loss falls: True",
    "streams_events": "sum: 16842752.0",
    "pinned_loader": "labels: 190",
    "seeds": "the same numbers",
    "memory_stats": "out of memory, as expected",
    "branches": "device count: 2 torch.bfloat16",
    "checkpoint": "loaded",
    "custom_autograd": "gradient: 24.0",
    "compiled": "result: [4.0, 4.0, 4.0, 4.0]",
}


def command(*arguments: str) -> str:
    return f"from torch_vnpu.cli import main; main({arguments!r})"


def test_the_cases_are_all_programs() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {*CASES, "ddp"}


@pytest.mark.parametrize("name", CASES)
def test_program_for_cuda(with_vnpu: Any, tmp_path: Path, name: str) -> None:
    arguments = [str(checkpoint_of_a_cuda_machine(tmp_path))] if name == "checkpoint" else []
    done = with_vnpu(command("run", str(PROGRAMS / f"{name}.py"), *arguments), VNPU_DEVICES="2", VNPU_MEMORY="1G")
    assert done.code == 0, done.err
    assert done.lines[-1] == CASES[name]


@WITH_HCCL
def test_data_parallel_training_over_nccl(fresh: Any) -> None:
    # Not forked: the processes that the program starts import torch anew.
    done = fresh(command("run", str(PROGRAMS / "ddp.py")), VNPU_DEVICES="2")
    assert done.code == 0, done.err
    assert done.lines[-1] == "in step"


def test_without_the_redirection_they_fail(with_vnpu: Any) -> None:
    done = with_vnpu(command("run", "--no-cuda", str(PROGRAMS / "training_amp.py")))
    assert done.code == 1
    assert "CUDA" in done.err


def checkpoint_of_a_cuda_machine(folder: Path) -> Path:
    path = folder / "checkpoint.pt"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["torch.serialization"], "location_tag", lambda storage: "cuda:1")
        torch.save({"weight": torch.arange(4.0)}, path)
    return path
