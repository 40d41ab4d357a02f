"""`unpatch ops`: what a module runs, on which way, and how two runs differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner

from unpatch.cli import main
from unpatch.ops.path import table


@pytest.fixture
def ops():
    def run(*arguments):
        return CliRunner().invoke(main, ["ops", *map(str, arguments)])

    return run


@pytest.fixture
def listing(ops):
    def listing(*arguments):
        done = ops(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return listing


def test_a_linear_layer_on_npu_is_addmm_within_linear(listing):
    found = listing("nn.Linear(128, 64)", "--device", "npu")["operators"]
    forward = [operator for operator in found if operator["call"]["thread"] == "main"]
    t, addmm = forward[:2]
    assert [operator["call"]["name"] for operator in (t, addmm)] == ["aten::t", "aten::addmm"]
    assert t["within"] == addmm["within"] == ["aten::linear"]
    assert addmm["kernels"] == ["npu::addmm"]
    assert (t["node"], addmm["node"]) == ("TBackward0", "AddmmBackward0")
    assert [step["key"] for step in addmm["path"]] == ["AutogradPrivateUse1", "PrivateUse1"]
    assert addmm["path"][-1]["file"].startswith("torch_vnpu/csrc/aten/")
    assert addmm["call"]["inputs"][1] == {"shape": [8, 128], "dtype": "float32", "device": "npu:0"}
    assert "addmm" in addmm["decomposition"]
    backward = [
        operator
        for operator in found
        if operator["node"] == "AddmmBackward0" and operator["call"]["thread"] == "backward"
    ]
    assert ["npu::mm"] in [operator["kernels"] for operator in backward]


@pytest.mark.parametrize(
    "target",
    [
        "nn.Softmax(-1)",
        "nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))",
        "nn.Sequential(nn.Tanh(), nn.Sigmoid(), nn.GELU(), nn.LayerNorm(4))",
        "(lambda x: (x.tanh() @ x).relu() + x.exp().detach() * x.sigmoid())",
    ],
)
def test_every_operator_that_computes_has_its_device_kernel(listing, target):
    """In the backward pass too, where saved results are read (which looks like `detach`) and gradients are added up."""
    found = listing(target, "--input", "4,4", "--device", "npu")["operators"]
    views = {"aten::detach", "aten::t", "aten::view"}
    without = [operator["call"]["name"] for operator in found if not operator["kernels"]]
    assert set(without) <= views
    for operator in found:
        name = operator["call"]["name"].removeprefix("aten::")
        # Autograd adds in place where no recorder holds what it adds to.
        in_place = name.replace("add.", "add_.") if operator["node"] else name
        assert operator["kernels"] in ([], [f"npu::{name}"], [f"npu::{in_place}"])
    assert any(operator["kernels"] and operator["call"]["thread"] == "backward" for operator in found)


def test_the_table_names_all_of_it(ops):
    text = ops("nn.Linear(4, 2)", "--device", "npu", "--no-backward").stdout
    row = next(line for line in text.splitlines() if "aten::addmm" in line)
    assert row.index("aten::linear (composite)") < row.index("AutogradPrivateUse1") < row.index("device: npu::addmm")
    assert "(float32[2], float32[8, 4], float32[4, 2]) → float32[8, 2] on npu:0, autograd AddmmBackward0" in text
    assert "thread backward" not in text


def test_a_class_of_a_file_is_no_target(ops, tmp_path):
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\nclass Two(torch.nn.Module):\n    def forward(self, x): return x\ndef x(): return 1\n"
    )
    for more in (["--input", "2"], ["--sample", "x"]):
        done = ops(f"{file}::Two", *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "Two is a class of modules: give an instance, or a function" in done.stderr


@pytest.mark.parametrize("target", ["nn.GELU()", "nn.Sequential(nn.Linear(4, 4), nn.ReLU())", "F.relu"])
@pytest.mark.filterwarnings("error")
def test_graphs_come_without_a_warning(ops, target):
    done = ops(target, "--input", "4,4", "--graphs")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "backward graph (AOTAutograd)" in done.stdout


def test_the_kernel_log_is_of_the_recorded_run():
    program = "import sys; from unpatch.cli import main; main()"
    command = [sys.executable, "-c", program, "ops", "nn.Linear(4, 2)", "--device", "npu", "--kernel-log", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_NPU_LOGS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    logged = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("[op_plugin]")]
    recorded = [kernel for operator in json.loads(done.stdout)["operators"] for kernel in operator["kernels"]]
    assert [name.removeprefix("aten::") for name in logged] == [name.removeprefix("npu::") for name in recorded]
    read = [line.rpartition(" ")[2] for line in done.stderr.splitlines() if "ReadQueue" in line]
    assert read == logged  # the device has settled


def test_graphs_and_stacks(ops):
    text = ops("nn.GELU()", "--input", "4,4", "--graphs", "--stack").stdout
    assert "forward graph (AOTAutograd)" in text
    assert "torch.ops.aten.gelu.default" in text
    assert "torch.ops.aten.gelu_backward.default" in text
    assert "at " in text
    assert "collect.py" not in text  # our own frames


def test_a_function_of_a_file_with_its_sample(listing, tmp_path):
    file = tmp_path / "work.py"
    file.write_text(
        textwrap.dedent("""
            import torch
            def step(x, n): return (x.double() + n).cumsum(0)
            def batch(): return torch.ones(3), 2
        """)
    )
    found = listing(f"{file}::step", "--sample", "batch")["operators"]
    assert [operator["call"]["name"] for operator in found] == ["aten::_to_copy", "aten::add.Tensor", "aten::cumsum"]
    assert found[0]["within"] == ["aten::double", "aten::to"] or found[0]["within"] == ["aten::to"]


def test_two_devices_run_the_same_and_two_functions_do_not(ops, tmp_path):
    files = {}
    for name, target, device in (
        ("cpu", "nn.Softmax(1)", "cpu"),
        ("npu", "nn.Softmax(1)", "npu"),
        ("other", "nn.Sigmoid()", "cpu"),
    ):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(ops(target, "--input", "2,3", "--device", device, "--json").stdout)
    same = ops("--diff", files["cpu"], files["npu"])
    assert (same.exit_code, same.stdout.splitlines()[-1].partition(",")[2]) == (
        0,
        " 0 otherwise, 0 only in the first, 0 only in the second",
    )
    other = ops("--diff", files["cpu"], files["other"])
    assert other.exit_code == 1
    assert "- aten::_softmax" in other.stdout
    assert "+ aten::sigmoid" in other.stdout
    rows = json.loads(ops("--diff", files["cpu"], files["other"], "--json").stdout)
    assert {row["what"] for row in rows} >= {"-", "+"}


def test_the_page_is_whole_and_escaped(ops, tmp_path):
    page = tmp_path / "page.html"
    target = "(lambda x: x.relu() if '<b>' else x)"
    assert ops(target, "--input", "2", "--html", page).exit_code == 0
    text = page.read_text()
    assert "aten::relu" in text
    assert "<b>" not in text
    assert "&lt;b&gt;" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to run"),
        (["nn.Nothing()"], "AttributeError"),
        (["nn.GELU()"], "--input 8,128"),
        (["nn.GELU()", "--input", "a,b"], "no shape"),
        (["nn.Linear(2, 2)", "--input", "3,3"], "RuntimeError"),
        (["none.py::f"], "there is no file"),
        (["7"], "is no module or function"),
        (["nn.GELU", "--input", "4"], "nn.GELU is a class of modules: give an instance, or a function"),
        (["nn.GELU()", "--sample", "f"], "belongs to"),
    ],
)
def test_wrong_usage(ops, arguments, said):
    done = ops(*arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_an_operator_without_a_kernel_has_its_composite():
    assert table("aten::linear")["CPU"].kind == "math kernel"
    assert table("aten::mm")["CPU"].file.startswith("aten/src/ATen/RegisterCPU")
