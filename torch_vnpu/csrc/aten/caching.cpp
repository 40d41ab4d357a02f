#include "caching.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "../events.h"
#include "check.h"

namespace vnpu::caching {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kUnit = 512;
constexpr size_t kSmall = size_t{1} << 20;          // the largest block of a small segment
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kOwnSegment = size_t{10} << 20;    // from here on a block has a segment of its own
constexpr size_t kOwnUnit = size_t{2} << 20;        // whose size is a multiple of this
constexpr int kRetries = 16;                        // of one allocation, while other threads come and go

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t segment_size(size_t block) {
  if (block <= kSmall) return kSmallSegment;
  return block < kOwnSegment ? kLargeSegment : rounded(block, kOwnUnit);
}

struct BySize {
  bool operator()(const Block* one, const Block* other) const {
    return one->bytes != other->bytes ? one->bytes < other->bytes : one->pointer < other->pointer;
  }
};

// The free blocks of one stream and kind. Small ones go into a bin of their exact size first, as most programs ask for the same
// sizes again and again; they are merged with their neighbours when no block of the size that is asked for is there.
struct Pool {
  std::set<Block*, BySize> free;
  std::vector<Block*> bins;
  size_t binned_bytes = 0;
};

struct StreamPools {
  Pool small, large;
};

void add(StatArray& stat, bool large, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].increase(amount);
  stat[static_cast<size_t>(large ? StatType::LARGE_POOL : StatType::SMALL_POOL)].increase(amount);
}
void subtract(StatArray& stat, bool large, size_t amount) {
  stat[static_cast<size_t>(StatType::AGGREGATE)].decrease(amount);
  stat[static_cast<size_t>(large ? StatType::LARGE_POOL : StatType::SMALL_POOL)].decrease(amount);
}

struct Segment {
  Block* first;
  size_t bytes;
};

class Cache {
 public:
  Block* allocate(size_t bytes, c10::DeviceIndex device, vnpuStream_t stream);
  void release(Block* block);
  void record_stream(Block* block, vnpuStream_t stream);
  void charge(size_t bytes, c10::DeviceIndex device);
  void discharge(size_t bytes, c10::DeviceIndex device);
  void release_segments(std::unique_lock<std::mutex>& lock);
  std::vector<SegmentInfo> snapshot(c10::DeviceIndex device);
  void free_awaiting();  // the mutex is held

  std::mutex mutex;
  DeviceStats figures;

 private:
  Pool& pool(vnpuStream_t stream, bool large);
  Block* take(Pool& pool, size_t size, bool large);
  Block* grow(std::unique_lock<std::mutex>& lock, size_t size, size_t requested, c10::DeviceIndex device,
              vnpuStream_t stream);
  Block* new_segment(size_t size, c10::DeviceIndex device, vnpuStream_t stream, bool large);
  void free_now(Block* block);
  void keep(Pool& pool, Block* block);
  void merge(Pool& pool, Block* block);
  void merge_bins(Pool& pool);
  template <class Attempt>
  auto retried(std::unique_lock<std::mutex>& lock, Attempt attempt);
  void retire_segments();
  void free_retired(uint64_t until);
  void insert(Pool& pool, Block* block);
  void erase(Pool& pool, Block* block);
  void count_split(const Block* block, bool more);
  Block* make() {
    if (spare_.empty()) return new Block;
    auto* block = spare_.back();
    spare_.pop_back();
    return block;
  }
  void discard(Block* block);

  std::unordered_map<vnpuStream_t, std::unique_ptr<StreamPools>> pools_;
  vnpuStream_t last_stream_ = nullptr;
  StreamPools* last_pools_ = nullptr;
  std::map<char*, Segment> segments_;
  std::deque<Block*> retired_;  // segments that no pool has any more, and the device does not have back yet
  uint64_t retired_ever_ = 0, freed_ever_ = 0;
  uint64_t changes_ = 0;  // of what is in use or reserved, by whichever thread
  std::vector<Block*> awaiting_;
  std::vector<Block*> spare_;
};

// Leaked: tensors may outlive static destruction.
Cache& cache_of(c10::DeviceIndex device) {
  static auto* all = new Cache[VNPU_MAX_DEVICES];
  return all[device];
}

