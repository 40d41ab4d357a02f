// Streams and events. Launches are numbered per stream; an event stands for the number that its stream had when it was recorded.
#include <atomic>
#include <deque>
#include <mutex>

#include "../events.h"
#include "state.h"

struct vnpuStream {
  int device;
  int64_t id;
  int priority;
  std::atomic<uint64_t> launched{0};
  std::atomic<uint64_t> completed{0};
};

struct vnpuEvent {
  explicit vnpuEvent(bool with_timing) : timing(with_timing) {}
  const bool timing;
  std::mutex mutex;
  vnpuStream_t stream = nullptr;  // null until recorded
  uint64_t sequence = 0;
  int64_t time_ns = 0;
};

namespace vnpu {
namespace {

struct DeviceStreams {
  std::mutex mutex;
  std::deque<vnpuStream> streams;  // the index is the id; addresses are stable
};

// Leaked: autograd and user threads may still launch during static destruction.
DeviceStreams& streams_of(int device) {
  static auto* all = new DeviceStreams[VNPU_MAX_DEVICES];
  return all[device];
}

vnpuStream_t stream_at(int device, int64_t id) {
  auto& owned = streams_of(device);
  std::lock_guard<std::mutex> lock(owned.mutex);
  if (owned.streams.empty()) owned.streams.emplace_back(device, 0, 0);
  if (id < 0 || id >= static_cast<int64_t>(owned.streams.size())) return nullptr;
  return &owned.streams[static_cast<size_t>(id)];
}

thread_local vnpuStream_t current_streams[VNPU_MAX_DEVICES] = {};

void emit_sync(events::Kind kind, int device, int64_t stream, const void* event, uint64_t sequence) {
  events::emit({.kind = kind, .device = device, .stream = stream, .pointer = event, .sequence = sequence});
}

}  // namespace
}  // namespace vnpu

using namespace vnpu;

extern "C" {

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
  if (!stream) return VNPU_ERROR_INVALID_HANDLE;
  current_streams[stream->device] = stream;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuLaunch(vnpuStream_t stream, const char* name, vnpuKernel_t kernel, void* argument) {
  if (!stream) return VNPU_ERROR_INVALID_HANDLE;
  if (auto error = usable()) return error;
  const uint64_t sequence = stream->launched.fetch_add(1, std::memory_order_relaxed) + 1;
  events::Event event{.kind = events::Kind::Launch, .device = stream->device, .stream = stream->id, .name = name,
                      .sequence = sequence};
  events::emit(event);
  // A kernel may throw (it is PyTorch's own code): the stream goes on, the exception is the caller's.
  struct Completion {
    vnpuStream_t stream;
    events::Event& event;
    ~Completion() {
      stream->completed.fetch_add(1, std::memory_order_release);
      event.kind = events::Kind::Complete;
      events::emit(event);
    }
  } completion{stream, event};
  kernel(argument);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamQuery(vnpuStream_t stream) {
  if (!stream) return VNPU_ERROR_INVALID_HANDLE;
  const bool idle = stream->completed.load(std::memory_order_acquire) == stream->launched.load(std::memory_order_acquire);
  return idle ? VNPU_SUCCESS : VNPU_ERROR_NOT_READY;
}

vnpuError_t vnpuStreamSynchronize(vnpuStream_t stream) {
  if (!stream) return VNPU_ERROR_INVALID_HANDLE;
  // A launch on this thread has run when it returned; one on another thread is that thread's to order.
  emit_sync(events::Kind::StreamSynchronize, stream->device, stream->id, nullptr, stream->completed.load());
  return VNPU_SUCCESS;
}

vnpuError_t vnpuDeviceSynchronize(int device) {
  if (auto error = usable()) return error;
  if (!valid_device(device)) return VNPU_ERROR_INVALID_DEVICE;
  emit_sync(events::Kind::DeviceSynchronize, device, -1, nullptr, 0);
  return VNPU_SUCCESS;
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
  if (!event || !stream) return VNPU_ERROR_INVALID_HANDLE;
  const uint64_t sequence = stream->launched.load(std::memory_order_acquire);
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->stream = stream;
    event->sequence = sequence;
    event->time_ns = now_ns();
  }
  emit_sync(events::Kind::EventRecord, stream->device, stream->id, event, sequence);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuStreamWaitEvent(vnpuStream_t stream, vnpuEvent_t event) {
  if (!stream || !event) return VNPU_ERROR_INVALID_HANDLE;
  uint64_t sequence;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    if (!event->stream) return VNPU_SUCCESS;
    sequence = event->sequence;
  }
  emit_sync(events::Kind::EventWait, stream->device, stream->id, event, sequence);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventQuery(vnpuEvent_t event) {
  if (!event) return VNPU_ERROR_INVALID_HANDLE;
  vnpuStream_t stream;
  uint64_t sequence;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    stream = event->stream;
    sequence = event->sequence;
  }
  if (!stream) return VNPU_SUCCESS;
  if (stream->completed.load(std::memory_order_acquire) < sequence) return VNPU_ERROR_NOT_READY;
  emit_sync(events::Kind::EventSynchronize, stream->device, stream->id, event, sequence);
  return VNPU_SUCCESS;
}

vnpuError_t vnpuEventSynchronize(vnpuEvent_t event) {
  const auto state = vnpuEventQuery(event);
  return state == VNPU_ERROR_NOT_READY ? VNPU_SUCCESS : state;
}

vnpuError_t vnpuEventElapsed(double* milliseconds, vnpuEvent_t start, vnpuEvent_t end) {
  if (!milliseconds) return VNPU_ERROR_INVALID_VALUE;
  if (!start || !end || !start->timing || !end->timing || !start->stream || !end->stream)
    return VNPU_ERROR_INVALID_HANDLE;
  if (start->stream->device != end->stream->device) return VNPU_ERROR_INVALID_DEVICE;
  *milliseconds = static_cast<double>(end->time_ns - start->time_ns) / 1e6;
  return VNPU_SUCCESS;
}

}  // extern "C"
