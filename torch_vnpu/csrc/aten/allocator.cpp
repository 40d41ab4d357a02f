#include "allocator.h"

#include <ATen/StorageUtils.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "check.h"

namespace vnpu {
namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::StorageImpl;
using c10::CachingDeviceAllocator::DeviceStats;
using StoragePtr = c10::intrusive_ptr<StorageImpl>;

// Bytes that count against a device's capacity from the constructor to the destructor.
class Charge {
 public:
  Charge(void* pointer, size_t bytes, DeviceIndex device) : pointer_(pointer), bytes_(bytes), device_(device) {
    if (auto error = vnpuMemCharge(pointer, bytes, device)) raise_error(error, "allocate memory", device, bytes);
    report(static_cast<int64_t>(bytes));
  }
  ~Charge() {
    vnpuMemDischarge(pointer_, bytes_, device_);
    report(-static_cast<int64_t>(bytes_));
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  void* pointer() const { return pointer_; }

 private:
  void report(int64_t change) const {
    if (C10_LIKELY(!c10::memoryProfilingEnabled() || !change)) return;
    vnpuMemoryStats stats{};
    vnpuMemGetStats(&stats, device_);
    c10::reportMemoryUsageToProfiler(pointer_, change, static_cast<size_t>(stats.current),
                                     static_cast<size_t>(stats.current), c10::Device(kNpu, device_));
  }
  void* pointer_;
  size_t bytes_;
  DeviceIndex device_;
};

void delete_memory(void* context) {
  auto* charge = static_cast<Charge*>(context);
  void* pointer = charge->pointer();
  delete charge;
  vnpuFree(pointer);
}

// The allocator of the CPU storages behind the memory of one device. A CPU kernel that grows such a storage takes the memory
// from the device, so that it fails before it has changed anything, as on a device whose memory is its own.
struct DeviceMemory final : c10::Allocator {
  DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (auto error = vnpuMalloc(&pointer, bytes, device)) raise_error(error, "allocate memory", device, bytes);
    std::unique_ptr<void, decltype(&vnpuFree)> memory(pointer, &vnpuFree);
    auto* charge = charged(pointer, bytes);
    return {memory.release(), charge, &delete_memory, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  DeviceIndex device = 0;

 private:
  // What is freed on the host is given back when the queues have done with it: before memory lacks, they are worked off.
  Charge* charged(void* pointer, size_t bytes) const {
    size_t allowed = 0, available = 0;
    if (!vnpuMemGetAllowed(&allowed, &available, device) && bytes > available && vnpuQueueEnabled())
      check(vnpuDeviceSynchronize(device), "allocate memory", device);
    return new Charge(pointer, bytes, device);
  }
};

DeviceMemory* memory_of(DeviceIndex device) {
  static auto* all = [] {  // leaked: tensors may outlive static destruction
    auto* made = new DeviceMemory[VNPU_MAX_DEVICES];
    for (DeviceIndex index = 0; index < VNPU_MAX_DEVICES; ++index) made[index].device = index;
    return made;
  }();
  return &all[device];
}

// What an npu storage's data pointer owns: the CPU storage with the bytes and, where a CPU kernel brought them, their charge.
struct Block {
  StoragePtr cpu;
  std::optional<Charge> charge;
  bool shared = false;  // the bytes lie in memory that other processes may map
};

void delete_block(void* context) { delete static_cast<Block*>(context); }

DataPtr adopt(StoragePtr cpu, DeviceIndex device) {
  void* pointer = cpu->mutable_data();
  std::unique_ptr<Block> block(new Block{std::move(cpu), std::nullopt, false});
  if (block->cpu->data_ptr().get_deleter() != &delete_memory) {
    block->charge.emplace(pointer, block->cpu->nbytes(), device);
    block->cpu->set_allocator(memory_of(device));
  }
  return {pointer, block.release(), &delete_block, c10::Device(kNpu, device)};
}

DataPtr allocate_on(size_t bytes, DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < VNPU_MAX_DEVICES, "npu: cannot allocate memory: invalid device ordinal ",
              static_cast<int>(device));
  auto* memory = memory_of(device);
  return adopt(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, memory->allocate(bytes), memory,
                                                true),
               device);
}

// Figures of memory are those after all that is queued: what the host has freed by then is free.
void settle(DeviceIndex device) {
  if (vnpuQueueEnabled()) check(vnpuDeviceSynchronize(device), "read memory figures", device);
}

struct NpuAllocator final : c10::DeviceAllocator {
  DataPtr allocate(size_t bytes) override {
    int device = 0;
    vnpuGetDevice(&device);
    return allocate_on(bytes, static_cast<DeviceIndex>(device));
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool initialized() override { return vnpuIsInitialized() != 0; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {}  // nothing is cached yet
  void recordStream(const DataPtr&, c10::Stream) override {}  // memory is freed after synchronous use only

  DeviceStats getDeviceStats(DeviceIndex device) override {
    vnpuMemoryStats now{};
    settle(device);
    check(vnpuMemGetStats(&now, device), "read memory statistics", device);
    DeviceStats stats;
    const auto aggregate = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      auto& stat = (*bytes)[aggregate];
      stat.current = now.current;
      stat.peak = now.peak;
      stat.allocated = now.allocated;
      stat.freed = now.freed;
    }
    for (auto* blocks : {&stats.allocation, &stats.active, &stats.segment}) {
      auto& stat = (*blocks)[aggregate];
      stat.current = now.blocks;
      stat.peak = now.blocks_peak;
      stat.allocated = now.blocks_allocated;
      stat.freed = now.blocks_freed;
    }
    stats.num_ooms = now.out_of_memory;
    return stats;
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    check(vnpuMemResetAccumulated(device), "reset memory statistics", device);
  }
  void resetPeakStats(DeviceIndex device) override {
    check(vnpuMemResetPeak(device), "reset memory statistics", device);
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    size_t free = 0, total = 0;
    settle(device);
    check(vnpuMemGetInfo(&free, &total, device), "read memory information", device);
    return {free, total};
  }
};
NpuAllocator npu_allocator;

void delete_pinned(void* pointer) { vnpuHostFree(pointer); }

struct PinnedAllocator final : c10::Allocator {
  DataPtr allocate(size_t bytes) override {
    void* pointer = nullptr;
    if (auto error = vnpuHostAlloc(&pointer, bytes)) raise_error(error, "allocate pinned host memory", -1, bytes);
    return {pointer, pointer, &delete_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};
PinnedAllocator pinned;

const bool registered = [] {
  c10::SetAllocator(kNpu, &npu_allocator);
  return true;
}();

Block* block_of(StorageImpl* npu) {
  const auto& data = npu->_mutable_data_ptr_no_checks();
  return data.get_deleter() == &delete_block ? static_cast<Block*>(data.get_context()) : nullptr;
}

}  // namespace

c10::Allocator* allocator() { return &npu_allocator; }
c10::Allocator* pinned_allocator() { return &pinned; }

c10::Storage wrap_cpu_storage(StoragePtr cpu, DeviceIndex device) {
  const size_t bytes = cpu->nbytes();
  return c10::Storage(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes,
                                                       adopt(std::move(cpu), device), &npu_allocator, true));
}

void rewrap_cpu_storage(StorageImpl* npu, StorageImpl* cpu, DeviceIndex device) {
  npu->set_data_ptr_noswap(adopt(StoragePtr::reclaim_copy(cpu), device));
  npu->set_nbytes(cpu->nbytes());
}

bool owns_memory(const StorageImpl* npu) { return npu->data_ptr().get_deleter() == &delete_block; }

StoragePtr cpu_storage_of(StorageImpl* npu) {
  if (auto* block = block_of(npu); C10_LIKELY(block != nullptr)) {
    if (C10_UNLIKELY(block->cpu->nbytes() != npu->nbytes())) block->cpu->set_nbytes(npu->nbytes());
    return block->cpu;
  }
  auto* keep = new StoragePtr(StoragePtr::reclaim_copy(npu));
  DataPtr data(
      npu->mutable_data(), keep, [](void* p) { delete static_cast<StoragePtr*>(p); }, c10::Device(c10::kCPU));
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), npu->nbytes(), std::move(data),
                                          c10::GetCPUAllocator(), true);
}