void drop_alias(Block* block) {
  if (auto* alias = block->alias.exchange(nullptr)) c10::intrusive_ptr<c10::StorageImpl>::reclaim(alias);
}

void Cache::discard(Block* block) {
  drop_alias(block);
  block->before = block->after = block->next_in_bin = nullptr;
  spare_.push_back(block);
}

Pool& Cache::pool(vnpuStream_t stream, bool large) {
  if (C10_UNLIKELY(stream != last_stream_)) {
    auto& pools = pools_[stream];
    if (!pools) pools = std::make_unique<StreamPools>();
    last_stream_ = stream;
    last_pools_ = pools.get();
  }
  return large ? last_pools_->large : last_pools_->small;
}

// A free block that shares its segment with others cannot be given back to the device.
void Cache::count_split(const Block* block, bool more) {
  if (!block->before && !block->after) return;
  (more ? add : subtract)(figures.inactive_split, block->large, 1);
  (more ? add : subtract)(figures.inactive_split_bytes, block->large, block->bytes);
}

void Cache::insert(Pool& pool, Block* block) {
  block->state = State::Free;
  pool.free.insert(block);
  count_split(block, true);
}

void Cache::erase(Pool& pool, Block* block) {
  pool.free.erase(block);
  count_split(block, false);
}

// A free block of `size` bytes or a little more, or null. What is left over of a larger one stays.
Block* Cache::take(Pool& pool, size_t size, bool large) {
  if (!large && !pool.bins.empty()) {
    auto& bin = pool.bins[size / kUnit];
    if (auto* block = bin) {
      bin = block->next_in_bin;
      pool.binned_bytes -= block->bytes;
      count_split(block, false);
      return block;
    }
  }
  Block key;
  key.bytes = size;
  const auto found = pool.free.lower_bound(&key);
  if (found == pool.free.end()) return nullptr;
  auto* block = *found;
  erase(pool, block);
  const size_t rest = block->bytes - size;
  if (rest >= (large ? kSmall + 1 : kUnit)) {
    auto* other = make();
    other->pointer = block->pointer + size;
    other->bytes = rest;
    other->stream = block->stream;
    other->device = block->device;
    other->large = large;
    other->before = block;
    other->after = block->after;
    if (other->after) other->after->before = other;
    block->after = other;
    block->bytes = size;
    drop_alias(block);
    insert(pool, other);
  }
  return block;
}

void Cache::merge(Pool& pool, Block* block) {
  if (auto* after = block->after; after && after->state == State::Free) {
    erase(pool, after);
    block->bytes += after->bytes;
    block->after = after->after;
    if (block->after) block->after->before = block;
    discard(after);
  }
  if (auto* before = block->before; before && before->state == State::Free) {
    erase(pool, before);
    before->bytes += block->bytes;
    before->after = block->after;
    if (before->after) before->after->before = before;
    discard(block);
    block = before;
  }
  insert(pool, block);
}

void Cache::merge_bins(Pool& pool) {
  for (auto& bin : pool.bins) {
    while (auto* block = bin) {
      bin = block->next_in_bin;
      count_split(block, false);
      merge(pool, block);
    }
  }
  pool.binned_bytes = 0;
}

void Cache::keep(Pool& pool, Block* block) {
  if (block->large) return merge(pool, block);
  if (pool.bins.empty()) pool.bins.resize(kSmall / kUnit + 1);
  auto& bin = pool.bins[block->bytes / kUnit];
  block->next_in_bin = bin;
  block->state = State::Binned;
  bin = block;
  pool.binned_bytes += block->bytes;
  count_split(block, true);
}

Block* Cache::new_segment(size_t size, c10::DeviceIndex device, vnpuStream_t stream, bool large) {
  void* memory = nullptr;
  const auto error = vnpuMalloc(&memory, size, device);
  if (error == VNPU_ERROR_OUT_OF_MEMORY) return nullptr;
  check(error, "allocate memory", device);
  auto* block = make();
  block->pointer = static_cast<char*>(memory);
  block->bytes = size;
  block->stream = stream;
  block->device = device;
  block->large = large;
  segments_[block->pointer] = {block, size};
  ++changes_;
  ++figures.num_device_alloc;
  add(figures.segment, large, 1);
  add(figures.reserved_bytes, large, size);
  insert(pool(stream, large), block);
  return block;
}

