"""What `import torch_vnpu` adds to `import torch`, in milliseconds: medians of alternating fresh interpreters.

python benchmarks/import_time.py [--rounds N]
"""

import argparse
import os
import subprocess
import sys
from statistics import median

#: The import is timed inside the interpreter, so that its own start does not count.
SNIPPET = "import time; start = time.perf_counter(); import {}; print((time.perf_counter() - start) * 1e3)"


def milliseconds(module: str) -> float:
    """Time of one import of `module` in a fresh interpreter that loads no backend by itself."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SNIPPET.format(module)], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="alternating rounds (9)")
    rounds = parser.parse_args().rounds
    for module in ("torch", "torch_vnpu"):
        milliseconds(module)  # compiled files and the file cache
    pairs = [(milliseconds("torch"), milliseconds("torch_vnpu")) for _ in range(rounds)]
    torch, vnpu = (median(column) for column in zip(*pairs, strict=True))
    added = median(vnpu - torch for torch, vnpu in pairs)
    print(
        f"import torch {torch:.0f} ms, import torch_vnpu {vnpu:.0f} ms: {added:.0f} ms more (median of {rounds} pairs)"
    )


if __name__ == "__main__":
    main()
