// One table of listeners for everything that happens on the virtual device. The sanitizer, the logs and the profiler subscribe;
// where nobody listens to a kind, an emitting site costs one relaxed load.
#pragma once
#include <atomic>
#include <cstdint>

namespace vnpu::events {

enum class Kind : uint8_t {
  Launch,            // a kernel enters a stream
  Complete,          // and has run
  Alloc,             // device memory is handed out, for use on a stream
  Free,              // and given back by the host; work that is queued may still use it
  RecordStream,      // memory is used on another stream than its own: it is not handed out again before that work is done
  EventRecord,       // an event is recorded on a stream
  EventWait,         // a stream waits for an event
  EventSynchronize,  // the host waits for an event, or saw it complete
  StreamSynchronize, // the host waits for a stream
  DeviceSynchronize, // the host waits for a device
  Launched,          // the launching call has done: the kernel is queued, or has run
  Start,             // a kernel begins to run
  Access,            // what a kernel reads and writes; told once its results are known, on the thread that launched it
  HostAccess,        // a CPU operator reads or writes pinned memory; told from the first asynchronous copy of such memory on
  Count,
};

// What a launch moves, where it is a copy.
enum class Copy : uint8_t { None, HostToDevice, DeviceToHost, WithinDevice, BetweenDevices };

// One operand of a kernel: elements in the memory [base, base + storage_bytes). Lives as long as the call of the listener.
struct Operand {
  const char* argument = "";     // the schema's name of the argument, "return" for a result
  const void* base = nullptr;
  uint64_t storage_bytes = 0;
  int device = -1;               // -1: host memory
  bool written = false;
  uint64_t offset = 0;           // of the first element, in bytes
  uint64_t itemsize = 0;
  uint32_t dims = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // in elements
};

struct Event {
  Kind kind;
  int device = -1;
  int64_t stream = -1;          // stream id, -1 where none takes part
  const char* name = "";        // the kernel's name; lives as long as the process or the call
  const void* pointer = nullptr; // memory, or the event's handle
  uint64_t bytes = 0;            // of the memory, or that a copy moves
  Copy copy = Copy::None;       // of a launch
  uint64_t sequence = 0;         // of the launch on its stream, or of the event's latest record; 0 where none
  const Operand* operands = nullptr;  // of an access
  uint32_t count = 0;
  bool waits = false;           // the host waits for the stream after this kernel
};

using Listener = void (*)(const Event& event, void* context);

// Listens to the kinds in `mask` (bit 1 << kind). Returns an id for unsubscribe, or -1 when the table is full.
// A listener is called on the thread where the thing happens, and must not throw; except that a listener to accesses or to device
// synchronisation may, and the call where it happens fails. At the start and the end of a kernel no other kernel of its stream can
// run; no lock of the runtime is held otherwise.
int subscribe(uint32_t mask, Listener listener, void* context);
// Returns false for an unknown id. A call of the listener may still be under way on another thread when it returns.
bool unsubscribe(int id);

// What the calling thread's next launch copies: set by whoever launches it, taken by the launch.
struct Copied {
  Copy copy = Copy::None;
  uint64_t bytes = 0;
};
extern thread_local Copied next_copy;

extern std::atomic<uint32_t> listened;  // union of all masks
void dispatch(const Event& event);      // the slow side of emit

inline bool listening(Kind kind) {
  return (listened.load(std::memory_order_relaxed) >> static_cast<unsigned>(kind)) & 1u;
}
inline void emit(const Event& event) {
  if (__builtin_expect(listening(event.kind), 0)) dispatch(event);
}

}  // namespace vnpu::events
