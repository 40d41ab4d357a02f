// Device memory (host memory charged to a device's capacity) and pinned host memory.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "state.h"

namespace vnpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr unsigned kHostRegisterFlags = 0x3;  // portable, mapped: both hold for all host memory here

struct Counters {
  std::atomic<int64_t> current{0}, peak{0}, allocated{0}, freed{0};
  std::atomic<int64_t> blocks{0}, blocks_peak{0}, blocks_allocated{0}, blocks_freed{0};

  vnpuMemoryStats read() const {
    return {current, peak, allocated, freed, blocks, blocks_peak, blocks_allocated, blocks_freed};
  }
  void add(int64_t size, int64_t now);
  void remove(int64_t size);
  void reset_peak() {
    peak = current.load();
    blocks_peak = blocks.load();
  }
  void reset_accumulated() { allocated = freed = blocks_allocated = blocks_freed = 0; }
};
Counters host_counters;
std::atomic<int64_t> in_use[VNPU_MAX_DEVICES];  // bytes of each device

struct DeviceBlock {
  size_t bytes;
  int device;
};
std::mutex device_mutex;
// Leaked: tensors may outlive static destruction.
std::map<const char*, DeviceBlock>& device_blocks() {
  static auto* blocks = new std::map<const char*, DeviceBlock>;
  return *blocks;
}
// What this process leaves unused of each device's capacity, in bytes: zero, which needs no initialisation, unless limited.
std::atomic<size_t> withheld[VNPU_MAX_DEVICES];

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// The bytes `now` in use, `size` of them new, are in `current` already: it is what decides whether they fit.
void Counters::add(int64_t size, int64_t now) {
  raise_to(peak, now);
  allocated.fetch_add(size, std::memory_order_relaxed);
  raise_to(blocks_peak, blocks.fetch_add(1, std::memory_order_relaxed) + 1);
  blocks_allocated.fetch_add(1, std::memory_order_relaxed);
}

void Counters::remove(int64_t size) {
  current.fetch_sub(size, std::memory_order_relaxed);
  freed.fetch_add(size, std::memory_order_relaxed);
  blocks.fetch_sub(1, std::memory_order_relaxed);
  blocks_freed.fetch_add(1, std::memory_order_relaxed);
}

size_t allowed(int device) {
  return fixed_settings().capacity - withheld[device].load(std::memory_order_relaxed);
}

struct HostRange {
  size_t bytes;
  bool registered;  // the memory is the caller's
};
std::mutex host_mutex;
// Leaked: pinned tensors may outlive static destruction.
std::map<const char*, HostRange>& host_ranges() {
  static auto* ranges = new std::map<const char*, HostRange>;
  return *ranges;
}

// The range that `address` is in, or the end. The mutex is held.
std::map<const char*, HostRange>::iterator range_of(const char* address) {
  auto next = host_ranges().upper_bound(address);
  if (next == host_ranges().begin()) return host_ranges().end();
  --next;
  return address < next->first + next->second.bytes ? next : host_ranges().end();
}

vnpuError_t check(int device) {
  if (auto error = usable()) return error;
  return valid_device(device) ? VNPU_SUCCESS : VNPU_ERROR_INVALID_DEVICE;
}

}  // namespace
}  // namespace vnpu

using namespace vnpu;

