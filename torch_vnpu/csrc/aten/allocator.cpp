#include "allocator.h"

#include <ATen/StorageUtils.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "check.h"

namespace vnpu {
namespace {

using c10::DataPtr;
using c10::DeviceIndex;
using c10::StorageImpl;
using StoragePtr = c10::intrusive_ptr<StorageImpl>;

void check_device(DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < VNPU_MAX_DEVICES, "npu: cannot allocate memory: invalid device ordinal ",
              static_cast<int>(device));
}

// `type`: as what PyTorch sees the bytes.
DataPtr allocate_on(size_t bytes, DeviceIndex device, c10::Device type) {
  check_device(device);
  auto* block = caching::allocate(bytes, device, vnpuGetCurrentStream(device));
  return {block ? block->pointer : nullptr, block, &caching::release, type};
}

bool is_block(const DataPtr& data) { return data.get_deleter() == &caching::release; }

caching::Block* block_of(const DataPtr& data) {
  return is_block(data) ? static_cast<caching::Block*>(data.get_context()) : nullptr;
}

// Memory of one device, whatever the current one is, in the form of bytes of `type`.
struct DeviceMemory final : c10::Allocator {
  DeviceMemory(DeviceIndex of_device, c10::Device as_type) : device(of_device), type(as_type) {}
  DataPtr allocate(size_t bytes) override { return allocate_on(bytes, device, type); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  const DeviceIndex device;
  const c10::Device type;
};

// Leaked: tensors may outlive static destruction.
std::vector<DeviceMemory>* memories(c10::DeviceType type) {
  auto* made = new std::vector<DeviceMemory>;
  made->reserve(VNPU_MAX_DEVICES);
  for (DeviceIndex index = 0; index < VNPU_MAX_DEVICES; ++index)
    made->emplace_back(index, type == kNpu ? c10::Device(kNpu, index) : c10::Device(c10::kCPU));
  return made;
}

// The allocator of the CPU storages over the memory of one device. A CPU kernel that grows such a storage takes the memory from
// the device, so that it fails before it has changed anything, as on a device whose memory is its own.
DeviceMemory* memory_of(DeviceIndex device) {
  static auto* all = memories(c10::kCPU);
  return &(*all)[static_cast<size_t>(device)];
}

// What an npu storage's data pointer owns where a host kernel, or another process, has brought the bytes.
struct Foreign {
  Foreign(StoragePtr storage, DeviceIndex of_device) : cpu(std::move(storage)), device(of_device), bytes(cpu->nbytes()) {
    caching::charge(cpu->data(), bytes, device);
  }
  ~Foreign() { caching::discharge(cpu->data(), bytes, device); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  StoragePtr cpu;
  DeviceIndex device;
  size_t bytes;         // charged
  bool shared = false;  // the bytes lie in memory that other processes may map
};

void delete_foreign(void* context) { delete static_cast<Foreign*>(context); }

Foreign* foreign_of(const DataPtr& data) {
  return data.get_deleter() == &delete_foreign ? static_cast<Foreign*>(data.get_context()) : nullptr;
}

// A CPU storage that owns nothing.
StoragePtr bare_cpu_storage(void* pointer, size_t bytes, DeviceIndex device) {
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes, DataPtr(pointer, c10::Device(c10::kCPU)),
                                          memory_of(device), true);
}

// The CPU storage of a block, made by the first that asks; several threads may.
StoragePtr alias_of(caching::Block* block, size_t bytes) {
  auto* alias = block->alias.load(std::memory_order_acquire);
  if (C10_UNLIKELY(!alias)) {
    auto* made = bare_cpu_storage(block->pointer, bytes, block->device).release();
    if (block->alias.compare_exchange_strong(alias, made)) {
      alias = made;
    } else {
      StoragePtr::reclaim(made);
    }
  }
  return StoragePtr::reclaim_copy(alias);
}

thread_local DeviceIndex kernel_device = -1;  // where CPU allocations of this thread go; -1: to the host

// The blocks that CPU allocations inside of kernels took. oneDNN frees memory by its pointer alone, so their data pointers have no
// other context than that, and the block is found here: by the running kernels of this thread, or by all that is left of others.
using Taken = std::pair<void*, caching::Block*>;
thread_local std::vector<Taken> taken_here;
struct TakenBefore {
  std::mutex mutex;
  std::unordered_map<void*, caching::Block*> blocks;
  std::unordered_set<void*> freed;  // by another thread than that whose kernel has them, which gives them back
  std::atomic<size_t> count{0};
};
TakenBefore& taken_before() {
  static auto* all = new TakenBefore;
  return *all;
}

// The block of a pointer, which is not known as taken any more; null where it never was.
caching::Block* forget(void* pointer) {
  for (auto one = taken_here.rbegin(); one != taken_here.rend(); ++one) {
    if (one->first != pointer) continue;
    auto* block = one->second;
    *one = taken_here.back();
    taken_here.pop_back();
    return block;
  }
  auto& before = taken_before();
  if (!before.count.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard<std::mutex> lock(before.mutex);
  const auto found = before.blocks.find(pointer);
  if (found == before.blocks.end()) return nullptr;
  auto* block = found->second;
  before.blocks.erase(found);
  before.count.fetch_sub(1);
  return block;
}

void release_taken(void* pointer);

// The data pointer of a kernel's result as an npu storage has it. Others stay as they are.
void claim(DataPtr& data) {
  if (data.get_deleter() != &release_taken || !data.get_context()) return;
  auto* pointer = data.get();
  auto* block = forget(pointer);
  const auto device = data.device();
  data.release_context();
  data = DataPtr(pointer, block, &caching::release, device);
}

// Takes the bytes away from a CPU storage that has them from the device; it still points at them.
DataPtr take_bytes(StorageImpl* cpu, DeviceIndex device) {
  DataPtr data = std::move(cpu->_mutable_data_ptr_no_checks());
  cpu->set_data_ptr_noswap(DataPtr(data.get(), c10::Device(c10::kCPU)));
  data.unsafe_set_device(c10::Device(kNpu, device));
  // The CPU storage goes on as the alias of its block, so that what the caller maps to the npu storage stays the same object.
  if (auto* block = block_of(data)) {
    StorageImpl* none = nullptr;
    if (block->alias.compare_exchange_strong(none, cpu)) StoragePtr::reclaim_copy(cpu).release();
  }
  return data;
}

DataPtr adopt(StoragePtr cpu, DeviceIndex device) {
  claim(cpu->_mutable_data_ptr_no_checks());
  if (is_block(cpu->data_ptr())) return take_bytes(cpu.get(), device);
  void* pointer = cpu->mutable_data();
  if (!cpu->nbytes()) return {pointer, nullptr, &caching::release, c10::Device(kNpu, device)};
  std::unique_ptr<Foreign> foreign(new Foreign(std::move(cpu), device));
  foreign->cpu->set_allocator(memory_of(device));
  return {pointer, foreign.release(), &delete_foreign, c10::Device(kNpu, device)};
}

struct NpuAllocator final : c10::DeviceAllocator {
  DataPtr allocate(size_t bytes) override {
    int device = 0;
    vnpuGetDevice(&device);
    return allocate_on(bytes, static_cast<DeviceIndex>(device), c10::Device(kNpu, static_cast<DeviceIndex>(device)));
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
  bool initialized() override { return vnpuIsInitialized() != 0; }
  void emptyCache(c10::MempoolId_t = {0, 0}) override { caching::empty_cache(); }
  void recordStream(const DataPtr& data, c10::Stream stream) override {
    vnpuStream_t found = nullptr;
    check(vnpuStreamFromId(&found, stream.device_index(), stream.id()), "record a stream", stream.device_index());
    record_stream(data, found);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    check_exists(device);
    return caching::stats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    check_exists(device);
    caching::reset_accumulated(device);
  }
  void resetPeakStats(DeviceIndex device) override {
    check_exists(device);
    caching::reset_peak(device);
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    size_t free = 0, total = 0;
    check(vnpuMemGetInfo(&free, &total, device), "read memory information", device);
    return {free, total};
  }

 private:
  static void check_exists(DeviceIndex device) {
    size_t free = 0, total = 0;
    check(vnpuMemGetInfo(&free, &total, device), "read memory statistics", device);
  }
};
NpuAllocator npu_allocator;

// In front of CPU's allocator. Outside of kernels it hands on.
struct HostAllocator final : c10::Allocator {
  explicit HostAllocator(c10::Allocator* below) : host(below) {}
  DataPtr allocate(size_t bytes) override {
    if (C10_LIKELY(kernel_device < 0)) return host->allocate(bytes);
    auto* block = caching::allocate(bytes, kernel_device, vnpuGetCurrentStream(kernel_device));
    if (!block) return {nullptr, nullptr, &release_taken, c10::Device(c10::kCPU)};
    taken_here.emplace_back(block->pointer, block);
    return {block->pointer, block->pointer, &release_taken, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_taken; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { host->copy_data(to, from, bytes); }
  bool is_simple_data_ptr(const DataPtr& data) const override { return host->is_simple_data_ptr(data); }
  c10::Allocator* host;
};

HostAllocator& host_allocator() {
  static auto* made = new HostAllocator(c10::GetCPUAllocator());
  return *made;
}

void release_taken(void* pointer) {
  if (auto* block = forget(pointer)) return caching::release(block);
  if (!pointer) return;
  if (C10_LIKELY(!vnpuMemIsDevice(pointer))) return host_allocator().host->raw_deleter()(pointer);
  auto& before = taken_before();
  std::lock_guard<std::mutex> lock(before.mutex);
  before.freed.insert(pointer);
}

const bool registered = [] {
  c10::SetAllocator(kNpu, &npu_allocator);
  c10::SetCPUAllocator(&host_allocator());
  return true;
}();

}  // namespace

c10::Allocator* allocator() { return &npu_allocator; }

c10::Allocator* allocator_of(DeviceIndex device) {
  static auto* all = memories(kNpu);
  return &(*all)[static_cast<size_t>(device)];
}

KernelMemory::KernelMemory(DeviceIndex device) : before_(kernel_device), mark_(taken_here.size()) { kernel_device = device; }

KernelMemory::~KernelMemory() {
  kernel_device = before_;
  if (C10_LIKELY(taken_here.size() <= mark_)) return;
  auto& before = taken_before();  // the kernel has kept something, or another thread has freed it
  std::vector<caching::Block*> freed;
  {
    std::lock_guard<std::mutex> lock(before.mutex);
    for (; taken_here.size() > mark_; taken_here.pop_back()) {
      if (before.freed.erase(taken_here.back().first)) {
        freed.push_back(taken_here.back().second);
      } else {
        before.blocks.insert(taken_here.back());
        before.count.fetch_add(1);
      }
    }
  }
  for (auto* block : freed) caching::release(block);
}

c10::Storage wrap_cpu_storage(StoragePtr cpu, DeviceIndex device) {
  const size_t bytes = cpu->nbytes();
  return c10::Storage(c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), bytes,
                                                       adopt(std::move(cpu), device), &npu_allocator, true));
}

bool convert_to_npu(StorageImpl* cpu, DeviceIndex device) {
  auto& data = cpu->_mutable_data_ptr_no_checks();
  claim(data);
  if (!is_block(data)) return false;
  data.unsafe_set_device(c10::Device(kNpu, device));
  cpu->set_allocator(&npu_allocator);
  return true;
}

void rewrap_cpu_storage(StorageImpl* npu, StorageImpl* cpu, DeviceIndex device) {
  if (auto* block = block_of(npu->data_ptr())) {  // its alias has gone to other bytes
    if (block->alias.load() == cpu) StoragePtr::reclaim(block->alias.exchange(nullptr));
  }
  npu->set_data_ptr_noswap(adopt(StoragePtr::reclaim_copy(cpu), device));
  npu->set_nbytes(cpu->nbytes());
}

bool owns_memory(const StorageImpl* npu) {
  const auto& data = npu->data_ptr();
  return is_block(data) || data.get_deleter() == &delete_foreign;
}

StoragePtr cpu_storage_of(StorageImpl* npu) {
  const auto& data = npu->data_ptr();
  if (auto* block = block_of(data); C10_LIKELY(block != nullptr)) return alias_of(block, npu->nbytes());
  if (auto* foreign = foreign_of(data)) {
    if (C10_UNLIKELY(foreign->cpu->nbytes() != npu->nbytes())) foreign->cpu->set_nbytes(npu->nbytes());
    return foreign->cpu;
  }
  if (is_block(data)) return bare_cpu_storage(nullptr, 0, npu->device().index());
  return keeping_cpu_storage_of(npu);
}

bool is_alias(const StorageImpl* cpu, const StorageImpl* npu) {
  const auto* block = block_of(npu->data_ptr());
  return block && block->alias.load(std::memory_order_relaxed) == cpu && cpu->data() == npu->data() &&
         cpu->nbytes() == npu->nbytes();
}

StoragePtr keeping_cpu_storage_of(StorageImpl* npu) {
  auto* keep = new StoragePtr(StoragePtr::reclaim_copy(npu));
  DataPtr data(
      npu->mutable_data(), keep, [](void* p) { delete static_cast<StoragePtr*>(p); }, c10::Device(c10::kCPU));
  return c10::make_intrusive<StorageImpl>(StorageImpl::use_byte_size_t(), npu->nbytes(), std::move(data),
                                          memory_of(npu->device().index()), true);
}

StoragePtr share_storage(StorageImpl* npu) {
  TORCH_CHECK(owns_memory(npu), "npu: a storage over memory that is not its own cannot be shared between processes");
  if (auto* foreign = foreign_of(npu->data_ptr()); foreign && foreign->shared) return foreign->cpu;
  const auto device = npu->device().index();
  check(vnpuDeviceSynchronize(device), "share a storage", device);
  auto shared = at::new_shm_fd_storage(npu->nbytes());
  std::memcpy(shared->mutable_data(), npu->data(), npu->nbytes());
  rewrap_cpu_storage(npu, shared.get(), device);
  if (auto* foreign = foreign_of(npu->data_ptr())) foreign->shared = true;
  return shared;
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  const auto device = impl->device().index();
  if (vnpuQueueEnabled()) vnpuDeviceDrain(device);  // no synchronisation that the program made
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  DataPtr grown = allocate_on(bytes, device, c10::Device(kNpu, device));
  if (impl->data() && bytes) std::memcpy(grown.get(), impl->data(), std::min(bytes, impl->nbytes()));
  impl->set_data_ptr_noswap(std::move(grown));
  impl->set_nbytes(bytes);
}

void record_stream(const DataPtr& data, vnpuStream_t stream) {
  if (auto* block = block_of(data)) caching::record_stream(block, stream);
}

void erase_stream(const DataPtr& data, vnpuStream_t stream) {
  if (auto* block = block_of(data)) caching::erase_stream(block, stream);
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
      size_t free = 0, total = 0, allowed = 0;
      vnpuMemGetInfo(&free, &total, device);
      const auto [used, reserved] = caching::in_use(static_cast<DeviceIndex>(device));
      vnpuMemGetAllowed(&allowed, device);
      const auto limit =
          allowed < total ? " " + size_text(allowed) + " is allowed by set_per_process_memory_fraction." : std::string();
      TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", size_text(bytes), ". NPU ",
                       device, " has a total capacity of ", size_text(total), " of which ", size_text(free),
                       " is free.", limit, " Of the reserved memory ", size_text(used),
                       " is allocated by PyTorch, and ", size_text(reserved - used),
                       " is reserved by PyTorch but unallocated. The capacity of the virtual device is set by VNPU_MEMORY.");
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
