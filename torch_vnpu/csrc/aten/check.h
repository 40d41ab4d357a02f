// From the runtime's error codes to PyTorch's exceptions.
#pragma once
#include "../runtime/vnpu_runtime.h"

namespace vnpu {
// Throws c10::Error: what failed, why, and what to do. `bytes` and `device` make the figures of an out-of-memory error.
[[noreturn]] void raise_error(vnpuError_t error, const char* what, int device = -1, size_t bytes = 0);

inline void check(vnpuError_t error, const char* what, int device = -1) {
  if (__builtin_expect(error != VNPU_SUCCESS, 0)) raise_error(error, what, device);
}
}  // namespace vnpu
