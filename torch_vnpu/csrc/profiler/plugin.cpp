// torch.profiler's view of the device: a plugin of libkineto that turns what happens on the streams between start and stop into
// activities. For each launch: a call of the runtime on the launching thread, and the kernel (or copy, or memset) in the lane of
// its stream, joined by a flow.
#include <libkineto.h>
#include <output_base.h>
#include <sys/syscall.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../events.h"
#include "../runtime/state.h"
#include "../runtime/vnpu_runtime.h"

namespace vnpu {
namespace {

using namespace libkineto;
using events::Copy;
using events::Event;
using events::Kind;

constexpr int64_t kBelowTheHost = 5'000'000;  // sorts devices after the processes, whose index is far lower

// The operators that are under way on this thread, by kineto's numbers.
thread_local std::vector<uint64_t> operators;

int this_thread_id() {
  static thread_local const int id = static_cast<int>(syscall(SYS_gettid));
  return id;
}

struct Launch {
  std::string name;
  Copy copy = Copy::None;
  uint64_t bytes = 0;
  uint64_t op = 0;  // 0: outside of any
  int thread = 0;
  int64_t called = 0, returned = 0, started = 0, ended = 0;
};
using Key = std::tuple<int, int64_t, uint64_t>;  // device, stream, number on it

struct KeyHash {
  size_t operator()(const Key& key) const {
    const auto [device, stream, number] = key;
    return static_cast<size_t>(number * 0x9e3779b97f4a7c15ull ^ static_cast<uint64_t>(stream) << 8 ^ static_cast<uint64_t>(device));
  }
};

void drain_all() {
  int count = 0;
  if (!vnpuIsInitialized() || vnpuGetDeviceCount(&count)) return;
  for (int device = 0; device < count; ++device) vnpuDeviceDrain(device);
}

bool is_memset(const std::string& name) {
  return name == "aten::zero_" || name.starts_with("aten::fill_");
}

ActivityType type_of(const Launch& launch) {
  if (launch.copy != Copy::None) return ActivityType::GPU_MEMCPY;
  return is_memset(launch.name) ? ActivityType::GPU_MEMSET : ActivityType::CONCURRENT_KERNEL;
}

// As viewers and analysers know copies; a kernel is the operator's, and not to be taken for the operator itself.
std::string device_name(const Launch& launch) {
  switch (launch.copy) {
    case Copy::HostToDevice: return "Memcpy HtoD";
    case Copy::DeviceToHost: return "Memcpy DtoH";
    case Copy::WithinDevice: return "Memcpy DtoD";
    case Copy::BetweenDevices: return "Memcpy PtoP";
    case Copy::None: break;
  }
  if (is_memset(launch.name)) return "Memset (" + launch.name + ")";
  constexpr std::string_view kAten = "aten::";
  return "npu::" + (launch.name.starts_with(kAten) ? launch.name.substr(kAten.size()) : launch.name);
}

const char* call_name(ActivityType type) {
  switch (type) {
    case ActivityType::GPU_MEMCPY: return "npuMemcpyAsync";
    case ActivityType::GPU_MEMSET: return "npuMemsetAsync";
    default: return "npuLaunchKernel";
  }
}

class Session final : public IActivityProfilerSession {
 public:
  ~Session() override {
    stop_listening();
    give_log(log_);
  }

  // What was launched before has run by then, and what is launched until the end has when it is over: nothing is cut.
  void start() override {
    drain_all();
    const uint32_t kinds = 1u << static_cast<unsigned>(Kind::Launch) | 1u << static_cast<unsigned>(Kind::Launched) |
                           1u << static_cast<unsigned>(Kind::Start) | 1u << static_cast<unsigned>(Kind::Complete);
    listener_ = events::subscribe(kinds, &Session::note, log_);
    if (listener_ < 0) problems_.push_back("npu: the table of listeners is full, so no device activity is recorded");
    status_ = TraceStatus::RECORDING;
  }

