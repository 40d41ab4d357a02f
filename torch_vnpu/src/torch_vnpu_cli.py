"""The command `vnpu`.

A module of its own outside the package, as the autoload is: importing the package loads torch, which takes seconds and is not
always needed, and fails where the environment is broken, which is what `vnpu info` is there to tell.
"""

import importlib.util
import sys


def main() -> None:
    """Run the command line. Each command imports what it needs, torch_vnpu itself by `torch_vnpu.cli.package`."""
    if "torch_vnpu" not in sys.modules:
        spec = importlib.util.find_spec("torch_vnpu")
        assert spec is not None  # this file is installed with it
        # Its modules can be imported from there; its own code has not run.
        sys.modules["torch_vnpu"] = importlib.util.module_from_spec(spec)
    from torch_vnpu import cli

    cli.main()


if __name__ == "__main__":
    main()
