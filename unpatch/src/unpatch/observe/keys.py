"""The calling thread's included and excluded dispatch keys, by value.

Two dispatch key sets can print alike and compare equal although they differ, so their raw representation is recorded.
"""

from __future__ import annotations


def hex_keys(raw: tuple[int, int]) -> tuple[str, str]:
    """The (included, excluded) raw representations in hex."""
    return hex(raw[0]), hex(raw[1])


def raw_keys() -> tuple[int, int]:
    """The raw representations of the calling thread's included and excluded dispatch keys."""
    import torch

    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    return included.raw_repr(), excluded.raw_repr()


def current_keys() -> tuple[str, str]:
    """The calling thread's (included, excluded) dispatch keys: raw representations in hex; empty without torch."""
    try:
        return hex_keys(raw_keys())
    except ImportError:
        return "", ""