  void stop() override {
    drain_all();
    stop_listening();
    status_ = TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return problems_; }

  void processTrace(ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) -> const ITraceActivity* { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(ActivityLogger& logger, getLinkedActivityCallback linked, int64_t start, int64_t end) override {
    const std::lock_guard<std::mutex> lock(log_->mutex);
    buffer_ = std::make_unique<CpuTraceBuffer>();
    buffer_->span = TraceSpan(start, end, "npu");
    std::vector<std::pair<Key, const Launch*>> sorted;
    for (const auto& [key, launch] : log_->launches) sorted.emplace_back(key, &launch);
    std::sort(sorted.begin(), sorted.end(), [](const auto& one, const auto& other) { return one.second->called < other.second->called; });
    std::set<std::pair<int, int64_t>> lanes;
    int32_t correlation = 0;
    for (const auto& [key, launch] : sorted) {
      if (!launch->ended) continue;  // an operator that a listener stopped
      ++correlation;
      emit(logger, *launch, key, correlation, linked);
      lanes.insert({std::get<0>(key), std::get<1>(key)});
    }
    for (const auto& [device, stream] : lanes)
      logger.handleResourceInfo({stream, stream, device, "stream " + std::to_string(stream)}, start);
  }

  std::unique_ptr<DeviceInfo> getDeviceInfo() override { return nullptr; }  // see Names
  std::vector<ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { operators.push_back(id); }
  void popCorrelationId() override {
    if (!operators.empty()) operators.pop_back();
  }

 private:
  struct Log {
    std::mutex mutex;
    std::unordered_map<Key, Launch, KeyHash> launches;
  };

  static void note(const Event& event, void* context) {
    const int64_t now = now_ns();
    auto& log = *static_cast<Log*>(context);
    const Key key{event.device, event.stream, event.sequence};
    const std::lock_guard<std::mutex> lock(log.mutex);
    if (event.kind == Kind::Launch) {
      auto& launch = log.launches[key];
      launch.name = event.name;
      launch.copy = event.copy;
      launch.bytes = event.bytes;
      launch.op = operators.empty() ? 0 : operators.back();
      launch.thread = this_thread_id();
      launch.called = now;
      return;
    }
    const auto found = log.launches.find(key);
    if (found == log.launches.end()) return;  // launched before the start
    (event.kind == Kind::Launched ? found->second.returned : event.kind == Kind::Start ? found->second.started : found->second.ended) = now;
  }

  void stop_listening() {
    if (listener_ >= 0) events::unsubscribe(listener_);
    listener_ = -1;
  }

  void emit(ActivityLogger& logger, const Launch& launch, const Key& key, int32_t correlation, const getLinkedActivityCallback& linked) {
    const auto [device, stream, number] = key;
    const auto type = type_of(launch);
    const auto* op = launch.op ? linked(static_cast<int32_t>(launch.op)) : nullptr;
    const auto make = [&](ActivityType as, const std::string& name, int64_t from, int64_t to, bool first) -> GenericTraceActivity& {
      buffer_->emplace_activity(buffer_->span, as, name);
      auto& activity = *buffer_->activities.back();
      activity.startTime = from;
      activity.endTime = std::max(from, to);
      activity.threadId = launch.thread;
      activity.id = correlation;
      activity.flow.id = static_cast<uint32_t>(correlation);
      activity.flow.type = kLinkAsyncCpuGpu;
      activity.flow.start = first;
      activity.linked = op;
      activity.addMetadata("correlation", correlation);
      if (launch.op) activity.addMetadata("External id", launch.op);
      return activity;
    };
    auto& call = make(ActivityType::PRIVATEUSE1_RUNTIME, call_name(type), launch.called, launch.returned, true);
    call.device = static_cast<int32_t>(getpid());
    call.resource = launch.thread;
    logger.handleGenericActivity(call);
    auto& run = make(type, device_name(launch), launch.started, launch.ended, false);
    run.device = device;
    run.resource = static_cast<int32_t>(stream);
    run.addMetadata("device", device);
    run.addMetadata("stream", stream);
    if (launch.copy != Copy::None) {
      run.addMetadata("bytes", launch.bytes);
      const auto nanoseconds = std::max<int64_t>(1, launch.ended - launch.started);
      run.addMetadata("memory bandwidth (GB/s)", static_cast<double>(launch.bytes) / static_cast<double>(nanoseconds));
    }
    logger.handleGenericActivity(run);
    ++buffer_->gpuOpCount;
  }

  // A call of the listener may be under way on another thread when it is withdrawn, so logs are never freed, but used again.
  struct Idle {
    std::mutex mutex;
    std::vector<Log*> logs;
  };
  static Idle& idle() {
    static auto* all = new Idle;
    return *all;
  }
  static Log* take_log() {
    const std::lock_guard<std::mutex> lock(idle().mutex);
    if (idle().logs.empty()) return new Log;
    auto* log = idle().logs.back();
    idle().logs.pop_back();
    return log;
  }
  static void give_log(Log* log) {
    {
      const std::lock_guard<std::mutex> lock(log->mutex);
      log->launches.clear();
    }
    const std::lock_guard<std::mutex> lock(idle().mutex);
    idle().logs.push_back(log);
  }

  Log* const log_ = take_log();
  int listener_ = -1;
  std::vector<std::string> problems_;
  std::unique_ptr<CpuTraceBuffer> buffer_;
};

const std::set<ActivityType> kDevice = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                        ActivityType::PRIVATEUSE1_RUNTIME};

bool on_device(const std::set<ActivityType>& wanted) {
  return std::any_of(kDevice.begin(), kDevice.end(), [&](auto type) { return wanted.contains(type); });
}

class Profiler final : public IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return kDevice; }
  std::unique_ptr<IActivityProfilerSession> configure(const std::set<ActivityType>& wanted, const Config&) override {
    return on_device(wanted) ? std::make_unique<Session>() : nullptr;
  }
  std::unique_ptr<IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted, const Config& config) override {
    return configure(wanted, config);
  }

 private:
  const std::string name_ = "npu";
};

