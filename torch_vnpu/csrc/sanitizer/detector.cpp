#include "detector.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace vnpu::sanitizer {
namespace {

// Bounds of the memory; what is beyond is forgotten, of records the oldest first, and counted as dropped.
constexpr size_t kRecords = 128;   // of one block
constexpr size_t kRanges = 8192;   // of freed memory
constexpr size_t kReports = 4096;  // different findings

using Lock = std::lock_guard<std::mutex>;

template <class Item>
void move_into(std::vector<Item>& target, std::vector<Item>& source) {
  target.insert(target.end(), std::make_move_iterator(source.begin()), std::make_move_iterator(source.end()));
}

}  // namespace

void Clock::join(const Clock& other) {
  if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
  for (size_t i = 0; i < other.times_.size(); ++i) times_[i] = std::max(times_[i], other.times_[i]);
}

uint64_t Clock::tick(Actor actor) {
  if (times_.size() <= actor) times_.resize(actor + 1);
  return ++times_[actor];
}

Actor Detector::actor_of(int device, int64_t stream) {
  if (stream < 0 && device < 0) return 0;
  const uint64_t key = static_cast<uint64_t>(stream) * 0x9e3779b97f4a7c15ull ^ static_cast<uint64_t>(device + 1) << 56;
  const auto [found, is_new] = by_stream_.try_emplace(key, static_cast<Actor>(actors_.size()));
  if (is_new) {
    auto& made = actors_.emplace_back();
    made.device = device;
    made.id = stream;
  }
  return found->second;
}

Clock& Detector::current(Actor stream) {
  auto& entry = actors_[stream];
  if (entry.host_version != host_version_) {
    entry.clock.join(clock_of(0));
    entry.host_version = host_version_;
  }
  return entry.clock;
}

void Detector::host_learns(const Clock& clock) {
  clock_of(0).join(clock);
  ++host_version_;
}

uint32_t Detector::name(std::string_view text) {
  const auto found = name_ids_.find(text);
  if (found != name_ids_.end()) return found->second;
  const auto [made, unused] = name_ids_.emplace(std::string(text), static_cast<uint32_t>(names_.size()));
  names_.push_back(&made->first);
  return made->second;
}

// ---- memory ----

Detector::Blocks::iterator Detector::find(uint64_t address) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  return address < block->first + block->second.size ? block : blocks_.end();
}

Detector::Block& Detector::block_for(const events::Operand& operand, uint64_t& base) {
  const auto address = reinterpret_cast<uint64_t>(operand.base);
  const auto found = find(address);
  if (found != blocks_.end()) {
    base = found->first;
    found->second.size = std::max(found->second.size, address + operand.storage_bytes - base);
    return found->second;
  }
  base = address;
  auto& block = blocks_[base];
  block.size = std::max<uint64_t>(operand.storage_bytes, 1);
  block.device = operand.device;
  inherit(base, block);
  return block;
}

// What was done to the freed memory on which the block lies goes to the block.
void Detector::inherit(uint64_t base, Block& block) {
  if (freed_.empty()) return;
  const uint64_t end = base + block.size;
  auto range = freed_.upper_bound(base);
  if (range != freed_.begin() && std::prev(range)->second.end > base) --range;
  while (range != freed_.end() && range->first < end) {
    std::erase_if(range->second.past, [&](Past& past) {
      const auto &bytes = past.access.bytes;
      if (settled(past.access)) return true;
      if (bytes.start >= end || bytes.end() <= base) return false;
      const bool whole = bytes.start >= base && bytes.end() <= end;
      block.past.push_back(past);
      block.past.back().lent = !whole;
      return whole;
    });
    range = range->second.past.empty() ? freed_.erase(range) : std::next(range);
  }
}

void Detector::keep_past(uint64_t base, uint64_t end, std::vector<Past> past) {
  std::erase_if(past, [&](const Past& one) { return settled(one.access); });
  if (past.empty()) return;
  auto range = freed_.upper_bound(base);
  if (range != freed_.begin() && std::prev(range)->second.end > base) --range;
  while (range != freed_.end() && range->first < end) {
    base = std::min(base, range->first);
    end = std::max(end, range->second.end);
    move_into(past, range->second.past);
    range = freed_.erase(range);
  }
  if (past.size() > kRecords) {
    std::erase_if(past, [&](const Past& one) { return settled(one.access); });
    if (past.size() > kRecords) {
      dropped_ += past.size() - kRecords;
      past.erase(past.begin(), past.end() - kRecords);
    }
  }
  freed_[base] = {end, std::move(past)};
  if (freed_.size() > kRanges) {
    for (auto kept = freed_.begin(); kept != freed_.end();) {
      std::erase_if(kept->second.past, [&](const Past& one) { return settled(one.access); });
      kept = kept->second.past.empty() ? freed_.erase(kept) : std::next(kept);
    }
    if (freed_.size() > kRanges) {
      dropped_ += freed_.begin()->second.past.size();
      freed_.erase(freed_.begin());
    }
  }
}

