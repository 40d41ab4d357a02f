// Device memory as PyTorch sees it. An npu storage owns a block of the caching allocator; CPU kernels run on CPU storages over the
// same bytes, so no operator copies a byte.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include "caching.h"

namespace vnpu {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

c10::Allocator* allocator();                             // npu memory on the current device
c10::Allocator* allocator_of(c10::DeviceIndex device);  // and on this one

// While it lives, what this thread allocates on CPU is memory of `device` (-1: of the host): a CPU kernel makes its results where
// they belong.
class KernelMemory {
 public:
  explicit KernelMemory(c10::DeviceIndex device);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

 private:
  c10::DeviceIndex before_;
  size_t mark_;
};

// A new npu storage over the bytes of `cpu`. Those of other origin than the device are charged to it, and torch.OutOfMemoryError
// is thrown beyond its capacity.
c10::Storage wrap_cpu_storage(c10::intrusive_ptr<c10::StorageImpl> cpu, c10::DeviceIndex device);
// Turns the storage of a kernel's result, which nobody else holds, into an npu storage where it stands; false where it cannot be.
bool convert_to_npu(c10::StorageImpl* cpu, c10::DeviceIndex device);
// Lets the npu storage own what a kernel made of its CPU storage (other bytes, another size).
void rewrap_cpu_storage(c10::StorageImpl* npu, c10::StorageImpl* cpu, c10::DeviceIndex device);
// A CPU storage over the bytes of an npu storage, for one kernel: it does not keep the bytes alive. That of foreign memory (from
// a blob, say) does.
c10::intrusive_ptr<c10::StorageImpl> cpu_storage_of(c10::StorageImpl* npu);
// One that keeps the npu storage alive, for kernels that may keep their operands.
c10::intrusive_ptr<c10::StorageImpl> keeping_cpu_storage_of(c10::StorageImpl* npu);
// Moves the bytes of `npu` into memory that processes can share, unless they are there already, and returns the CPU storage
// that has them. Waits for what is queued on the device.
c10::intrusive_ptr<c10::StorageImpl> share_storage(c10::StorageImpl* npu);
// Whether `cpu` is the one that cpu_storage_of gives for `npu`, and still as it was given.
bool is_alias(const c10::StorageImpl* cpu, const c10::StorageImpl* npu);
// False for foreign memory. Whoever made such a storage may free its memory as soon as a call has returned, so no work on it is
// queued.
bool owns_memory(const c10::StorageImpl* npu);
// Replaces the memory of `storage` by one of `bytes`, keeping the common prefix.
void resize_storage(const c10::Storage& storage, size_t bytes);
void record_stream(const c10::DataPtr& data, vnpuStream_t stream);
void erase_stream(const c10::DataPtr& data, vnpuStream_t stream);

}  // namespace vnpu
