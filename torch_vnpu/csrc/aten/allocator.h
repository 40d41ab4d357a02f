// Device memory as PyTorch sees it: an npu storage owns a block, and the block holds the CPU storage that has the bytes.
// A CPU kernel is run on that CPU storage, so no operator copies a byte.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace vnpu {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

c10::Allocator* allocator();         // npu memory on the current device
c10::Allocator* pinned_allocator();  // page-locked host memory (here: host memory that is known to be pinned)

// A new npu storage over the bytes of `cpu`, charged to `device`. Throws torch.OutOfMemoryError beyond the capacity.
c10::Storage wrap_cpu_storage(c10::intrusive_ptr<c10::StorageImpl> cpu, c10::DeviceIndex device);
// Lets the npu storage own what a kernel made of its CPU storage (other bytes, another size), with the charge adjusted.
void rewrap_cpu_storage(c10::StorageImpl* npu, c10::StorageImpl* cpu, c10::DeviceIndex device);
// The CPU storage behind an npu storage; one over foreign memory (from a blob, say) is made where there is none.
c10::intrusive_ptr<c10::StorageImpl> cpu_storage_of(c10::StorageImpl* npu);
// Moves the bytes of `npu` into memory that processes can share, unless they are there already, and returns the CPU storage
// that has them. Waits for what is queued on the device.
c10::intrusive_ptr<c10::StorageImpl> share_storage(c10::StorageImpl* npu);
// False for foreign memory. Whoever made such a storage may free its memory as soon as a call has returned, so no work on it is
// queued.
bool owns_memory(const c10::StorageImpl* npu);
// Replaces the memory of `storage` by one of `bytes`, keeping the common prefix.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace vnpu
