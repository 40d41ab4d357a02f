// Finds accesses to the same bytes that nothing orders: events in, findings out. It knows neither PyTorch, Python nor the runtime.
//
// Order is happens-before, by vector clocks. The actors are the streams and the host. The host is one actor for all its threads, in
// the order in which their calls are seen: the locks and queues by which threads hand work to each other cannot be seen.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../events.h"
#include "bytes.h"

namespace vnpu::sanitizer {

using Actor = uint32_t;  // 0: the host
using Stack = uint32_t;  // whatever the caller knows a call stack by; 0: none

class Clock {
 public:
  uint64_t at(Actor actor) const { return actor < times_.size() ? times_[actor] : 0; }
  void join(const Clock& other);
  uint64_t tick(Actor actor);

 private:
  std::vector<uint64_t> times_;
};

enum class FindingKind : uint8_t { Race, HostRace, UseAfterFree };

struct Side {
  std::string operation, argument;
  int device;      // -1: the host
  int64_t stream;
  bool written;
  Stack stack;
};

struct Finding {
  FindingKind kind;
  Side first, second;  // in program order
  int owner_device;    // and the stream for which the memory was allocated, -1 where that is unknown
  int64_t owner_stream;
  uint64_t base, bytes;  // of the memory of the first access
  int memory_device;
  bool reused;         // the memory was freed and handed out again between the two
  Stack allocated, freed;
};

struct Statistics {
  uint64_t events, blocks, records, freed, findings, repeated, dropped;
};

class Detector {
 public:
  Detector() : actors_(1) {}

  // Memory is handed out for use on a stream, given back by the host, used on another stream that the allocator knows of.
  void alloc(uint64_t base, uint64_t bytes, int device, int64_t stream, Stack stack);
  void free(uint64_t base, int device, int64_t stream, Stack stack);
  void record_stream(uint64_t base, int device, int64_t stream);
  // Whether other streams than the owner have used the memory, so that where it is freed matters.
  bool free_matters(uint64_t base);

  // `waits`: the host waits for the stream afterwards.
  void launch(int device, int64_t stream, std::string_view name, const events::Operand* operands, size_t count, bool waits,
              Stack stack);
  void host_access(std::string_view name, const events::Operand* operands, size_t count, Stack stack);

  void event_record(uint64_t event, int device, int64_t stream);
  void event_wait(uint64_t event, int device, int64_t stream);
  void event_synchronize(uint64_t event);
  void stream_synchronize(int device, int64_t stream);
  void device_synchronize(int device);
  void finish();  // the program ends: what was freed and never ordered is judged

  bool found() const { return found_.load(std::memory_order_acquire); }  // whether take() has any
  std::vector<Finding> take();  // those that are new since the last time
  Statistics statistics();

 private:
  struct Access {
    Actor actor;
    bool written;
    uint64_t time;
    uint32_t operation, argument;  // names
    Stack stack;
    Bytes bytes;
  };
  struct Past {  // an access to memory that was freed since
    Access access;
    Actor owner;
    Stack allocated, freed;
    uint64_t base, size;
    int device;
    bool lent;  // part of it lies outside of the block that has it now: it is kept for the rest of the memory as well
  };
  struct Block {
    uint64_t size = 0;
    int device = -1;
    Actor owner = 0;  // 0: unknown
    Stack allocated = 0;
    std::vector<Access> history;
    std::vector<Past> past;       // of blocks that lay here before
    std::vector<Actor> recorded;  // streams
  };
  struct Range {
    uint64_t end;
    std::vector<Past> past;
  };
  struct Stream {
    int device = -1;
    int64_t id = -1;
    Clock clock;
    uint64_t host_version = ~uint64_t{0};  // of the host's clock when it was last joined
  };
  using Blocks = std::map<uint64_t, Block>;

  Actor actor_of(int device, int64_t stream);
  Clock& clock_of(Actor actor) { return actors_[actor].clock; }
  Clock& current(Actor stream);  // after all that the host knows
  void host_learns(const Clock& clock);
  bool settled(const Access& access) { return access.time <= clock_of(0).at(access.actor); }
  uint32_t name(std::string_view text);
  Blocks::iterator find(uint64_t address);
  Block& block_for(const events::Operand& operand, uint64_t& base);
  void end_block(Blocks::iterator block, Actor owner, Stack stack);
  void inherit(uint64_t base, Block& block);
  void keep_past(uint64_t base, uint64_t end, std::vector<Past> past);
  void touch(const Clock& now, const Access& access, const events::Operand& operand);
  void judge(int device);
  void report(FindingKind kind, const Access& first, const Access& second, uint64_t base, uint64_t bytes, int device, Actor owner,
              bool reused, Stack allocated, Stack freed);
  Side side(const Access& access);

  std::mutex mutex_;
  std::deque<Stream> actors_;  // references stay valid
  std::unordered_map<uint64_t, Actor> by_stream_;
  uint64_t host_version_ = 0;
  std::unordered_map<uint64_t, Clock> events_;
  Blocks blocks_;
  std::map<uint64_t, Range> freed_;  // by first address; ranges do not overlap
  std::vector<Past> hazards_;        // freed before they were ordered with their block's stream, and not judged yet
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> name_ids_;
  std::vector<const std::string*> names_;
  std::unordered_set<uint64_t> reported_;  // hashes
  std::vector<Finding> fresh_;
  std::atomic<bool> found_{false};
  uint64_t events_seen_ = 0, findings_ = 0, repeated_ = 0, dropped_ = 0;
};

}  // namespace vnpu::sanitizer
