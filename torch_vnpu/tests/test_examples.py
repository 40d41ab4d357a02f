"""The programs of examples/ run and say what they promise."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_device_mistake_fails() -> None:
    told = run("device_mistake.py").splitlines()
    assert len(told) == 4
    assert sum("Expected all tensors to be on the same device" in line for line in told) == 3
    assert sum("can't convert npu:0 device type tensor to numpy" in line for line in told) == 1


def test_training_on_npu_equals_cpu() -> None:
    assert "the same, bit for bit" in run("training.py")


def test_a_program_for_cuda_trains_without_cuda() -> None:
    program = EXAMPLES / "cuda_train.py"
    assert "npu" not in program.read_text().replace("vnpu run examples/cuda_train.py", "")
    done = subprocess.run(
        [sys.executable, "-m", "torch_vnpu", "run", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("epoch")]
    assert len(losses) == 4
    assert losses[-1] < losses[0] / 3
    assert "Virtual NPU" in done.stdout
