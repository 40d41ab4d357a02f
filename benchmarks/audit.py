"""What an audit finds and what it costs: precision and recall, and time against the bare activation.

    python benchmarks/audit.py
    UNPATCH_AUDIT_EXTRAS=build/audit-extras python benchmarks/audit.py pyro torch_geometric

On the synthetic catalogue and on what is installed of requirements-audit.txt. A row counts as found where its target, its
class and, in the catalogue, whether its line is known are right. Rows of the classes patch and addition that are not expected
count against precision. Time: one run each of the bare activation, of an audit with an empty cache and of a second one.
"""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unpatch" / "tests" / "support"))

from audit_catalogue import CASES, sources

from unpatch.audit.records import SHOWN, Activation, AuditResult
from unpatch.audit.run import audit

_DISTRIBUTIONS = "torch.distributions"
_LLAMA = "transformers.models.llama.modeling_llama"


class Package(NamedTuple):
    """A real package with what is known of it: its patches and additions, as far as `on` reaches."""

    activation: Activation
    expected: frozenset[str]
    on: tuple[str, ...] = ()


PACKAGES = {
    "pytorch_lightning": Package(Activation("pytorch_lightning"), frozenset({"torch.compile"}), ("torch",)),
    "torch_geometric": Package(
        Activation("torch_geometric"), frozenset({"torch.select", "torch.index_select"}), ("torch",)
    ),
    "pyro": Package(
        Activation("pyro"),
        frozenset(
            {
                f"{_DISTRIBUTIONS}.constraints._CorrCholesky.check",
                f"{_DISTRIBUTIONS}.half_cauchy.HalfCauchy.log_prob",
                f"{_DISTRIBUTIONS}.transforms.Transform.__getstate__",
                f"{_DISTRIBUTIONS}.transforms.Transform.clear_cache",
                f"{_DISTRIBUTIONS}.transformed_distribution.TransformedDistribution.clear_cache",
            }
        ),
    ),
    "accelerate": Package(Activation("accelerate"), frozenset()),
    "transformers": Package(Activation("transformers"), frozenset(), ("torch",)),
    "fvcore": Package(Activation("fvcore.nn"), frozenset()),
    "liger_kernel": Package(
        Activation("liger_kernel.transformers", calls=("liger_kernel.transformers.apply_liger_kernel_to_llama()",)),
        frozenset(
            f"{_LLAMA}.{name}"
            for name in ("LlamaForCausalLM.forward", "LlamaMLP", "LlamaRMSNorm", "apply_rotary_pos_emb")
        ),
    ),
}


def catalogue(folder: Path) -> None:
    """Precision and recall on the synthetic catalogue."""
    for name, source in sources().items():
        package, _, module = name.partition("__")
        (folder / package).mkdir(exist_ok=True)
        (folder / package / f"{module or '__init__'}.py").write_text(textwrap.dedent(source))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(folder))
    result = audit(Activation("patcher"), cache=False)
    found = {name: one for one in result.findings for name in (one.target, *one.aliases)}
    right = [
        case
        for case in CASES
        if case.target in found
        and (found[case.target].classed, found[case.target].kind) == (case.classed, case.kind)
        and (found[case.target].site is not None) == case.traced
    ]
    shown = [one for one in result.findings if one.classed in SHOWN]
    expected = {case.target for case in CASES} | {"target.other_name"}
    true = [one for one in shown if one.target in expected]
    print(f"catalogue: {len(CASES)} kinds of write, {len(right)} found and classified right")
    print(f"  recall {len(right) / len(CASES):.2f}, precision {len(true) / len(shown):.2f} ({len(shown)} rows)")


def real(name: str, package: Package) -> None:
    """Precision, recall and time on a real package."""
    bare = _seconds(package.activation)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        started = time.perf_counter()
        audit(package.activation, on=package.on, timeout=600)
        cold = time.perf_counter() - started
        started = time.perf_counter()
        result = audit(package.activation, on=package.on, timeout=600)
        warm = time.perf_counter() - started
    found = _rows(result)
    both = len(found & package.expected)
    precision = both / len(found) if found else 1.0
    recall = both / len(package.expected) if package.expected else 1.0
    print(
        f"{name}: {len(package.expected)} expected, {len(found)} found, precision {precision:.2f}, recall {recall:.2f}; "
        f"bare {bare:.1f} s, audit {cold:.1f} s, cached {warm:.1f} s = {(warm - 3) / bare:.1f} × bare + 3 s",
        flush=True,
    )


def _rows(result: AuditResult) -> set[str]:
    if result.error:
        sys.exit(f"{result.activation.target} failed:\n{result.error}")
    return {name for one in result.of("patch", "addition") for name in (one.target, *one.aliases)}


def _seconds(activation: Activation) -> float:
    code = f"import {activation.target}\n" + "\n".join(activation.calls)
    started = time.perf_counter()
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    extras = [folder for folder in os.environ.get("UNPATCH_AUDIT_EXTRAS", "").split(os.pathsep) if folder]
    sys.path[:0] = extras
    os.environ["PYTHONPATH"] = os.pathsep.join([*extras, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        catalogue(Path(folder))
    for name in sys.argv[1:] or PACKAGES:
        if importlib.machinery.PathFinder.find_spec(name, sys.path) is None:
            print(f"{name}: not installed")
        else:
            real(name, PACKAGES[name])


if __name__ == "__main__":
    main()