void Detector::end_block(Blocks::iterator found, Actor owner, Stack stack) {
  auto& block = found->second;
  const uint64_t base = found->first, end = base + block.size;
  auto past = std::move(block.past);
  std::erase_if(past, [](const Past& one) { return one.lent; });
  if (owner) {
    // Work of the owner's stream that is launched from now on is after what the host and that stream know now.
    const auto& now = current(owner);
    for (auto& access : block.history) {
      if (std::find(block.recorded.begin(), block.recorded.end(), access.actor) != block.recorded.end()) continue;
      const bool ordered = access.actor == owner || access.time <= now.at(access.actor);
      past.push_back({std::move(access), owner, block.allocated, stack, base, block.size, block.device, false});
      if (!ordered) hazards_.push_back(past.back());
    }
  }
  blocks_.erase(found);
  keep_past(base, end, std::move(past));
  if (hazards_.size() > kReports) {
    const size_t over = hazards_.size() - kReports;
    dropped_ += over;
    hazards_.erase(hazards_.begin(), hazards_.begin() + static_cast<std::ptrdiff_t>(over));
  }
}

void Detector::alloc(uint64_t base, uint64_t bytes, int device, int64_t stream, Stack stack) {
  const Lock lock(mutex_);
  ++events_seen_;
  if (!bytes) return;
  const auto owner = actor_of(device, stream);
  for (;;) {  // what lay here has gone unseen
    auto old = blocks_.lower_bound(base);
    if (old != blocks_.begin() && std::prev(old)->first + std::prev(old)->second.size > base) --old;
    if (old == blocks_.end() || old->first >= base + bytes) break;
    end_block(old, old->second.owner, 0);
  }
  auto& block = blocks_[base];
  block.size = bytes;
  block.device = device;
  block.owner = owner;
  block.allocated = stack;
  inherit(base, block);
}

void Detector::free(uint64_t base, int device, int64_t stream, Stack stack) {
  const Lock lock(mutex_);
  ++events_seen_;
  const auto found = blocks_.find(base);
  if (found != blocks_.end()) end_block(found, actor_of(stream < 0 ? -1 : device, stream), stack);
}

bool Detector::free_matters(uint64_t base) {
  const Lock lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end()) return false;
  for (const auto& access : found->second.history)
    if (access.actor != found->second.owner) return true;
  return false;
}

void Detector::record_stream(uint64_t base, int device, int64_t stream) {
  const Lock lock(mutex_);
  ++events_seen_;
  const auto found = find(base);
  if (found == blocks_.end()) return;
  auto& recorded = found->second.recorded;
  const auto actor = actor_of(device, stream);
  if (std::find(recorded.begin(), recorded.end(), actor) == recorded.end()) recorded.push_back(actor);
}

// ---- accesses ----

void Detector::touch(const Clock& now, const Access& access, const events::Operand& operand) {
  uint64_t base = 0;
  auto& block = block_for(operand, base);
  const auto conflicts = [&](const Access& before) {
    return (before.written || access.written) && overlap(before.bytes, access.bytes);
  };
  // Whoever comes after this access comes after that one too.
  const auto replaces = [&](const Access& before) {
    return (access.written || (!before.written && before.actor == access.actor)) && covers(access.bytes, before.bytes);
  };
  std::erase_if(block.past, [&](const Past& past) {
    if (settled(past.access)) return true;
    if (past.access.actor == access.actor || past.access.time <= now.at(past.access.actor)) return replaces(past.access);
    if (!conflicts(past.access)) return false;
    const bool unsafe = past.access.actor != past.owner;
    report(unsafe ? FindingKind::UseAfterFree : FindingKind::Race, past.access, access, past.base, past.size, past.device,
           past.owner, true, past.allocated, past.freed);
    std::erase_if(hazards_, [&](const Past& other) {
      return other.access.actor == past.access.actor && other.access.time == past.access.time && other.base == past.base;
    });
    return true;
  });
  bool held = false;  // an access of the same kernel says as much
  std::erase_if(block.history, [&](const Access& before) {
    if (before.actor == access.actor) {
      if (before.time == access.time && before.written && covers(before.bytes, access.bytes)) {
        held = true;
        return false;
      }
      return replaces(before);
    }
    if (before.time <= now.at(before.actor)) return replaces(before) || settled(before);
    if (conflicts(before)) {
      const bool host = !access.actor;  // what the host did is no record
      report(host ? FindingKind::HostRace : FindingKind::Race, before, access, base, block.size, block.device, block.owner, false,
             block.allocated, 0);
    }
    return false;
  });
  if (held || !access.actor) return;  // whatever is launched later comes after what the host has done
  if (block.history.size() >= kRecords) {
    std::erase_if(block.history, [&](const Access& before) { return settled(before); });
    if (block.history.size() >= kRecords) {
      ++dropped_;
      block.history.erase(block.history.begin());
    }
  }
  block.history.push_back(access);
}

