"""A process that checks operators, one after the other: see `workers`."""

import json
import os
import sys

import torch

import torch_vnpu  # noqa: F401
from opinfo.check import check


def main() -> None:
    """Answers each line of standard input."""
    # What operators print themselves must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    answers.write("ready\n")
    for line in sys.stdin:
        op, dtype, samples = json.loads(line)
        answers.write(json.dumps(check(op, getattr(torch, dtype), samples)._asdict()) + "\n")


if __name__ == "__main__":
    main()
