// Page-locked host memory: here, host memory that is known to be pinned. What is freed is kept and handed out again, as a real
// device's driver takes long to pin.
#pragma once
#include <c10/core/Allocator.h>

#include <cstdint>

#include "../runtime/vnpu_runtime.h"

namespace vnpu {

struct PinnedStats {
  vnpuMemoryStats held;    // what the runtime has given, whether it is in use or kept
  vnpuMemoryStats in_use;  // what tensors have
};

c10::Allocator* pinned_allocator();
void empty_pinned_cache();
PinnedStats pinned_stats();
void reset_peak_pinned();
void reset_accumulated_pinned();

}  // namespace vnpu
