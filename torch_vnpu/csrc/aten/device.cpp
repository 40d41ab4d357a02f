// PyTorch's three doors to a device: the guard (devices, streams, events), the generator, and the hooks.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <mutex>
#include <vector>

#include "accesses.h"
#include "allocator.h"
#include "check.h"
#include "pinned.h"

namespace vnpu {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

vnpuStream_t runtime_stream(const Stream& stream) {
  vnpuStream_t found = nullptr;
  check(vnpuStreamFromId(&found, stream.device_index(), stream.id()), "find a stream", stream.device_index());
  return found;
}

Stream torch_stream(vnpuStream_t stream) {
  return Stream(Stream::UNSAFE, Device(kNpu, static_cast<DeviceIndex>(vnpuStreamDevice(stream))),
                vnpuStreamId(stream));
}

vnpuEvent_t runtime_event(void* event) { return static_cast<vnpuEvent_t>(event); }

DeviceIndex index_of(Device device) { return device.has_index() ? device.index() : current_device(); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }
  DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    vnpuGetDeviceCount(&count);
    return static_cast<DeviceIndex>(count);
  }
  Device getDevice() const override { return {kNpu, current_device()}; }
  void setDevice(Device device) const override {
    check(vnpuSetDevice(device.index()), "set the device", device.index());
  }
  void uncheckedSetDevice(Device device) const noexcept override { vnpuSetDevice(device.index()); }
  Device exchangeDevice(Device device) const override {
    const auto before = getDevice();
    if (device.index() != before.index()) setDevice(device);
    return before;
  }
  void synchronizeDevice(DeviceIndex device) const override {
    check(vnpuDeviceSynchronize(device), "synchronize the device", device);
  }
  c10::DeviceCapability getDeviceCapability(Device) const override { return {}; }

  Stream getStream(Device device) const override {
    const auto index = index_of(device);
    if (index >= deviceCount()) raise_error(VNPU_ERROR_INVALID_DEVICE, "get the current stream", index);
    return torch_stream(vnpuGetCurrentStream(index));
  }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::UNSAFE, Device(kNpu, index_of(device)), 0);
  }
  Stream getStreamFromGlobalPool(Device device, bool high_priority) const override {
    return getNewStream(device, high_priority ? -1 : 0);
  }
  Stream getNewStream(Device device, int priority) const override {
    vnpuStream_t stream = nullptr;
    const auto index = index_of(device);
    check(vnpuStreamCreate(&stream, index, priority), "create a stream", index);
    return torch_stream(stream);
  }
  Stream exchangeStream(Stream stream) const override {
    const auto before = getStream(stream.device());
    check(vnpuSetCurrentStream(runtime_stream(stream)), "set the stream");
    return before;
  }
  void* getStreamNativeHandle(const Stream stream) const override { return runtime_stream(stream); }
  bool queryStream(const Stream& stream) const override {
    return vnpuStreamQuery(runtime_stream(stream)) == VNPU_SUCCESS;
  }
  void synchronizeStream(const Stream& stream) const override {
    check(vnpuStreamSynchronize(runtime_stream(stream)), "synchronize a stream");
  }

  // As record_stream on a tensor; the autograd engine says so where a gradient goes to another stream.
  void recordDataPtrOnStream(const c10::DataPtr& data, const Stream& stream) const override {
    record_stream(data, runtime_stream(stream));
  }

  void record(void** event, const Stream& stream, const DeviceIndex device, const c10::EventFlag flag) const override {
    TORCH_CHECK(device < 0 || device == stream.device_index(), "npu: an event of device npu:", static_cast<int>(device),
                " cannot be recorded on a stream of device npu:", static_cast<int>(stream.device_index()));
    if (!*event) {
      vnpuEvent_t made = nullptr;
      check(vnpuEventCreate(&made, flag == c10::EventFlag::BACKEND_DEFAULT), "create an event");
      *event = made;
    }
    check(vnpuEventRecord(runtime_event(*event), runtime_stream(stream)), "record an event");
  }
  void block(void* event, const Stream& stream) const override {
    if (event) check(vnpuStreamWaitEvent(runtime_stream(stream), runtime_event(event)), "wait for an event");
  }
  bool queryEvent(void* event) const override {
    return !event || vnpuEventQuery(runtime_event(event)) == VNPU_SUCCESS;
  }
  void synchronizeEvent(void* event) const override {
    if (event) check(vnpuEventSynchronize(runtime_event(event)), "synchronize an event");
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event) vnpuEventDestroy(runtime_event(event));
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    double milliseconds = 0;
    const auto error = vnpuEventElapsed(&milliseconds, runtime_event(start), runtime_event(end));
    TORCH_CHECK(error != VNPU_ERROR_INVALID_HANDLE,
                "npu: both events must be recorded, and created with enable_timing=True, before their elapsed time is asked");
    TORCH_CHECK(error != VNPU_ERROR_NOT_READY,
                "npu: both events must be reached before their elapsed time is asked; synchronize the later one first");
    TORCH_CHECK(error != VNPU_ERROR_INVALID_DEVICE, "npu: both events must be recorded on the same device");
    return milliseconds;
  }
};

