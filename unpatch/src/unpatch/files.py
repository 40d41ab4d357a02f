"""Writing files whole: a reader sees the old content or the new one, never a part, even if the writer dies.

The content goes to a temporary file beside the target, which then takes the target's name. A link is followed, and a device or
a pipe, which no file may take the place of, is written as it is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unpatch.errors import UnpatchError


class WriteError(UnpatchError):
    """A file could not be written; what stood there before is untouched."""


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write `content` (text as UTF-8, line ends as they are) to `path`, making its folders, and return `path`.

    Raises WriteError where the system refuses; no temporary file is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        with written_whole(path) as file:
            file.write(data)
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(f"Cannot write {path}: {reason}. Choose another place, or free this one.") from error
    return path


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write piece by piece, which takes the name `path` when the context ends.

    An exception leaves there what was there before. Its folders are made. Raises OSError where the system refuses.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not (path.is_file() or path.is_dir()):
        with open(path, "wb") as file:
            yield file
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    process = os.getpid()
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        # Not tempfile: its files are private to the user, these get the permissions any new file would.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power failure could leave the new name with no content
        os.replace(temporary, path)
    finally:
        if os.getpid() == process:  # a forked child that ends within the context leaves the file to its parent
            temporary.unlink(missing_ok=True)
