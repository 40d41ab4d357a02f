"""Error codes `ERR<submodule:2><code:3>`, appended to messages; TORCH_NPU_COMPACT_ERROR_OUTPUT=1 leaves them out.

The code is a second line of the message, `[ERROR] ERR03007 GRAPH feature not supported`.
"""

import os
from enum import IntEnum

__all__ = ["ErrCode", "Submodule", "dist_error", "error_text", "graph_error", "ops_error", "pta_error"]


class Submodule(IntEnum):
    """The part of the backend that an error comes from."""

    PTA = 0
    OPS = 1
    DIST = 2
    GRAPH = 3
    PROF = 4
    UNKNOWN = 99


class ErrCode(IntEnum):
    """What kind of error it is."""

    SUC = 0
    PARAM = 1
    TYPE = 2
    VALUE = 3
    PTR = 4
    INTERNAL = 5
    MEMORY = 6
    NOT_SUPPORT = 7
    NOT_FOUND = 8
    UNAVAIL = 9
    SYSCALL = 10
    TIMEOUT = 11
    PERMISSION = 12


_WORDS = {
    ErrCode.SUC: "success",
    ErrCode.PARAM: "invalid parameter",
    ErrCode.TYPE: "invalid type",
    ErrCode.VALUE: "invalid value",
    ErrCode.PTR: "invalid pointer",
    ErrCode.INTERNAL: "internal error",
    ErrCode.MEMORY: "memory error",
    ErrCode.NOT_SUPPORT: "feature not supported",
    ErrCode.NOT_FOUND: "resource not found",
    ErrCode.UNAVAIL: "resource unavailable",
    ErrCode.SYSCALL: "system call failed",
    ErrCode.TIMEOUT: "timeout",
    ErrCode.PERMISSION: "permission denied",
}


def error_text(submodule: Submodule, code: ErrCode) -> str:
    """What is appended to a message; empty where TORCH_NPU_COMPACT_ERROR_OUTPUT is 1, which is read at each call."""
    if os.environ.get("TORCH_NPU_COMPACT_ERROR_OUTPUT", "").strip() == "1":
        return ""
    return f"\n[ERROR] ERR{submodule:02d}{code:03d} {submodule.name} {_WORDS[code]}"


def pta_error(code: ErrCode) -> str:
    """`error_text` for the core."""
    return error_text(Submodule.PTA, code)


def ops_error(code: ErrCode) -> str:
    """`error_text` for operators."""
    return error_text(Submodule.OPS, code)


def dist_error(code: ErrCode) -> str:
    """`error_text` for distributed."""
    return error_text(Submodule.DIST, code)


def graph_error(code: ErrCode) -> str:
    """`error_text` for compilation."""
    return error_text(Submodule.GRAPH, code)
