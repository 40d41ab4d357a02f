// The caching allocator of device memory. It asks the device for segments, hands out blocks of them, and keeps what comes back
// for the stream on whose behalf it was allocated: what that stream does next comes after what it did before, so the memory can
// be used again at once, though queued kernels may not have run yet. Memory that other streams use is kept from being handed out
// until they are done only where record_stream told so, as on any accelerator.
//
// Sizes follow the rules of PyTorch's own caching allocators, so that programs see the figures they know: blocks are multiples of
// 512 bytes; up to 1 MiB they come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, beyond from one of their own.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <utility>
#include <vector>

#include "../runtime/vnpu_runtime.h"

namespace vnpu::caching {

enum class State : uint8_t {
  Used,
  Awaiting,  // given back, but other streams still use it
  Binned,    // free, kept at its size
  Free,      // free, merged with its free neighbours
};

// One piece of a segment.
struct Block {
  char* pointer = nullptr;
  size_t bytes = 0;
  size_t requested = 0;
  vnpuStream_t stream = nullptr;
  c10::DeviceIndex device = 0;
  bool large = false;
  State state = State::Free;
  Block *before = nullptr, *after = nullptr;  // neighbours in the segment
  Block* next_in_bin = nullptr;
  // A CPU storage over these bytes that owns nothing, kept for the next kernel; made by whoever needs it first.
  std::atomic<c10::StorageImpl*> alias{nullptr};
  std::vector<std::pair<vnpuStream_t, uint64_t>> users;  // other streams, and the places in their queues that free the block
};

// A block of at least `bytes` for work on `stream`, or null for 0 bytes. Throws torch.OutOfMemoryError.
Block* allocate(size_t bytes, c10::DeviceIndex device, vnpuStream_t stream);
// Gives a block (as a data pointer's context) back.
void release(void* block);
// The block is not handed out again before what is in the stream's queue when it is given back has run.
void record_stream(Block* block, vnpuStream_t stream);
// Takes that back.
void erase_stream(Block* block, vnpuStream_t stream);

// Bytes that a host kernel has brought count as an allocation too, in a segment of their own.
void charge(const void* pointer, size_t bytes, c10::DeviceIndex device);
void discharge(const void* pointer, size_t bytes, c10::DeviceIndex device);

// Waits for all queues and gives unused segments back to the devices.
void empty_cache();

c10::CachingDeviceAllocator::DeviceStats stats(c10::DeviceIndex device);
void reset_peak(c10::DeviceIndex device);
void reset_accumulated(c10::DeviceIndex device);
// Bytes in tensors, and bytes in segments.
std::pair<size_t, size_t> in_use(c10::DeviceIndex device);

struct BlockInfo {
  size_t address, bytes, requested;
  State state;
};
struct SegmentInfo {
  c10::DeviceIndex device;
  int64_t stream;  // id
  bool large;
  size_t address, bytes;
  std::vector<BlockInfo> blocks;  // in the order of their addresses, without gaps
};
std::vector<SegmentInfo> snapshot();

}  // namespace vnpu::caching
