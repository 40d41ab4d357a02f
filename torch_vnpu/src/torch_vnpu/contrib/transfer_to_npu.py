"""Importing this module makes a program that was written for CUDA run on npu, from here on in the whole process.

`deactivate()` takes everything back and `activate()` does it again; to have it for a part of a program only, use
`torch_vnpu.contrib.cuda_on_npu()` instead. What is redirected, and what is not, is said in docs/compat.md.
"""

from torch_vnpu.contrib._transfer import activate, deactivate, is_active, manager

__all__ = ["activate", "deactivate", "is_active", "manager"]

activate()