// Segments in which nothing is used leave the pools, so that nothing new can be launched on them.
void Cache::retire_segments() {
  for (auto& [stream, pools] : pools_) {
    merge_bins(pools->small);
    merge_bins(pools->large);
  }
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    auto* block = segment->second.first;
    if (block->state != State::Free || block->after) {
      ++segment;
      continue;
    }
    erase(pool(block->stream, block->large), block);
    retired_.push_back(block);
    ++retired_ever_;
    segment = segments_.erase(segment);
  }
}

// The first `until` segments that were ever retired go back to the device. No queued kernel may use them any more.
void Cache::free_retired(uint64_t until) {
  for (; freed_ever_ < until; ++freed_ever_) {
    auto* block = retired_.front();
    retired_.pop_front();
    subtract(figures.segment, block->large, 1);
    subtract(figures.reserved_bytes, block->large, block->bytes);
    ++figures.num_device_free;
    vnpuFree(block->pointer);
    discard(block);
  }
}

// Whether all that was queued has run.
bool drain_all() {
  int count = 0;
  bool all = true;
  vnpuGetDeviceCount(&count);
  for (int device = 0; device < count; ++device) {  // copies between devices run on either's streams
    if (vnpuDeviceDrain(device)) {
      events::emit({.kind = events::Kind::DeviceSynchronize, .device = device});
    } else {
      all = false;
    }
  }
  return all;
}

// Gives back what is unused. The queues may wait for a listener that allocates, so the lock is not held while we wait for them.
void Cache::release_segments(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  drain_all();
  lock.lock();
  free_awaiting();
  retire_segments();
  const auto until = retired_ever_;
  if (freed_ever_ == until) return;
  lock.unlock();
  // While we waited, other threads went on: they may have launched kernels on memory and freed it. Those of another thread that
  // is in here are freed too, so that nobody runs out of memory because somebody else is still waiting.
  const bool drained = drain_all();
  lock.lock();
  if (drained) free_retired(until);  // else they stay retired until somebody can wait
}

// What `attempt` gets, tried again after what is unused went back to the device. What other threads free or take while we wait
// for the queues may be just what lacks, so it takes a wait without a change to know that there is not enough.
template <class Attempt>
auto Cache::retried(std::unique_lock<std::mutex>& lock, Attempt attempt) {
  auto got = attempt();
  if (got) return got;
  ++figures.num_alloc_retries;
  for (int tries = 0; tries < kRetries; ++tries) {
    const auto before = changes_;
    release_segments(lock);
    got = attempt();
    if (got || changes_ == before) break;
  }
  return got;
}

// More memory from the device: a whole segment, else just what is asked for, else after all that is unused was given back.
Block* Cache::grow(std::unique_lock<std::mutex>& lock, size_t size, size_t requested, c10::DeviceIndex device,
                   vnpuStream_t stream) {
  const bool large = size > kSmall;
  if (auto& free = pool(stream, large); !large && free.binned_bytes >= kSmallSegment) {
    merge_bins(free);
    if (auto* block = take(free, size, large)) return block;
  }
  auto* block = retried(lock, [&]() -> Block* {
    if (auto* block = take(pool(stream, large), size, large)) return block;  // another thread's
    for (const size_t segment : {segment_size(size), size})
      if (new_segment(segment, device, stream, large)) return take(pool(stream, large), size, large);
    return nullptr;
  });
  if (block) return block;
  ++figures.num_ooms;
  lock.unlock();
  raise_error(VNPU_ERROR_OUT_OF_MEMORY, "allocate memory", device, requested);
}

Block* Cache::allocate(size_t bytes, c10::DeviceIndex device, vnpuStream_t stream) {
  const size_t size = rounded(bytes, kUnit);
  const bool large = size > kSmall;
  std::unique_lock<std::mutex> lock(mutex);
  if (C10_UNLIKELY(!awaiting_.empty())) free_awaiting();
  Block* block = take(pool(stream, large), size, large);
  if (C10_UNLIKELY(!block)) block = grow(lock, size, bytes, device, stream);
  block->state = State::Used;
  block->requested = bytes;
  add(figures.allocation, large, 1);
  add(figures.active, large, 1);
  add(figures.allocated_bytes, large, block->bytes);
  add(figures.active_bytes, large, block->bytes);
  add(figures.requested_bytes, large, bytes);
  return block;
}

