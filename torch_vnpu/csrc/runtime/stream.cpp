// Streams: a queue each, and the thread that works it off. Events: marks in a stream, which others wait for.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../events.h"
#include "state.h"

namespace vnpu {
namespace {

constexpr size_t kQueueDepth = 4096;  // tasks; the host waits at a full queue
constexpr std::chrono::seconds kIdle{1};  // without work, after which a queue's thread ends
constexpr int kSpins = 2000;          // looks at an empty queue before its thread sleeps: some tens of microseconds

// Lets the other hardware thread of a core work while this one looks at a queue.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Task {
  const char* name;  // null: an event's mark or wait, which is no launch
  vnpuKernel_t kernel;
  void* argument;
  uint64_t number;  // of the launch on its stream
};

// How many kernels run at once, so that host and queues together never have more threads than there are cores.
class Slots {
 public:
  void resize(int count) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_ += count - count_;
    count_ = count;
    freed_.notify_all();
  }
  void take() {
    std::unique_lock<std::mutex> lock(mutex_);
    freed_.wait(lock, [&] { return free_ > 0; });
    --free_;
  }
  void give() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++free_;
    }
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int count_ = 1;
  int free_ = 1;
};

// Leaked, as all that follows: threads may work while static objects are destroyed.
Slots& slots() {
  static auto* all = new Slots;
  return *all;
}
std::atomic<void (*)()> thread_start{nullptr};

std::atomic<void* (*)()> before_waiting{nullptr};
std::atomic<void (*)(void*)> after_waiting{nullptr};

// Around every sleep of a host thread.
class Waiting {
 public:
  Waiting() {
    if (auto* before = before_waiting.load()) held_ = before();
  }
  ~Waiting() {
    if (auto* after = after_waiting.load()) after(held_);
  }

 private:
  void* held_ = nullptr;
};

thread_local char this_thread;  // its address tells threads apart

thread_local vnpuStream_t worked_off = nullptr;  // the stream whose queue this thread works off

}  // namespace
}  // namespace vnpu

struct vnpuStream {
  vnpuStream(int of_device, int64_t with_id, int with_priority)
      : device(of_device), id(with_id), priority(with_priority) {}

  const int device;
  const int64_t id;
  const int priority;
  std::atomic<uint64_t> numbers{0};  // launches, queued or not

  std::mutex turn;  // held by the thread that runs a kernel of the stream
  std::atomic<const void*> turn_of{nullptr};
  int turn_depth = 0;

  std::mutex mutex;  // of what follows, down to failure
  std::condition_variable filled, emptied, done;
  std::deque<vnpu::Task> queue;
  bool started = false;
  bool asleep = false;
  int waiting_for_space = 0;
  std::string failure;

  std::atomic<bool> destroyed{false};
  std::atomic<bool> failed{false};
  std::atomic<uint64_t> queued{0};     // tasks put in, ever
  std::atomic<uint64_t> completed{0};  // tasks worked off
  std::atomic<int> waiters{0};         // threads in wait()

  bool idle() const { return completed.load() == queued.load(); }
  void put(const vnpu::Task& task);  // or runs it, where the system gives no thread for the queue
  bool wait(uint64_t target);  // false where this thread cannot wait for it
  void work();
  void run(const vnpu::Task& task);
};

// Shared with the marks that are still queued, so that an event can be destroyed at any time.
struct EventState {
  std::mutex mutex;
  std::condition_variable completed_changed;
  vnpuStream_t stream = nullptr;  // of the latest record; null until then
  uint64_t number = 0;            // launches before the latest record
  uint64_t recorded = 0;          // records, ever
  uint64_t completed = 0;         // the latest record whose mark was reached
  int64_t time_ns = 0;            // when that was

  void complete(uint64_t record) {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (record > completed) {
        completed = record;
        time_ns = vnpu::now_ns();
      }
    }
    completed_changed.notify_all();
  }
  void wait(uint64_t record) {
    vnpu::Waiting waiting;
    std::unique_lock<std::mutex> lock(mutex);
    completed_changed.wait(lock, [&] { return completed >= record; });
  }
};