// ---- generators ----
struct NpuGenerator final : c10::GeneratorImpl {
  explicit NpuGenerator(DeviceIndex device, uint64_t seed = c10::default_rng_seed_val)
      : NpuGenerator(device, at::make_generator<at::CPUGeneratorImpl>(seed)) {}
  NpuGenerator(DeviceIndex device, at::Generator cpu_generator)
      : GeneratorImpl(Device(kNpu, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu(std::move(cpu_generator)) {}

  void set_current_seed(uint64_t seed) override { cpu.set_current_seed(seed); }
  uint64_t current_seed() const override { return cpu.current_seed(); }
  uint64_t seed() override { return cpu.seed(); }
  // A Mersenne twister has no offset: the state says all. 0 is what torch pickles for it.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK_NOT_IMPLEMENTED(!offset, "npu: this generator has no offset (it is a Mersenne twister, as CPU's); use get_state and set_state");
  }
  uint64_t get_offset() const override { return 0; }
  void set_state(const c10::TensorImpl& state) override { cpu.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return cpu.unsafeGetGeneratorImpl()->get_state(); }
  NpuGenerator* clone_impl() const override { return new NpuGenerator(device().index(), cpu.clone()); }

  at::Generator cpu;
};

// Made one by one and never destroyed: asking for one does not fix the number of devices.
struct DefaultGenerators {
  std::mutex mutex;
  uint64_t seed = c10::default_rng_seed_val;
  std::vector<at::Generator> made{VNPU_MAX_DEVICES};
};
DefaultGenerators& default_generators() {
  static auto* all = new DefaultGenerators;
  return *all;
}

DeviceIndex generator_device(DeviceIndex device) {
  const DeviceIndex index = device < 0 ? current_device() : device;
  if (index >= Guard().deviceCount()) raise_error(VNPU_ERROR_INVALID_DEVICE, "get a generator", index);
  return index;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return vnpuIsInitialized() != 0; }
  void init() const override { check(vnpuInit(), "initialise"); }
  DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(DeviceIndex device) const override { Guard().setDevice({kNpu, device}); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return Guard().exchangeDevice({kNpu, device}).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* pointer) const override { return vnpuHostIsPinned(pointer) != 0; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "npu: the device of a bare pointer is unknown (memory of all devices is host memory)");
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return at::make_generator<NpuGenerator>(generator_device(device));
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    tell_read("resize_", storage, vnpuGetCurrentStream(storage.device().index()));
    resize_storage(storage, bytes);
  }
};
Hooks hooks;
const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

DeviceIndex current_device() {
  int device = 0;
  vnpuGetDevice(&device);
  return static_cast<DeviceIndex>(device);
}

const at::Generator& default_generator(DeviceIndex device) {
  const DeviceIndex index = generator_device(device);
  auto& all = default_generators();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto& generator = all.made[static_cast<size_t>(index)];
  if (!generator.defined()) generator = at::make_generator<NpuGenerator>(index, all.seed);
  return generator;
}

void manual_seed_all(uint64_t seed) {
  auto& all = default_generators();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.seed = seed;
  for (auto& generator : all.made)
    if (generator.defined()) generator.set_current_seed(seed);
}

at::Generator& cpu_generator_of(const at::Generator& npu, c10::DeviceIndex device) {
  TORCH_CHECK(npu.device().type() == kNpu, "Expected a 'npu' device type for generator but found '",
              npu.device().type(), "'");
  TORCH_CHECK(npu.device().index() == device, "Expected a generator of device npu:", static_cast<int>(device), " but found one of ",
              npu.device());
  return static_cast<NpuGenerator*>(npu.unsafeGetGeneratorImpl())->cpu;
}

}  // namespace vnpu