void Detector::launch(int device, int64_t stream, std::string_view operation, const events::Operand* operands, size_t count,
                      bool waits, Stack stack) {
  const Lock lock(mutex_);
  ++events_seen_;
  const auto actor = actor_of(device, stream);
  auto& now = current(actor);
  const auto time = now.tick(actor);
  const auto operation_name = name(operation);
  for (size_t i = 0; i < count; ++i) {
    const auto& operand = operands[i];
    Access access{actor, operand.written, time, operation_name, name(operand.argument), stack,
                  bytes_of(reinterpret_cast<uint64_t>(operand.base) + operand.offset, operand.itemsize, operand.sizes,
                           operand.strides, operand.dims)};
    if (access.bytes.run) touch(now, access, operand);
  }
  if (waits) host_learns(now);
}

void Detector::host_access(std::string_view operation, const events::Operand* operands, size_t count, Stack stack) {
  const Lock lock(mutex_);
  ++events_seen_;
  uint64_t time = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto& operand = operands[i];
    // Memory that no stream has used, a stream will use after this.
    if (find(reinterpret_cast<uint64_t>(operand.base)) == blocks_.end()) continue;
    auto& now = clock_of(0);
    if (!time) {
      time = now.tick(0);
      ++host_version_;
    }
    Access access{0, operand.written, time, name(operation), name(operand.argument), stack,
                  bytes_of(reinterpret_cast<uint64_t>(operand.base) + operand.offset, operand.itemsize, operand.sizes,
                           operand.strides, operand.dims)};
    if (access.bytes.run) touch(now, access, operand);
  }
}

// ---- order ----

void Detector::event_record(uint64_t event, int device, int64_t stream) {
  const Lock lock(mutex_);
  ++events_seen_;
  events_[event] = current(actor_of(device, stream));
}

void Detector::event_wait(uint64_t event, int device, int64_t stream) {
  const Lock lock(mutex_);
  ++events_seen_;
  const auto found = events_.find(event);
  if (found != events_.end()) current(actor_of(device, stream)).join(found->second);
}

void Detector::event_synchronize(uint64_t event) {
  const Lock lock(mutex_);
  ++events_seen_;
  const auto found = events_.find(event);
  if (found != events_.end()) host_learns(found->second);
}

void Detector::stream_synchronize(int device, int64_t stream) {
  const Lock lock(mutex_);
  ++events_seen_;
  host_learns(current(actor_of(device, stream)));
}

// What was freed and is ordered with its block's stream by nothing is a mistake, though the memory was not used again yet.
void Detector::judge(int device) {
  std::erase_if(hazards_, [&](const Past& past) {
    if (device >= 0 && past.device != device && actors_[past.access.actor].device != device) return false;
    if (past.access.time > current(past.owner).at(past.access.actor)) {
      const Access freeing{0, true, 0, name("free"), name(""), past.freed, {}};
      report(FindingKind::UseAfterFree, past.access, freeing, past.base, past.size, past.device, past.owner, false,
             past.allocated, past.freed);
    }
    return true;
  });
}

void Detector::device_synchronize(int device) {
  const Lock lock(mutex_);
  ++events_seen_;
  judge(device);
  for (Actor actor = 1; actor < actors_.size(); ++actor)
    if (actors_[actor].device == device) clock_of(0).join(current(actor));
  ++host_version_;
}

void Detector::finish() {
  const Lock lock(mutex_);
  judge(-1);
}

// ---- findings ----

Side Detector::side(const Access& access) {
  return {*names_[access.operation], *names_[access.argument], actors_[access.actor].device, actors_[access.actor].id,
          access.written, access.stack};
}

void Detector::report(FindingKind kind, const Access& first, const Access& second, uint64_t base, uint64_t bytes, int device,
                      Actor owner, bool reused, Stack allocated, Stack freed) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const uint64_t part : std::initializer_list<uint64_t>{static_cast<uint64_t>(kind), first.actor, first.operation,
                                                             first.argument, first.stack, second.actor, second.operation,
                                                             second.argument, second.stack})
    hash = (hash ^ part ^ hash >> 29) * 0x100000001b3ull;
  if (reported_.contains(hash)) {
    ++repeated_;
    return;
  }
  if (reported_.size() >= kReports) {
    ++dropped_;
    return;
  }
  reported_.insert(hash);
  ++findings_;
  found_.store(true, std::memory_order_release);
  fresh_.push_back({kind, side(first), side(second), actors_[owner].device, actors_[owner].id, base, bytes, device, reused,
                    allocated, freed});
}

std::vector<Finding> Detector::take() {
  const Lock lock(mutex_);
  found_.store(false, std::memory_order_release);
  return std::exchange(fresh_, {});
}

Statistics Detector::statistics() {
  const Lock lock(mutex_);
  Statistics all{events_seen_, blocks_.size(), 0, freed_.size(), findings_, repeated_, dropped_};
  for (const auto& [base, block] : blocks_) all.records += block.history.size() + block.past.size();
  for (const auto& [base, range] : freed_) all.records += range.past.size();
  return all;
}

}  // namespace vnpu::sanitizer