void Cache::free_now(Block* block) {
  ++changes_;
  subtract(figures.active, block->large, 1);
  subtract(figures.active_bytes, block->large, block->bytes);
  keep(pool(block->stream, block->large), block);
}

void Cache::free_awaiting() {
  std::erase_if(awaiting_, [&](Block* block) {
    std::erase_if(block->users, [](const auto& user) { return vnpuStreamReached(user.first, user.second); });
    if (!block->users.empty()) return false;
    free_now(block);
    return true;
  });
}

void Cache::release(Block* block) {
  std::lock_guard<std::mutex> lock(mutex);
  subtract(figures.allocation, block->large, 1);
  subtract(figures.allocated_bytes, block->large, block->bytes);
  subtract(figures.requested_bytes, block->large, block->requested);
  if (C10_LIKELY(block->users.empty())) return free_now(block);
  for (auto& user : block->users) user.second = vnpuStreamMark(user.first);
  block->state = State::Awaiting;
  awaiting_.push_back(block);
}

void Cache::record_stream(Block* block, vnpuStream_t stream) {
  std::lock_guard<std::mutex> lock(mutex);
  if (stream == block->stream) return;
  for (const auto& user : block->users)
    if (user.first == stream) return;
  block->users.emplace_back(stream, 0);
}

void Cache::charge(size_t bytes, c10::DeviceIndex device) {
  std::unique_lock<std::mutex> lock(mutex);
  auto error = VNPU_SUCCESS;
  retried(lock, [&] {
    error = vnpuMemCharge(bytes, device);
    return error != VNPU_ERROR_OUT_OF_MEMORY;
  });
  if (error) {
    figures.num_ooms += error == VNPU_ERROR_OUT_OF_MEMORY;
    lock.unlock();
    raise_error(error, "allocate memory", device, bytes);
  }
  ++changes_;
  const bool large = bytes > kSmall;
  for (auto* count : {&figures.allocation, &figures.active, &figures.segment}) add(*count, large, 1);
  for (auto* sum : {&figures.allocated_bytes, &figures.active_bytes, &figures.reserved_bytes, &figures.requested_bytes})
    add(*sum, large, bytes);
}

void Cache::discharge(size_t bytes, c10::DeviceIndex device) {
  vnpuMemDischarge(bytes, device);
  std::lock_guard<std::mutex> lock(mutex);
  ++changes_;
  const bool large = bytes > kSmall;
  for (auto* count : {&figures.allocation, &figures.active, &figures.segment}) subtract(*count, large, 1);
  for (auto* sum : {&figures.allocated_bytes, &figures.active_bytes, &figures.reserved_bytes, &figures.requested_bytes})
    subtract(*sum, large, bytes);
}

std::vector<SegmentInfo> Cache::snapshot(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(mutex);
  free_awaiting();
  std::vector<SegmentInfo> all;
  for (const auto& [pointer, segment] : segments_) {
    SegmentInfo info{device, vnpuStreamId(segment.first->stream), segment.first->large,
                     reinterpret_cast<size_t>(pointer), segment.bytes, {}};
    for (const auto* block = segment.first; block; block = block->after)
      info.blocks.push_back({reinterpret_cast<size_t>(block->pointer), block->bytes,
                             block->state <= State::Awaiting ? block->requested : 0, block->state});
    all.push_back(std::move(info));
  }
  return all;
}

// What the profiler's memory view and the listeners are told of. A free is told before it happens, lest the memory's next owner be
// told first; `freed` is what it takes off the device's total.
void tell(events::Kind kind, const void* pointer, size_t bytes, c10::DeviceIndex device, vnpuStream_t stream, size_t freed = 0) {
  events::emit({.kind = kind, .device = device, .stream = stream ? vnpuStreamId(stream) : -1, .pointer = pointer,
                .bytes = bytes});
  if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
  const auto [allocated, reserved] = in_use(device);
  const auto change = static_cast<int64_t>(bytes);
  c10::reportMemoryUsageToProfiler(const_cast<void*>(pointer), kind == events::Kind::Alloc ? change : -change, allocated - freed,
                                   reserved, c10::Device(c10::DeviceType::PrivateUse1, device));
}

}  // namespace

