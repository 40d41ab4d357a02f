"""Files that are written piece by piece and yet whole; for what fits in memory there is `unpatch.files.write_whole`."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the name `path` when the context ends; an exception leaves there what was there before.

    Its folders are made. A device or a pipe is written as it is. Raises OSError where the system refuses.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    process = os.getpid()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, path)
    finally:
        if os.getpid() == process:  # a forked child that ends within the context leaves the file to its parent
            temporary.unlink(missing_ok=True)
