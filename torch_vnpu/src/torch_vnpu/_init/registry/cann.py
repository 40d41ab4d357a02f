"""The environment check for a CANN installation, whose variables programs for Ascend devices set.

Where ASCEND_HOME_PATH is not set, there is nothing to check and the virtual runtime is used. Where it is set, a program
expects an installation that is whole, and is told at import what is not; the virtual runtime is used all the same.
"""

import os
import re
import warnings
from pathlib import Path

from torch_vnpu.errors import ErrCode, pta_error

#: The major version of CANN whose names and environment variables this backend follows.
FOLLOWS = "8"
_FOLDERS = ("runtime", "compiler")


def check_environment() -> None:
    """Check the installation that ASCEND_HOME_PATH names, if it names one.

    Raises:
        RuntimeError: it, its operators (ASCEND_OPP_PATH), its runtime or its compiler are missing.
    """
    home = os.environ.get("ASCEND_HOME_PATH")
    if home is None:
        return
    _require_folder("ASCEND_HOME_PATH", home)
    operators = os.environ.get("ASCEND_OPP_PATH")
    if operators is None:
        raise _incomplete(
            f"ASCEND_OPP_PATH is not set, although ASCEND_HOME_PATH is '{home}': it names the folder of CANN's operators"
        )
    _require_folder("ASCEND_OPP_PATH", operators)
    for folder in _FOLDERS:
        if not Path(home, folder).is_dir():
            raise _incomplete(
                f"ASCEND_HOME_PATH is '{home}', where the folder '{folder}' is missing: {Path(home, folder)}"
            )
    version = cann_version(home)
    if version is not None and version.split(".")[0] != FOLLOWS:
        warnings.warn(
            f"torch_vnpu follows CANN {FOLLOWS}, but ASCEND_HOME_PATH is '{home}' with CANN {version}: "
            "variables that differ between the versions may have another effect",
            RuntimeWarning,
            stacklevel=2,
        )


def cann_version(home: str) -> str | None:
    """What `version.info` of the runtime says, such as `8.0.RC3`; None where there is none."""
    try:
        text = Path(home, "runtime", "version.info").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^\s*version\s*=\s*(\S+)", text, re.IGNORECASE | re.MULTILINE)
    return found.group(1) if found else None


def describe() -> dict[str, str | None]:
    """For bug reports: the runtime in use, and the CANN installation that the environment names."""
    home = os.environ.get("ASCEND_HOME_PATH")
    return {"runtime": "virtual", "ASCEND_HOME_PATH": home, "cann": cann_version(home) if home else None}


def _require_folder(variable: str, path: str) -> None:
    if not Path(path).is_dir():
        raise _incomplete(f"{variable} is '{path}', which is no folder")


def _incomplete(what: str) -> RuntimeError:
    return RuntimeError(
        f"{what}. Install CANN and source its set_env.sh, or unset ASCEND_HOME_PATH to use the virtual runtime alone"
        + pta_error(ErrCode.NOT_FOUND)
    )