StoragePtr share_storage(StorageImpl* npu) {
  auto* block = block_of(npu);
  TORCH_CHECK(block, "npu: a storage over memory that is not its own cannot be shared between processes");
  if (block->shared) return block->cpu;
  const auto device = npu->device().index();
  settle(device);
  auto shared = at::new_shm_fd_storage(npu->nbytes());
  std::memcpy(shared->mutable_data(), npu->data(), npu->nbytes());
  rewrap_cpu_storage(npu, shared.get(), device);
  block_of(npu)->shared = true;
  return shared;
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  if (vnpuQueueEnabled()) check(vnpuDeviceSynchronize(impl->device().index()), "resize a storage");
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  DataPtr grown = allocate_on(bytes, impl->device().index());
  if (impl->data()) std::memcpy(grown.get(), impl->data(), std::min(bytes, impl->nbytes()));
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(bytes);
}

namespace {
// 1.50 GiB, 12.00 MiB, 40 bytes: the units of PyTorch's own figures.
std::string size_text(size_t bytes) {
  constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
  return text;
}
}  // namespace

void raise_error(vnpuError_t error, const char* what, int device, size_t bytes) {
  int count = 0;
  switch (error) {
    case VNPU_ERROR_OUT_OF_MEMORY: {
      TORCH_CHECK_WITH(OutOfMemoryError, device >= 0, "npu: cannot ", what, ": the host has no ", size_text(bytes));
      size_t free = 0, total = 0, allowed = 0, available = 0;
      vnpuMemoryStats stats{};
      vnpuMemGetInfo(&free, &total, device);
      vnpuMemGetStats(&stats, device);
      vnpuMemGetAllowed(&allowed, &available, device);
      const auto limit =
          allowed < total ? " " + size_text(allowed) + " is allowed by set_per_process_memory_fraction." : std::string();
      TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", size_text(bytes), ". NPU ",
                       device, " has a total capacity of ", size_text(total), " of which ", size_text(free),
                       " is free.", limit, " ", size_text(static_cast<size_t>(stats.current)),
                       " is allocated by PyTorch. The capacity of the virtual device is set by VNPU_MEMORY.");
    }
    case VNPU_ERROR_INVALID_DEVICE:
      vnpuGetDeviceCount(&count);
      TORCH_CHECK(false, "npu: cannot ", what, ": invalid device ordinal ", device, ", there are ", count,
                  " devices (VNPU_DEVICES and ASCEND_RT_VISIBLE_DEVICES say how many)");
    case VNPU_ERROR_BAD_FORK:
      TORCH_CHECK(false,
                  "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the "
                  "'spawn' start method");
    case VNPU_ERROR_LAUNCH_FAILED:
      TORCH_CHECK(false, "npu: ", vnpuGetLastErrorDetail(),
                  " (it was queued and failed later, so this call may be another one; with ASCEND_LAUNCH_BLOCKING=1 "
                  "the call itself fails)");
    case VNPU_ERROR_BAD_ENVIRONMENT:
      TORCH_CHECK(false, "npu: cannot ", what, ": ", vnpuGetLastErrorDetail());
    default:
      TORCH_CHECK(false, "npu: cannot ", what, ": ", vnpuGetErrorString(error));
  }
}

}  // namespace vnpu