extern "C" {

vnpuError_t vnpuMemCharge(size_t bytes, int device) {
  if (auto error = check(device)) return error;
  // Not added first and taken back: a charge that is too large must not stand in the way of another thread's.
  const size_t limit = allowed(device);
  auto used = in_use[device].load(std::memory_order_relaxed);
  do {
    if (static_cast<size_t>(used) > limit || bytes > limit - static_cast<size_t>(used)) return VNPU_ERROR_OUT_OF_MEMORY;
  } while (!in_use[device].compare_exchange_weak(used, used + static_cast<int64_t>(bytes), std::memory_order_relaxed));
  return VNPU_SUCCESS;
}

void vnpuMemDischarge(size_t bytes, int device) {
  if (device >= 0 && device < VNPU_MAX_DEVICES) in_use[device].fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

vnpuError_t vnpuMalloc(void** pointer, size_t bytes, int device) {
  if (!pointer) return VNPU_ERROR_INVALID_VALUE;
  *pointer = nullptr;
  if (auto error = vnpuMemCharge(bytes, device)) return error;
  if (!bytes) return VNPU_SUCCESS;
  if (posix_memalign(pointer, kAlignment, bytes)) {
    *pointer = nullptr;
    vnpuMemDischarge(bytes, device);
    return VNPU_ERROR_OUT_OF_MEMORY;
  }
  std::lock_guard<std::mutex> lock(device_mutex);
  device_blocks()[static_cast<const char*>(*pointer)] = {bytes, device};
  return VNPU_SUCCESS;
}

vnpuError_t vnpuFree(void* pointer) {
  if (!pointer) return VNPU_SUCCESS;
  {
    std::lock_guard<std::mutex> lock(device_mutex);
    const auto found = device_blocks().find(static_cast<const char*>(pointer));
    if (found == device_blocks().end()) return VNPU_ERROR_INVALID_HANDLE;
    vnpuMemDischarge(found->second.bytes, found->second.device);
    device_blocks().erase(found);
  }
  std::free(pointer);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemGetInfo(size_t* free, size_t* total, int device) {
  if (!free || !total) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  *total = fixed_settings().capacity;
  *free = *total - static_cast<size_t>(in_use[device].load(std::memory_order_relaxed));
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemSetFraction(double fraction, int device) {
  if (!(fraction >= 0 && fraction <= 1)) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  const size_t capacity = fixed_settings().capacity;
  // A capacity beyond 2^53 bytes is rounded by the product, and 1 means all of it.
  withheld[device] = capacity - std::min(capacity, static_cast<size_t>(static_cast<double>(capacity) * fraction));
  if (fraction == 1) withheld[device] = 0;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemGetFraction(double* fraction, int device) {
  if (!fraction) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  *fraction = static_cast<double>(allowed(device)) / static_cast<double>(fixed_settings().capacity);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuMemGetAllowed(size_t* bytes, int device) {
  if (!bytes) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = check(device)) return error;
  *bytes = allowed(device);
  return VNPU_SUCCESS;
}

int vnpuMemIsDevice(const void* pointer) {
  const auto* address = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> lock(device_mutex);
  auto next = device_blocks().upper_bound(address);
  return next != device_blocks().begin() && address < std::prev(next)->first + std::prev(next)->second.bytes;
}

vnpuError_t vnpuHostAlloc(void** pointer, size_t bytes) {
  if (!pointer) return VNPU_ERROR_INVALID_VALUE;
  *pointer = nullptr;
  void* memory = nullptr;
  const size_t size = bytes ? bytes : 1;
  if (posix_memalign(&memory, kAlignment, size)) return VNPU_ERROR_OUT_OF_MEMORY;
  {
    std::lock_guard<std::mutex> lock(host_mutex);
    host_ranges()[static_cast<const char*>(memory)] = {size, false};
  }
  const auto added = static_cast<int64_t>(size);
  host_counters.add(added, host_counters.current.fetch_add(added, std::memory_order_relaxed) + added);
  *pointer = memory;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostFree(void* pointer) {
  if (!pointer) return VNPU_SUCCESS;
  {
    std::lock_guard<std::mutex> lock(host_mutex);
    const auto found = host_ranges().find(static_cast<const char*>(pointer));
    if (found == host_ranges().end() || found->second.registered) return VNPU_ERROR_INVALID_HANDLE;
    host_counters.remove(static_cast<int64_t>(found->second.bytes));
    host_ranges().erase(found);
  }
  std::free(pointer);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostRegister(void* pointer, size_t bytes, unsigned flags) {
  const auto first = reinterpret_cast<uintptr_t>(pointer);
  if (!pointer || !bytes || bytes > UINTPTR_MAX - first || (flags & ~kHostRegisterFlags)) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = usable()) return error;
  const auto* address = static_cast<const char*>(pointer);
  std::lock_guard<std::mutex> lock(host_mutex);
  const auto next = host_ranges().lower_bound(address);
  const bool reaches_next = next != host_ranges().end() && next->first < address + bytes;
  if (reaches_next || range_of(address) != host_ranges().end()) return VNPU_ERROR_ALREADY_REGISTERED;
  host_ranges()[address] = {bytes, true};
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostUnregister(void* pointer) {
  if (!pointer) return VNPU_ERROR_INVALID_VALUE;
  if (auto error = usable()) return error;
  std::lock_guard<std::mutex> lock(host_mutex);
  const auto found = host_ranges().find(static_cast<const char*>(pointer));
  if (found == host_ranges().end() || !found->second.registered) return VNPU_ERROR_NOT_REGISTERED;
  host_ranges().erase(found);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuHostGetStats(vnpuMemoryStats* stats) {
  if (!stats) return VNPU_ERROR_INVALID_VALUE;
  *stats = host_counters.read();
  return VNPU_SUCCESS;
}

void vnpuHostResetPeak(void) { host_counters.reset_peak(); }
void vnpuHostResetAccumulated(void) { host_counters.reset_accumulated(); }

int vnpuHostIsPinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(host_mutex);
  return range_of(static_cast<const char*>(pointer)) != host_ranges().end();
}

}  // extern "C"
