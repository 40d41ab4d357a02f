// The table of listeners. Emitting takes no lock: an entry is immutable once published, and never freed, so that a call which
// is under way while its listener is withdrawn still reads valid memory.
#include "../events.h"

#include <mutex>

namespace vnpu::events {
namespace {

struct Entry {
  uint32_t mask;
  Listener listener;
  void* context;
};
constexpr int kSlots = 16;
std::atomic<const Entry*> slots[kSlots];
std::mutex table_mutex;

void publish_union() {
  uint32_t all = 0;
  for (auto& slot : slots)
    if (const auto* entry = slot.load(std::memory_order_relaxed)) all |= entry->mask;
  listened.store(all, std::memory_order_release);
}

}  // namespace

std::atomic<uint32_t> listened{0};
thread_local Copied next_copy;

int subscribe(uint32_t mask, Listener listener, void* context) {
  mask &= (1u << static_cast<unsigned>(Kind::Count)) - 1;
  if (!mask || !listener) return -1;
  std::lock_guard<std::mutex> lock(table_mutex);
  for (int id = 0; id < kSlots; ++id) {
    if (slots[id].load(std::memory_order_relaxed)) continue;
    slots[id].store(new Entry{mask, listener, context}, std::memory_order_release);
    publish_union();
    return id;
  }
  return -1;
}

bool unsubscribe(int id) {
  std::lock_guard<std::mutex> lock(table_mutex);
  if (id < 0 || id >= kSlots || !slots[id].exchange(nullptr)) return false;
  publish_union();
  return true;
}

void dispatch(const Event& event) {
  for (auto& slot : slots) {
    const auto* entry = slot.load(std::memory_order_acquire);
    if (entry && entry->mask >> static_cast<unsigned>(event.kind) & 1u) entry->listener(event, entry->context);
  }
}

}  // namespace vnpu::events