struct vnpuEvent {
  explicit vnpuEvent(bool with_timing) : timing(with_timing) {}
  const bool timing;
  const std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

void vnpuStream::put(const vnpu::Task& task) {
  std::unique_lock<std::mutex> lock(mutex);
  // A listener on the queue's own thread may launch too: nobody else would make room for it.
  if (queue.size() >= vnpu::kQueueDepth && vnpu::worked_off != this) {
    lock.unlock();
    vnpu::Waiting waiting;
    lock.lock();
    ++waiting_for_space;
    emptied.wait(lock, [&] { return queue.size() < vnpu::kQueueDepth; });
    --waiting_for_space;
  }
  if (!started) {
    try {
      std::thread([this] { work(); }).detach();  // it waits for the mutex first
    } catch (const std::system_error&) {
      lock.unlock();
      return run(task);  // nothing is queued before it
    }
    started = true;
  }
  queue.push_back(task);
  queued.fetch_add(1);
  if (asleep) filled.notify_one();
}

bool vnpuStream::wait(uint64_t target) {
  // A listener or a kernel, inside one of the tasks that it would wait for, or in front of them.
  if (vnpu::worked_off == this || turn_of.load(std::memory_order_relaxed) == &vnpu::this_thread)
    return completed.load() >= target;
  for (int spin = 0; spin < vnpu::kSpins; ++spin) {
    if (completed.load() >= target) return true;
    vnpu::relax();
  }
  vnpu::Waiting waiting;
  std::unique_lock<std::mutex> lock(mutex);
  // The worker looks at `waiters` after it has counted a task, and we look at the count after we are one.
  waiters.fetch_add(1);
  done.wait(lock, [&] { return completed.load() >= target; });
  waiters.fetch_sub(1);
  return true;
}

namespace vnpu {
namespace {
// Kernels of a stream run one after the other, whichever threads launch them.
class Turn {
 public:
  explicit Turn(vnpuStream_t stream) : stream_(stream) {
    if (stream->turn_of.load(std::memory_order_relaxed) == &this_thread) {  // inside a kernel of the same stream
      ++stream->turn_depth;
      return;
    }
    if (!stream->turn.try_lock()) {
      Waiting waiting;
      stream->turn.lock();
    }
    stream->turn_of.store(&this_thread, std::memory_order_relaxed);
  }
  ~Turn() {
    if (stream_->turn_depth) {
      --stream_->turn_depth;
      return;
    }
    stream_->turn_of.store(nullptr, std::memory_order_relaxed);
    stream_->turn.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  vnpuStream_t stream_;
};
}  // namespace
}  // namespace vnpu

void vnpuStream::run(const vnpu::Task& task) {
  using namespace vnpu;
  if (!task.name) {
    task.kernel(task.argument);
    return;
  }
  const Turn turn(this);  // before the slot: a kernel on the host may wait for kernels that need one
  slots().take();
  events::emit({.kind = events::Kind::Start, .device = device, .stream = id, .name = task.name, .sequence = task.number});
  task.kernel(task.argument);
  slots().give();
  events::emit({.kind = events::Kind::Complete, .device = device, .stream = id, .name = task.name, .sequence = task.number});
}

void vnpuStream::work() {
  vnpu::worked_off = this;
  if (auto* start = vnpu::thread_start.load()) start();
  std::deque<vnpu::Task> batch;
  for (;;) {
    for (int spin = 0; spin < vnpu::kSpins && idle() && !destroyed.load(); ++spin) vnpu::relax();
    {
      std::unique_lock<std::mutex> lock(mutex);
      asleep = true;
      // Nobody tells that a stream is not used any more: one without work gives its thread back.
      filled.wait_for(lock, vnpu::kIdle, [&] { return !queue.empty() || destroyed.load(); });
      asleep = false;
      if (queue.empty()) {  // should anything still come, it gets a new thread
        started = false;
        return;
      }
      batch.swap(queue);
      if (waiting_for_space) emptied.notify_all();
    }
    for (const auto& task : batch) {
      run(task);
      completed.fetch_add(1);
      if (waiters.load()) {
        std::lock_guard<std::mutex> lock(mutex);
        done.notify_all();
      }
    }
    batch.clear();
  }
}

namespace vnpu {
namespace {

struct DeviceStreams {
  std::mutex mutex;
  std::deque<vnpuStream> streams;  // the index is the id; addresses are stable
};

DeviceStreams& streams_of(int device) {
  static auto* all = new DeviceStreams[VNPU_MAX_DEVICES];
  return all[device];
}

bool live(vnpuStream_t stream) { return stream && !stream->destroyed.load(std::memory_order_relaxed); }

vnpuStream_t stream_at(int device, int64_t id) {
  auto& owned = streams_of(device);
  std::lock_guard<std::mutex> lock(owned.mutex);
  if (owned.streams.empty()) owned.streams.emplace_back(device, 0, 0);
  if (id < 0 || id >= static_cast<int64_t>(owned.streams.size())) return nullptr;
  auto* stream = &owned.streams[static_cast<size_t>(id)];
  return live(stream) ? stream : nullptr;
}

std::vector<vnpuStream_t> all_streams(int device) {
  auto& owned = streams_of(device);
  std::lock_guard<std::mutex> lock(owned.mutex);
  std::vector<vnpuStream_t> all;
  for (auto& stream : owned.streams) all.push_back(&stream);
  return all;
}

// The handle may be any value: it is only compared.
vnpuError_t find(vnpuStream_t handle) {
  if (auto error = usable()) return error;
  for (int device = 0; handle && valid_device(device); ++device)
    for (auto* stream : all_streams(device))
      if (stream == handle) return live(stream) ? VNPU_SUCCESS : VNPU_ERROR_INVALID_HANDLE;
  return VNPU_ERROR_INVALID_HANDLE;
}

thread_local vnpuStream_t current_streams[VNPU_MAX_DEVICES] = {};

void emit_sync(events::Kind kind, int device, int64_t stream, const void* event, uint64_t number) {
  events::emit({.kind = kind, .device = device, .stream = stream, .pointer = event, .sequence = number});
}

// VNPU_ERROR_LAUNCH_FAILED, with the detail set, where a kernel of the stream has failed since the last time.
vnpuError_t take_failure(vnpuStream_t stream) {
  if (__builtin_expect(!stream->failed.load(), 1)) return VNPU_SUCCESS;
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (!stream->failed.exchange(false)) return VNPU_SUCCESS;
  set_detail(std::move(stream->failure));
  stream->failure.clear();
  return VNPU_ERROR_LAUNCH_FAILED;
}

vnpuError_t drain(vnpuStream_t stream) {
  stream->wait(stream->queued.load());
  return take_failure(stream);
}

uint64_t begin_launch(vnpuStream_t stream, const char* name) {
  const uint64_t number = stream->numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  if (__builtin_expect(events::listening(events::Kind::Launch), 0)) {
    const auto copied = std::exchange(events::next_copy, {});
    events::dispatch({.kind = events::Kind::Launch, .device = stream->device, .stream = stream->id, .name = name,
                      .bytes = copied.bytes, .copy = copied.copy, .sequence = number});
  }
  return number;
}

// Emits when it goes, however that happens.
struct Afterwards {
  events::Event event;
  ~Afterwards() { events::emit(event); }
};

}  // namespace
}  // namespace vnpu

using namespace vnpu;

extern "C" {

void vnpuConfigureQueues(void (*start)(void), int kernels) {
  thread_start.store(start);
  slots().resize(kernels > 0 ? kernels : 1);
}

void vnpuConfigureWaiting(void* (*before)(void), void (*after)(void*)) {
  after_waiting.store(after);
  before_waiting.store(before);
}

vnpuError_t vnpuStreamCreate(vnpuStream_t* stream, int device, int priority) {
  if (!stream) return VNPU_ERROR_INVALID_VALUE;
  *stream = nullptr;
  if (auto error = usable()) return error;
  if (!valid_device(device)) return VNPU_ERROR_INVALID_DEVICE;
  stream_at(device, 0);
  auto& owned = streams_of(device);
  std::lock_guard<std::mutex> lock(owned.mutex);
  *stream = &owned.streams.emplace_back(device, static_cast<int64_t>(owned.streams.size()), priority);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamDestroy(vnpuStream_t stream) {
  if (auto error = find(stream)) return error;
  if (!stream->id || stream->destroyed.exchange(true)) return VNPU_ERROR_INVALID_HANDLE;
  std::lock_guard<std::mutex> lock(stream->mutex);
  stream->filled.notify_one();
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamCheck(vnpuStream_t stream) { return find(stream); }

vnpuError_t vnpuStreamFromId(vnpuStream_t* stream, int device, int64_t id) {
  if (!stream) return VNPU_ERROR_INVALID_VALUE;
  if (device < 0 || device >= VNPU_MAX_DEVICES) return VNPU_ERROR_INVALID_DEVICE;
  *stream = stream_at(device, id);
  return *stream ? VNPU_SUCCESS : VNPU_ERROR_INVALID_HANDLE;
}

int64_t vnpuStreamId(vnpuStream_t stream) { return stream ? stream->id : -1; }
int vnpuStreamDevice(vnpuStream_t stream) { return stream ? stream->device : -1; }
int vnpuStreamPriority(vnpuStream_t stream) { return stream ? stream->priority : 0; }

vnpuStream_t vnpuGetCurrentStream(int device) {
  if (device < 0 || device >= VNPU_MAX_DEVICES) return nullptr;
  auto& current = current_streams[device];
  if (__builtin_expect(!current, 0)) current = stream_at(device, 0);
  return current;
}

vnpuError_t vnpuSetCurrentStream(vnpuStream_t stream) {
  if (!live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  current_streams[stream->device] = stream;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuLaunch(vnpuStream_t stream, const char* name, vnpuKernel_t kernel, void* argument) {
  if (!live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  // A listener on the queue's own thread cannot wait for it, so what it launches runs at once.
  if (!vnpuQueueEnabled() || worked_off == stream) return vnpuRun(stream, name, kernel, argument, 1);
  const uint64_t number = begin_launch(stream, name);
  stream->put({name, kernel, argument, number});
  events::emit({.kind = events::Kind::Launched, .device = stream->device, .stream = stream->id, .sequence = number});
  return VNPU_SUCCESS;
}

vnpuError_t vnpuRun(vnpuStream_t stream, const char* name, vnpuKernel_t kernel, void* argument, int exclusive) {
  if (!live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  if (auto error = drain(stream)) return error;
  events::Event event{.device = stream->device, .stream = stream->id, .name = name, .sequence = begin_launch(stream, name)};
  // A kernel may throw (it is PyTorch's own code): the stream goes on, the exception is the caller's.
  event.kind = events::Kind::Launched;
  const Afterwards launched{event};
  std::optional<Turn> turn;
  if (exclusive) turn.emplace(stream);
  event.kind = events::Kind::Complete;
  const Afterwards complete{event};  // before the next one's start, so in the turn
  event.kind = events::Kind::Start;
  events::emit(event);
  kernel(argument);
  return VNPU_SUCCESS;
}

void vnpuFail(vnpuStream_t stream, const char* detail) {
  std::lock_guard<std::mutex> lock(stream->mutex);
  if (stream->failed.load()) return;
  stream->failure = detail;
  stream->failed.store(true);
}

vnpuError_t vnpuStreamQuery(vnpuStream_t stream) {
  if (!live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  if (!stream->idle()) return VNPU_ERROR_NOT_READY;
  emit_sync(events::Kind::StreamSynchronize, stream->device, stream->id, nullptr, stream->numbers.load());
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamSynchronize(vnpuStream_t stream) {
  if (!live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  const auto failure = drain(stream);
  emit_sync(events::Kind::StreamSynchronize, stream->device, stream->id, nullptr, stream->numbers.load());
  return failure;
}

vnpuError_t vnpuDeviceSynchronize(int device) {
  if (auto error = usable()) return error;
  if (!valid_device(device)) return VNPU_ERROR_INVALID_DEVICE;
  auto first = VNPU_SUCCESS;
  for (auto* stream : all_streams(device)) {
    stream->wait(stream->queued.load());
    if (!first) first = take_failure(stream);
  }
  emit_sync(events::Kind::DeviceSynchronize, device, -1, nullptr, 0);
  return first;
}

uint64_t vnpuStreamMark(vnpuStream_t stream) { return stream->queued.load(); }
int vnpuStreamReached(vnpuStream_t stream, uint64_t mark) { return stream->completed.load() >= mark; }

int vnpuDeviceDrain(int device) {
  if (usable() || !valid_device(device)) return 0;
  bool all = true;
  for (auto* stream : all_streams(device)) all &= stream->wait(stream->queued.load());
  return all;
}

vnpuError_t vnpuEventCreate(vnpuEvent_t* event, int timing) {
  if (!event) return VNPU_ERROR_INVALID_VALUE;
  *event = new vnpuEvent(timing != 0);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventDestroy(vnpuEvent_t event) {
  if (!event) return VNPU_ERROR_INVALID_HANDLE;
  delete event;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventRecord(vnpuEvent_t event, vnpuStream_t stream) {
  if (!event || !live(stream)) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  const uint64_t number = stream->numbers.load();
  uint64_t record;
  {
    std::lock_guard<std::mutex> lock(event->state->mutex);
    event->state->stream = stream;
    event->state->number = number;
    record = ++event->state->recorded;
  }
  if (stream->idle()) {
    event->state->complete(record);
  } else {
    struct Mark {
      std::shared_ptr<EventState> state;
      uint64_t record;
    };
    stream->put({nullptr,
                 [](void* argument) {
                   std::unique_ptr<Mark> mark(static_cast<Mark*>(argument));
                   mark->state->complete(mark->record);
                 },
                 new Mark{event->state, record}, 0});
  }
  emit_sync(events::Kind::EventRecord, stream->device, stream->id, event, number);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamWaitEvent(vnpuStream_t stream, vnpuEvent_t event) {
  if (!live(stream) || !event) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  uint64_t record, number;
  bool reached;
  {
    std::lock_guard<std::mutex> lock(event->state->mutex);
    if (!event->state->stream) return VNPU_SUCCESS;
    record = event->state->recorded;
    number = event->state->number;
    reached = event->state->completed >= record || event->state->stream == stream;
  }
  if (!reached) {
    struct Wait {
      std::shared_ptr<EventState> state;
      uint64_t record;
    };
    stream->put({nullptr,
                 [](void* argument) {
                   std::unique_ptr<Wait> wait(static_cast<Wait*>(argument));
                   wait->state->wait(wait->record);
                 },
                 new Wait{event->state, record}, 0});
  }
  emit_sync(events::Kind::EventWait, stream->device, stream->id, event, number);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventQuery(vnpuEvent_t event) {
  if (!event) return VNPU_ERROR_INVALID_HANDLE;
  vnpuStream_t stream;
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(event->state->mutex);
    if (!event->state->stream) return VNPU_SUCCESS;
    if (event->state->completed < event->state->recorded) return VNPU_ERROR_NOT_READY;
    stream = event->state->stream;
    number = event->state->number;
  }
  emit_sync(events::Kind::EventSynchronize, stream->device, stream->id, event, number);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventSynchronize(vnpuEvent_t event) {
  if (!event) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  vnpuStream_t stream;
  uint64_t record, number;
  {
    std::lock_guard<std::mutex> lock(event->state->mutex);
    stream = event->state->stream;
    record = event->state->recorded;
    number = event->state->number;
  }
  if (!stream) return VNPU_SUCCESS;
  event->state->wait(record);
  emit_sync(events::Kind::EventSynchronize, stream->device, stream->id, event, number);
  return take_failure(stream);
}

vnpuError_t vnpuEventElapsed(double* milliseconds, vnpuEvent_t start, vnpuEvent_t end) {
  if (!milliseconds) return VNPU_ERROR_INVALID_VALUE;
  if (!start || !end || !start->timing || !end->timing) return VNPU_ERROR_INVALID_HANDLE;
  struct Reached {
    int device = -1;
    bool completed = false;
    int64_t time_ns = 0;
  } marks[2];
  const vnpuEvent_t both[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    auto& state = *both[i]->state;
    std::lock_guard<std::mutex> lock(state.mutex);
    if (!state.stream) return VNPU_ERROR_INVALID_HANDLE;
    marks[i] = {state.stream->device, state.completed >= state.recorded, state.time_ns};
  }
  if (marks[0].device != marks[1].device) return VNPU_ERROR_INVALID_DEVICE;
  if (!marks[0].completed || !marks[1].completed) return VNPU_ERROR_NOT_READY;
  *milliseconds = static_cast<double>(marks[1].time_ns - marks[0].time_ns) / 1e6;
  return VNPU_SUCCESS;
}

}  // extern "C"