// A session tells the name of one device only, so each device has a profiler whose sessions do nothing else.
class Names final : public IActivityProfiler {
 public:
  explicit Names(int device) : device_(device) {}
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return kDevice; }
  std::unique_ptr<IActivityProfilerSession> configure(const std::set<ActivityType>& wanted, const Config&) override {
    int count = 0;
    return on_device(wanted) && !vnpuGetDeviceCount(&count) && device_ < count ? std::make_unique<OfOne>(device_) : nullptr;
  }
  std::unique_ptr<IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted, const Config& config) override {
    return configure(wanted, config);
  }

 private:
  class OfOne final : public IActivityProfilerSession {
   public:
    explicit OfOne(int device) : device_(device) {}
    void start() override { status_ = TraceStatus::RECORDING; }
    void stop() override { status_ = TraceStatus::PROCESSING; }
    std::vector<std::string> errors() override { return {}; }
    void processTrace(ActivityLogger&) override {}
    std::unique_ptr<DeviceInfo> getDeviceInfo() override {
      return std::unique_ptr<DeviceInfo>(new DeviceInfo{device_, kBelowTheHost + device_, "npu", "NPU " + std::to_string(device_)});
    }
    std::vector<ResourceInfo> getResourceInfos() override { return {}; }
    std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override { return nullptr; }

   private:
    const int device_;
  };

  const std::string name_ = "npu names";
  const int device_;
};

// Called when kineto starts; it knows one factory of the backend's.
const bool registered = [] {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([] {
    for (int device = 0; device < VNPU_MAX_DEVICES; ++device)
      api().activityProfiler().addChildActivityProfiler(std::make_unique<Names>(device));
    return std::make_unique<Profiler>();
  });
  return true;
}();

}  // namespace
}  // namespace vnpu