Block* allocate(size_t bytes, c10::DeviceIndex device, vnpuStream_t stream) {
  if (!bytes) return nullptr;
  auto* block = cache_of(device).allocate(bytes, device, stream);
  // A kernel that is still queued may hold the old one; otherwise it serves the new owner.
  if (auto* alias = block->alias.load(std::memory_order_relaxed)) {
    if (c10::raw::intrusive_ptr::use_count(alias) == 1) {
      alias->set_nbytes(bytes);
    } else {
      drop_alias(block);
    }
  }
  tell(events::Kind::Alloc, block->pointer, bytes, device, stream);
  return block;
}

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  tell(events::Kind::Free, block->pointer, block->requested, block->device, block->stream, block->bytes);
  cache_of(block->device).release(block);
}

void record_stream(Block* block, vnpuStream_t stream) {
  events::emit({.kind = events::Kind::RecordStream, .device = block->device, .stream = vnpuStreamId(stream),
                .pointer = block->pointer, .bytes = block->requested});
  cache_of(block->device).record_stream(block, stream);
}

void erase_stream(Block* block, vnpuStream_t stream) {
  auto& cache = cache_of(block->device);
  const std::lock_guard<std::mutex> lock(cache.mutex);
  std::erase_if(block->users, [&](const auto& user) { return user.first == stream; });
}

void charge(const void* pointer, size_t bytes, c10::DeviceIndex device) {
  if (!bytes) return;
  cache_of(device).charge(bytes, device);
  tell(events::Kind::Alloc, pointer, bytes, device, vnpuGetCurrentStream(device));
}

void discharge(const void* pointer, size_t bytes, c10::DeviceIndex device) {
  if (!bytes) return;
  tell(events::Kind::Free, pointer, bytes, device, nullptr, bytes);
  cache_of(device).discharge(bytes, device);
}

void empty_cache() {
  int count = 0;
  vnpuGetDeviceCount(&count);
  for (int device = 0; device < count; ++device) {
    auto& cache = cache_of(static_cast<c10::DeviceIndex>(device));
    std::unique_lock<std::mutex> lock(cache.mutex);
    cache.release_segments(lock);
  }
}

DeviceStats stats(c10::DeviceIndex device) {
  auto& cache = cache_of(device);
  std::lock_guard<std::mutex> lock(cache.mutex);
  cache.free_awaiting();
  return cache.figures;
}

namespace {
template <class Action>
void each_figure(DeviceStats& f, Action action) {
  for (auto* stat : {&f.allocation, &f.segment, &f.active, &f.inactive_split, &f.allocated_bytes, &f.reserved_bytes,
                     &f.active_bytes, &f.inactive_split_bytes, &f.requested_bytes})
    for (auto& one : *stat) action(one);
}
}  // namespace

void reset_peak(c10::DeviceIndex device) {
  auto& cache = cache_of(device);
  std::lock_guard<std::mutex> lock(cache.mutex);
  each_figure(cache.figures, [](auto& one) { one.reset_peak(); });
}

void reset_accumulated(c10::DeviceIndex device) {
  auto& cache = cache_of(device);
  std::lock_guard<std::mutex> lock(cache.mutex);
  auto& f = cache.figures;
  each_figure(f, [](auto& one) { one.reset_accumulated(); });
  f.num_alloc_retries = f.num_ooms = f.num_sync_all_streams = f.num_device_alloc = f.num_device_free = 0;
}

std::pair<size_t, size_t> in_use(c10::DeviceIndex device) {
  auto& cache = cache_of(device);
  std::lock_guard<std::mutex> lock(cache.mutex);
  const auto all = static_cast<size_t>(StatType::AGGREGATE);
  return {static_cast<size_t>(cache.figures.allocated_bytes[all].current),
          static_cast<size_t>(cache.figures.reserved_bytes[all].current)};
}

std::vector<SegmentInfo> snapshot() {
  int count = 0;
  vnpuGetDeviceCount(&count);
  std::vector<SegmentInfo> all;
  for (int device = 0; device < count; ++device)
    for (auto& segment : cache_of(static_cast<c10::DeviceIndex>(device)).snapshot(static_cast<c10::DeviceIndex>(device)))
      all.push_back(std::move(segment));
  return all;
}

}  // namespace vnpu::caching
