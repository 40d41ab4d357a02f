// Devices: how many, how large, which is current, and the state of the runtime in this process.
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "state.h"

namespace vnpu {
namespace {

constexpr int kDefaultDevices = 2;
constexpr size_t kDefaultCapacity = size_t{8} << 30;

std::mutex init_mutex;
std::atomic<bool> open{false};
std::atomic<bool> initialised{false};
std::atomic<bool> bad_fork{false};
Settings settings;
thread_local int current_device = 0;
thread_local std::string detail;

vnpuError_t bad_environment(std::string text) {
  detail = std::move(text);
  return VNPU_ERROR_BAD_ENVIRONMENT;
}

bool whole_number(const char* text, char** end, unsigned long long& value) {
  while (*text == ' ') ++text;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  value = std::strtoull(text, end, 10);
  while (**end == ' ') ++*end;
  return errno == 0;
}

vnpuError_t read_devices(int& devices) {
  devices = kDefaultDevices;
  if (const char* text = std::getenv("VNPU_DEVICES"); text && *text) {
    char* end = nullptr;
    unsigned long long value = 0;
    if (!whole_number(text, &end, value) || *end || value > VNPU_MAX_DEVICES)
      return bad_environment("VNPU_DEVICES is '" + std::string(text) + "', but must be a whole number from 0 to " +
                             std::to_string(VNPU_MAX_DEVICES));
    devices = static_cast<int>(value);
  }
  const char* visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  if (!visible) return VNPU_SUCCESS;
  int seen = 0;
  uint64_t used = 0;
  for (const char* text = visible; *text;) {
    char* end = nullptr;
    unsigned long long ordinal = 0;
    if (!whole_number(text, &end, ordinal) || (*end && *end != ','))
      return bad_environment("ASCEND_RT_VISIBLE_DEVICES is '" + std::string(visible) +
                             "', but must be a list of device numbers such as '0,1'");
    if (ordinal >= static_cast<unsigned long long>(devices)) break;
    if (used >> ordinal & 1)
      return bad_environment("ASCEND_RT_VISIBLE_DEVICES is '" + std::string(visible) + "', which names device " +
                             std::to_string(ordinal) + " twice");
    used |= uint64_t{1} << ordinal;
    ++seen;
    text = *end ? end + 1 : end;
  }
  devices = seen;
  return VNPU_SUCCESS;
}

vnpuError_t read_capacity(size_t& capacity) {
  capacity = kDefaultCapacity;
  const char* text = std::getenv("VNPU_MEMORY");
  if (!text || !*text) return VNPU_SUCCESS;
  char* end = nullptr;
  unsigned long long value = 0;
  if (whole_number(text, &end, value)) {
    int shift = 0;
    switch (*end) {
      case 'k': case 'K': shift = 10; break;
      case 'm': case 'M': shift = 20; break;
      case 'g': case 'G': shift = 30; break;
      case 't': case 'T': shift = 40; break;
    }
    const char* rest = shift ? end + 1 : end;
    const bool unit_ends = !*rest || !strcasecmp(rest, "b") || (shift && !strcasecmp(rest, "ib"));
    if (unit_ends && value > 0 && value <= (~0ull >> 1 >> shift)) {
      capacity = static_cast<size_t>(value) << shift;
      return VNPU_SUCCESS;
    }
  }
  return bad_environment("VNPU_MEMORY is '" + std::string(text) +
                         "', but must be the capacity of each device in bytes, or such as '512M' or '16G'");
}

vnpuError_t read_queues(bool& queues) {
  queues = true;
  const char* text = std::getenv("TASK_QUEUE_ENABLE");
  if (text && *text) {
    // 2 is a deeper queue on real hardware; here it is the same as 1.
    if (std::strcmp(text, "0") && std::strcmp(text, "1") && std::strcmp(text, "2"))
      return bad_environment("TASK_QUEUE_ENABLE is '" + std::string(text) + "', but must be 0, 1 or 2");
    queues = *text != '0';
  }
  const char* blocking = std::getenv("ASCEND_LAUNCH_BLOCKING");
  if (blocking && !std::strcmp(blocking, "1")) queues = false;
  return VNPU_SUCCESS;
}

}  // namespace

vnpuError_t read_environment(Settings& out) {
  if (auto error = read_devices(out.devices)) return error;
  if (auto error = read_queues(out.queues)) return error;
  return read_capacity(out.capacity);
}

void set_detail(std::string text) { detail = std::move(text); }

const Settings& fixed_settings() { return settings; }

bool valid_device(int device) { return device >= 0 && device < settings.devices; }

vnpuError_t usable() {
  if (__builtin_expect(bad_fork.load(std::memory_order_relaxed), 0)) return VNPU_ERROR_BAD_FORK;
  if (__builtin_expect(initialised.load(std::memory_order_acquire), 1)) return VNPU_SUCCESS;
  return vnpuInit();
}

int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace vnpu

using namespace vnpu;

extern "C" {

const char* vnpuGetErrorString(vnpuError_t error) {
  switch (error) {
    case VNPU_SUCCESS: return "success";
    case VNPU_ERROR_INVALID_VALUE: return "invalid value";
    case VNPU_ERROR_INVALID_DEVICE: return "invalid device ordinal";
    case VNPU_ERROR_OUT_OF_MEMORY: return "out of memory";
    case VNPU_ERROR_INVALID_HANDLE: return "invalid handle";
    case VNPU_ERROR_NOT_READY: return "not ready";
    case VNPU_ERROR_BAD_FORK: return "the process was forked after the runtime had been initialised";
    case VNPU_ERROR_BAD_ENVIRONMENT: return "an environment variable cannot be read";
    case VNPU_ERROR_LAUNCH_FAILED: return "a kernel that was launched before has failed";
    case VNPU_ERROR_ALREADY_REGISTERED: return "the host memory is pinned already, in whole or in part";
    case VNPU_ERROR_NOT_REGISTERED: return "no registered host memory starts here";
    case VNPU_ERROR_CLOSED: return "the import of torch_vnpu has not finished, and must not use a device";
  }
  return "unknown error";
}

const char* vnpuGetLastErrorDetail(void) { return detail.c_str(); }

vnpuError_t vnpuGetDeviceCount(int* count) {
  if (!count) return VNPU_ERROR_INVALID_VALUE;
  if (initialised.load(std::memory_order_acquire)) {
    *count = settings.devices;
    return VNPU_SUCCESS;
  }
  *count = 0;
  return read_devices(*count);
}

void vnpuOpen(void) { open.store(true); }

vnpuError_t vnpuInit(void) {
  if (bad_fork.load(std::memory_order_relaxed)) return VNPU_ERROR_BAD_FORK;
  if (!open.load()) return VNPU_ERROR_CLOSED;
  std::lock_guard<std::mutex> lock(init_mutex);
  if (initialised.load(std::memory_order_relaxed)) return VNPU_SUCCESS;
  Settings read;
  if (auto error = read_environment(read)) return error;
  settings = read;
  pthread_atfork(nullptr, nullptr, [] { bad_fork.store(true); });
  initialised.store(true, std::memory_order_release);
  return VNPU_SUCCESS;
}

int vnpuQueueEnabled(void) { return settings.queues && initialised.load(std::memory_order_acquire); }
int vnpuIsInitialized(void) { return initialised.load(std::memory_order_acquire) && !bad_fork.load(); }
int vnpuInBadFork(void) { return bad_fork.load(); }

vnpuError_t vnpuSetDevice(int device) {
  if (auto error = usable()) return error;
  if (!valid_device(device)) return VNPU_ERROR_INVALID_DEVICE;
  current_device = device;
  return VNPU_SUCCESS;
}

vnpuError_t vnpuGetDevice(int* device) {
  if (!device) return VNPU_ERROR_INVALID_VALUE;
  *device = current_device;
  return VNPU_SUCCESS;
}

}  // extern "C"
