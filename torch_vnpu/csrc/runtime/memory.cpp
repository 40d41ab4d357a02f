// Device memory (host memory charged to a device's capacity) and pinned host memory.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "../events.h"
#include "state.h"

namespace vnpu {
namespace {

constexpr size_t kAlignment = 64;

struct Counters {
  std::atomic<int64_t> current{0}, peak{0}, allocated{0}, freed{0};
  std::atomic<int64_t> blocks{0}, blocks_peak{0}, blocks_allocated{0}, blocks_freed{0};
  std::atomic<int64_t> out_of_memory{0};
};
Counters counters[VNPU_MAX_DEVICES];

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::mutex host_mutex;
// Leaked: pinned tensors may outlive static destruction.
std::map<const char*, size_t>& host_ranges() {
  static auto* ranges = new std::map<const char*, size_t>;
  return *ranges;
}

vnpuError_t check(int device) {
  if (auto error = usable()) return error;
  return valid_device(device) ? VNPU_SUCCESS : VNPU_ERROR_INVALID_DEVICE;
}

}  // namespace
}  // namespace vnpu

using namespace vnpu;

extern "C" {

vnpuError_t vnpuMemCharge(const void* pointer, size_t bytes, int device) {
  if (auto error = check(device)) return error;
  if (!bytes) return VNPU_SUCCESS;
  auto& c = counters[device];
  const auto size = static_cast<int64_t>(bytes);
  const int64_t now = c.current.fetch_add(size, std::memory_order_relaxed) + size;
  if (__builtin_expect(static_cast<size_t>(now) > fixed_settings().capacity, 0)) {
    c.current.fetch_sub(size, std::memory_order_relaxed);
    c.out_of_memory.fetch_add(1, std::memory_order_relaxed);
    return VNPU_ERROR_OUT_OF_MEMORY;
  }
  raise_to(c.peak, now);
  c.allocated.fetch_add(size, std::memory_order_relaxed);
  raise_to(c.blocks_peak, c.blocks.fetch_add(1, std::memory_order_relaxed) + 1);
  c.blocks_allocated.fetch_add(1, std::memory_order_relaxed);
  if (__builtin_expect(events::listening(events::Kind::Alloc), 0))
    events::dispatch({.kind = events::Kind::Alloc, .device = device,
                      .stream = vnpuStreamId(vnpuGetCurrentStream(device)), .pointer = pointer, .bytes = bytes});
  return VNPU_SUCCESS;
}

void vnpuMemDischarge(const void* pointer, size_t bytes, int device) {
  if (!bytes || device < 0 || device >= VNPU_MAX_DEVICES) return;
  auto& c = counters[device];
  const auto size = static_cast<int64_t>(bytes);
  c.current.fetch_sub(size, std::memory_order_relaxed);
  c.freed.fetch_add(size, std::memory_order_relaxed);
  c.blocks.fetch_sub(1, std::memory_order_relaxed);
  c.blocks_freed.fetch_add(1, std::memory_order_relaxed);
  events::emit({.kind = events::Kind::Free, .device = device, .pointer = pointer, .bytes = bytes});
}

vnpuError_t vnpuMalloc(void** pointer, size_t bytes, int device) {
  if (!pointer) return VNPU_ERROR_INVALID_VALUE;
  *pointer = nullptr;
  if (auto error = check(device)) return error;
  if (!bytes) return VNPU_SUCCESS;
  if (bytes > fixed_settings().capacity) {
    counters[device].out_of_memory.fetch_add(1, std::memory_order_relaxed);
    return VNPU_ERROR_OUT_OF_MEMORY;
  }
  return posix_memalign(pointer, kAlignment, bytes) ? VNPU_ERROR_OUT_OF_MEMORY : VNPU_SUCCESS;
}

void vnpuFree(void* pointer) { std::free(pointer); }

vnpuError_t vnpuMemGetInfo(size_t* free, size_t* total, int device) {
  if (!free || !total) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  *total = fixed_settings().capacity;
  // A charge that is being refused on another thread may stand above the capacity for a moment.
  *free = *total - std::min(*total, static_cast<size_t>(counters[device].current.load(std::memory_order_relaxed)));
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemGetStats(vnpuMemoryStats* stats, int device) {
  if (!stats) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  const auto& c = counters[device];
  *stats = {c.current, c.peak, c.allocated, c.freed, c.blocks, c.blocks_peak, c.blocks_allocated, c.blocks_freed,
            c.out_of_memory};
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemResetPeak(int device) {
  if (auto error = check(device)) return error;
  auto& c = counters[device];
  c.peak = c.current.load();
  c.blocks_peak = c.blocks.load();
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemResetAccumulated(int device) {
  if (auto error = check(device)) return error;
  auto& c = counters[device];
  c.allocated = c.freed = c.blocks_allocated = c.blocks_freed = c.out_of_memory = 0;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostAlloc(void** pointer, size_t bytes) {
  if (!pointer) return VNPU_ERROR_INVALID_VALUE;
  *pointer = nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes ? bytes : 1)) return VNPU_ERROR_OUT_OF_MEMORY;
  std::lock_guard<std::mutex> lock(host_mutex);
  host_ranges()[static_cast<const char*>(memory)] = bytes ? bytes : 1;
  *pointer = memory;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostFree(void* pointer) {
  if (!pointer) return VNPU_SUCCESS;
  {
    std::lock_guard<std::mutex> lock(host_mutex);
    if (!host_ranges().erase(static_cast<const char*>(pointer))) return VNPU_ERROR_INVALID_HANDLE;
  }
  std::free(pointer);
  return VNPU_SUCCESS;
}

int vnpuHostIsPinned(const void* pointer) {
  const auto* address = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> lock(host_mutex);
  auto next = host_ranges().upper_bound(address);
  if (next == host_ranges().begin()) return 0;
  --next;
  return address < next->first + next->second;
}

}  // extern "C"
