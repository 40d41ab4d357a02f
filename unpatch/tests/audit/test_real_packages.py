"""Ground truth: real releases give exactly the rows that are known of them.

`make audit-truth` installs them (requirements-audit.txt) and runs this: minutes, so it is marked `real` and skipped without
`UNPATCH_AUDIT_EXTRAS`, which names the folders that they lie in.
"""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest
from audit_truth import PACKAGES, rows

from unpatch.audit.records import Activation, AuditResult
from unpatch.audit.run import audit

pytestmark = pytest.mark.real

EXTRAS = [folder for folder in os.environ.get("UNPATCH_AUDIT_EXTRAS", "").split(os.pathsep) if folder]
MAIN = "from unpatch.cli import main; main()"


@pytest.fixture(autouse=True)
def extras(monkeypatch):
    for folder in EXTRAS:
        monkeypatch.setenv("PYTHONPATH", folder, prepend=":")
        monkeypatch.syspath_prepend(folder)


def needs(*packages: str) -> None:
    if not EXTRAS:
        pytest.skip("UNPATCH_AUDIT_EXTRAS names no folder of packages: `make audit-truth` installs them and runs this")
    for name in packages:
        if importlib.machinery.PathFinder.find_spec(name, [*EXTRAS, *sys.path]) is None:
            pytest.skip(f"{name} is not installed; requirements-audit.txt says how")


def run(target: str, *calls: str, on: tuple[str, ...] = ()) -> AuditResult:
    result = audit(Activation(target, calls=calls), on=on, timeout=400)
    assert result.error == ""
    return result


def check_sites(result: AuditResult, *classes: str) -> None:
    """Every row is at a line of the package's source, in which what is written can be read."""
    for finding in result.of(*classes):
        assert finding.site is not None, finding.id
        file = next(
            path for folder in (*EXTRAS, *sys.path) if (path := Path(folder or ".", finding.site.file)).is_file()
        )
        assert finding.site.line <= len(file.read_text().splitlines())
        assert finding.package in finding.site.file.replace("/", ".")


@pytest.mark.parametrize("name", PACKAGES)
def test_rows_are_those_that_are_known(name):
    package = PACKAGES[name]
    needs(name, *package.needs)
    result = run(package.activation.target, *package.activation.calls, on=package.on)
    assert rows(result, "patch") == package.patches
    assert rows(result, "addition") == package.additions
    check_sites(result, "patch", "addition")
    if name == "torch_geometric":
        holders = {copy.where for finding in result.of("patch") for copy in finding.stale}
        assert holders >= {"torch_geometric.hash_tensor._old_select", "torch_geometric.hash_tensor._old_index_select"}
    if name == "pyro":
        independent = "torch.distributions.independent.Independent"
        replaced = [one.target for one in result.of("registration") if "replaces an entry" in one.tags]
        assert f"torch.distributions.kl._KL_REGISTRY[({independent}, {independent})]" in replaced


def test_transformers_patches_nothing_at_all():
    needs("transformers")
    assert rows(run("transformers"), "patch") == frozenset()


def test_ddtrace_swaps_code_in_place():
    needs("ddtrace", "bytecode", "envier")
    result = run(
        "ddtrace",
        "importlib.import_module('urllib.request')",
        "ddtrace.appsec._common_module_patches.patch_common_modules()",
    )
    assert "urllib.request.urlopen.__code__" in rows(result, "patch")
    assert {one.site.module for one in result.findings if one.kind == "code" and one.classed == "patch"} == {
        "ddtrace.internal.wrapping"
    }
    check_sites(result, "patch", "addition", "registration")


def test_sentry():
    needs("sentry_sdk")
    result = run("sentry_sdk", "sentry_sdk.init()")
    assert {
        "sys.excepthook",
        "logging.Logger.callHandlers",
        "http.client.HTTPConnection.putrequest",
        "subprocess.Popen.__init__",
        "threading.Thread.start",
    } <= rows(result, "patch")
    check_sites(result, "patch", "addition", "registration")


@pytest.mark.parametrize(
    ("name", "call", "patched"),
    [
        ("requests", "RequestsInstrumentor", "requests.sessions.Session.send"),
        ("urllib3", "URLLib3Instrumentor", "urllib3.connectionpool.HTTPConnectionPool.urlopen"),
    ],
)
def test_opentelemetry(name, call, patched):
    needs("opentelemetry", name, "wrapt")
    module = f"opentelemetry.instrumentation.{name}"
    result = run(module, f"{module}.{call}().instrument()")
    assert rows(result, "patch") == {patched}
    check_sites(result, "patch")


GCN = """
import sys
import torch
import torch_geometric.hash_tensor
from torch_geometric.nn import GCNConv

print(torch.index_select(torch.tensor(5.0), 0, torch.tensor([0])))
print(torch.fx.symbolic_trace(lambda x: torch.select(x, 0, 1) + 1)(torch.ones(2, 3)))
"""
TRAINING = """
import torch
from torch_geometric.nn import GCNConv

torch.manual_seed(0)
layers = [GCNConv(3, 8), GCNConv(8, 2)]
parameters = [p for layer in layers for p in layer.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.01)
x, edges = torch.randn(6, 3), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
for _ in range(3):
    optimizer.zero_grad()
    loss = layers[1](layers[0](x, edges).relu(), edges).log_softmax(1)[:, 0].mean().neg()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), [p.grad.sum().item().hex() for p in parameters])
"""
WITHOUT = ["--without", "torch.select@torch_geometric.hash_tensor,torch.index_select@torch_geometric.hash_tensor"]


def test_without_its_patches_torch_geometric_works_and_torch_too(tmp_path):
    needs("torch_geometric")

    def go(source: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(source)
        command = [sys.executable, "-c", MAIN, "run", *options] if options else [sys.executable]
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        return subprocess.run(
            [*command, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    assert "IndexError" in go(GCN).stderr
    without = go(GCN, *WITHOUT)
    assert (without.returncode, without.stdout) == (0, "tensor(5.)\ntensor([2., 2., 2.])\n"), without.stderr
    assert go(TRAINING).stdout == go(TRAINING, *WITHOUT).stdout != ""
