"""Writing files whole: a reader sees the old content or the new one, never a part, even if the writer dies.

The content goes to a temporary file beside the target, which then takes the target's name.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from unpatch.errors import UnpatchError


class WriteError(UnpatchError):
    """A file could not be written; what stood there before is untouched."""


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write `content` (text as UTF-8, line ends as they are) to `path`, making its folders, and return `path`.

    Raises WriteError where the system refuses; no temporary file is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Not tempfile: its files are private to the user, these get the permissions any new file would.
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else a power failure could leave the new name with no content
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise WriteError(f"Cannot write {path}: {reason}. Choose another place, or free this one.") from error
    return path
