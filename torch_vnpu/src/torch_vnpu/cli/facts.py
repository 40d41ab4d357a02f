"""What `vnpu info` tells, as plain data. Each section is found out by itself: one that cannot be says why, the others stand."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

#: By section; values are what JSON has.
Facts = dict[str, Any]

_LIBRARIES = ("torch_vnpu", "unpatch", "torch", "numpy", "accelerate", "transformers", "peft")


def collect(failure: Exception | None = None) -> Facts:
    """All sections. Starts the runtime, which tells the memory.

    Args:
        failure: why torch_vnpu could not be imported, where that is so.
    """
    facts: Facts = {"torch_vnpu": {"loaded": failure is None}}
    if failure is not None:
        facts["torch_vnpu"]["error"] = _told(failure)
    facts["versions"] = _section(_versions)
    facts["environment"] = _section(_environment)
    loaded: dict[str, Callable[[], Any]] = {"devices": _devices, "features": _features, "patches": _patches}
    for title, find in loaded.items():
        facts[title] = _section(find) if failure is None else {"error": "torch_vnpu is not loaded"}
    return facts


def _section(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except Exception as error:
        return {"error": _told(error)}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    torch = sys.modules.get("torch")
    if torch is not None:  # the metadata leave out how it was built
        found["torch"] = torch.__version__
    return found


def _environment() -> dict[str, str | None]:
    from torch_vnpu._init.variables import VARIABLES

    return {name: os.environ.get(name) for name in VARIABLES}


def _devices() -> list[dict[str, Any]]:
    from torch_vnpu import npu

    devices = []
    for index in range(npu.device_count()):
        free, total = npu.mem_get_info(index)
        devices.append(
            {"device": f"npu:{index}", "name": npu.get_device_name(index), "free bytes": free, "total bytes": total}
        )
    return devices


def _features() -> dict[str, Any]:
    from torch_vnpu import compat
    from torch_vnpu._init import features
    from torch_vnpu._init.registry import cann
    from torch_vnpu.contrib import _transfer

    blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING") == "1" or os.environ.get("TASK_QUEUE_ENABLE") == "0"
    sanitizer = sys.modules.get("torch_vnpu.sanitizer")
    return {
        **cann.describe(),
        "task queue": not blocking,
        "interactive session": features.is_interactive(),
        "sanitizer": sanitizer is not None and sanitizer.is_enabled(),
        "transfer_to_npu": _transfer.is_active(),
        "torch_npu is torch_vnpu": compat.is_installed(),
    }


def _patches() -> list[dict[str, Any]]:
    from torch_vnpu._init import patches
    from torch_vnpu.contrib import _transfer

    return [
        {
            "patch": f"{manager.name}/{patch.id}",
            "group": patch.group,
            "state": manager.state(patch).value,
            "writes": len(patch.targets),
        }
        for manager in (patches.manager, _transfer.manager)
        for patch in manager.patches
    ]
