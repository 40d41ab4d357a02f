"""What is no part of the backend itself: helpers for programs that were written for other devices."""

from torch_vnpu.contrib._transfer import cuda_on_npu

__all__ = ["cuda_on_npu"]
