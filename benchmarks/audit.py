"""What an audit finds and what it costs: precision and recall, and time against the bare activation.

    python benchmarks/audit.py
    UNPATCH_AUDIT_EXTRAS=build/audit-extras python benchmarks/audit.py pyro torch_geometric

On the synthetic catalogue and on what is installed of requirements-audit.txt, with its version; what is known of them is in
unpatch/tests/support. A row counts as found where its target, its class and, in the catalogue, whether its line is known are
right. Rows of the classes patch and addition that are not expected count against precision. Time: one run each of the bare
activation, of an audit with an empty cache and of a second one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unpatch" / "tests" / "support"))

from audit_catalogue import CASES, found, is_right, surplus, write
from audit_truth import PACKAGES, Package, rows

from unpatch.audit.records import SHOWN, Activation
from unpatch.audit.run import audit


def catalogue(folder: Path) -> None:
    """Precision and recall on the synthetic catalogue."""
    write(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(folder))
    result = audit(Activation("patcher"), cache=False)
    right = [case for case in CASES if [is_right(case, one) for one in found(case, result)] == [True]]
    shown = len(result.of(*SHOWN))
    precision = (shown - len(surplus(result))) / shown if shown else 1.0
    print(f"catalogue: {len(CASES)} kinds of write, {len(right)} found and classified right")
    print(f"  recall {len(right) / len(CASES):.2f}, precision {precision:.2f} ({shown} rows)")


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
    if result.error:
        sys.exit(f"{package.activation.target} failed:\n{result.error}")
    shown, expected = rows(result, "patch", "addition"), package.patches | package.additions
    both = len(shown & expected)
    precision = both / len(shown) if shown else 1.0
    recall = both / len(expected) if expected else 1.0
    on = f" (on {', '.join(package.on)})" if package.on else ""
    print(
        f"{name} {_version(name)}{on}: {len(expected)} expected, {len(shown)} found, precision {precision:.2f}, "
        f"recall {recall:.2f}; "
        f"bare {bare:.1f} s, audit {cold:.1f} s, cached {warm:.1f} s = {(warm - 3) / bare:.1f} × bare + 3 s",
        flush=True,
    )


def _version(package: str) -> str:
    """The version of the distribution that a package is of."""
    distributions = importlib.metadata.packages_distributions().get(package, ())
    return ", ".join(sorted({importlib.metadata.version(name) for name in distributions})) or "of no distribution"


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
