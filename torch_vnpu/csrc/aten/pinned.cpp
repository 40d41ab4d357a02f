#include "pinned.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../events.h"
#include "check.h"

namespace vnpu {
namespace {

// Blocks are powers of two, as those of PyTorch's own pinned memory. A copy that is queued holds its host tensor, so what comes
// back here is used by nothing any more.
struct Cache {
  std::mutex mutex;
  std::unordered_map<size_t, std::vector<void*>> free;
  std::unordered_map<void*, size_t> used;  // and its size
  vnpuMemoryStats in_use{};
};
// Leaked: tensors may outlive static destruction.
Cache& cache() {
  static auto* made = new Cache;
  return *made;
}

void count(vnpuMemoryStats& stats, int64_t bytes) {
  stats.current += bytes;
  stats.blocks += bytes > 0 ? 1 : -1;
  (bytes > 0 ? stats.allocated : stats.freed) += std::abs(bytes);
  ++(bytes > 0 ? stats.blocks_allocated : stats.blocks_freed);
  stats.peak = std::max(stats.peak, stats.current);
  stats.blocks_peak = std::max(stats.blocks_peak, stats.blocks);
}

void* allocate(size_t bytes) {
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 1));
  auto& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  void* pointer = nullptr;
  if (auto& kept = all.free[size]; !kept.empty()) {
    pointer = kept.back();
    kept.pop_back();
  } else {
    auto error = vnpuHostAlloc(&pointer, size);
    if (error == VNPU_ERROR_OUT_OF_MEMORY) {
      for (auto& [other, blocks] : all.free) {
        for (auto* block : blocks) vnpuHostFree(block);
        blocks.clear();
      }
      error = vnpuHostAlloc(&pointer, size);
    }
    if (error) raise_error(error, "allocate pinned host memory", -1, bytes);
  }
  all.used[pointer] = size;
  count(all.in_use, static_cast<int64_t>(size));
  return pointer;
}

void release(void* pointer) {
  auto& all = cache();
  std::unique_lock<std::mutex> lock(all.mutex);
  const auto found = all.used.find(pointer);
  count(all.in_use, -static_cast<int64_t>(found->second));
  const auto size = found->second;
  all.used.erase(found);
  lock.unlock();
  // Told before another can have it.
  events::emit({.kind = events::Kind::Free, .pointer = pointer, .bytes = size});
  lock.lock();
  all.free[size].push_back(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* pointer = vnpu::allocate(bytes);
    return {pointer, pointer, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
PinnedAllocator pinned;

}  // namespace

c10::Allocator* pinned_allocator() { return &pinned; }

void empty_pinned_cache() {
  auto& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (auto& [size, blocks] : all.free)
    for (auto* block : blocks) vnpuHostFree(block);
  all.free.clear();
}

PinnedStats pinned_stats() {
  auto& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  PinnedStats stats{{}, all.in_use};
  check(vnpuHostGetStats(&stats.held), "read memory statistics");
  return stats;
}

void reset_peak_pinned() {
  auto& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.in_use.peak = all.in_use.current;
  all.in_use.blocks_peak = all.in_use.blocks;
  vnpuHostResetPeak();
}

void reset_accumulated_pinned() {
  auto& all = cache();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.in_use.allocated = all.in_use.freed = all.in_use.blocks_allocated = all.in_use.blocks_freed = 0;
  vnpuHostResetAccumulated();
}

}  // namespace vnpu
