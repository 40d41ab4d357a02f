"""The command `vnpu`.

A module of its own outside the package, as the autoload is: the package cannot be imported where the environment is broken,
which is what `vnpu info` is there to tell.
"""

import importlib.util
import sys


def main() -> None:
    """Run the command line, with the reason why torch_vnpu cannot be imported where that is so."""
    failure: Exception | None = None
    try:
        import torch_vnpu  # noqa: F401
    except Exception as error:
        failure = error
        _make_importable_without_its_stages()
    from torch_vnpu import cli

    cli.main(failure=failure)


def _make_importable_without_its_stages() -> None:
    spec = importlib.util.find_spec("torch_vnpu")
    assert spec is not None  # this file is installed with it
    sys.modules["torch_vnpu"] = importlib.util.module_from_spec(spec)


if __name__ == "__main__":
    main()
