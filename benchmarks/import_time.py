"""What `import torch_vnpu` adds to `import torch`, in milliseconds: the median over fresh interpreters.

Timed in interpreters that have imported torch already: the difference of two imports of some seconds each would be lost in
what these differ by from one time to the next.

python benchmarks/import_time.py [--rounds N]
"""

import argparse
import os
import subprocess
import sys
from statistics import quantiles

SNIPPET = (
    "import torch, time; start = time.perf_counter(); import torch_vnpu; print((time.perf_counter() - start) * 1e3)"
)


def milliseconds() -> float:
    """Time of one import in a fresh interpreter, whose torch loads no backend by itself."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", SNIPPET], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="fresh interpreters (15, at least 2)")
    rounds = max(2, parser.parse_args().rounds)
    milliseconds()  # compiled files and the file cache
    low, middle, high = quantiles((milliseconds() for _ in range(rounds)), n=4)
    print(
        f"import torch_vnpu after import torch: {middle:.0f} ms (quartiles {low:.0f} to {high:.0f}, {rounds} interpreters)"
    )


if __name__ == "__main__":
    main()
