// The module torch_vnpu._C: what Python needs of the runtime that torch.accelerator does not offer already.
#include <ATen/Context.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Generator.h>

#include <string>
#include <unordered_map>

#include "../aten/accesses.h"
#include "../aten/autograd_threads.h"
#include "../aten/allocator.h"
#include "../aten/check.h"
#include "../aten/deferred.h"
#include "../aten/device.h"
#include "../aten/kernels.h"
#include "../events.h"
#include "../runtime/vnpu_runtime.h"
#include "npurt.h"
#include "sanitizer.h"

namespace py = pybind11;

namespace {

const char* kind_name(vnpu::events::Kind kind) {
  using vnpu::events::Kind;
  switch (kind) {
    case Kind::Launch: return "launch";
    case Kind::Complete: return "complete";
    case Kind::Alloc: return "alloc";
    case Kind::Free: return "free";
    case Kind::RecordStream: return "record_stream";
    case Kind::EventRecord: return "event_record";
    case Kind::EventWait: return "event_wait";
    case Kind::EventSynchronize: return "event_synchronize";
    case Kind::StreamSynchronize: return "stream_synchronize";
    case Kind::DeviceSynchronize: return "device_synchronize";
    case Kind::Launched: return "launched";
    case Kind::Start: return "start";
    case Kind::Access: return "access";
    case Kind::HostAccess: return "host_access";
    case Kind::Count: break;
  }
  return "unknown";
}

// A Python listener. The holder is never freed: another thread may wait for the GIL to call it while it is withdrawn.
struct Holder {
  py::object callable;  // None once withdrawn
};
std::unordered_map<int, Holder*>& holders() {
  static auto* all = new std::unordered_map<int, Holder*>;
  return *all;
}

// A listener that raises is reported as unraisable: the operator goes on.
void call_listener(const vnpu::events::Event& event, void* context) {
  if (!Py_IsInitialized() || _Py_IsFinalizing()) return;
  py::gil_scoped_acquire gil;
  py::error_scope keep_error;  // memory is freed while exceptions propagate, too
  const py::object listener = static_cast<Holder*>(context)->callable;
  if (listener.is_none()) return;
  try {
    const auto call = [&](auto... more) {
      listener(kind_name(event.kind), event.device, event.stream, event.name, reinterpret_cast<uintptr_t>(event.pointer),
               event.bytes, event.sequence, more...);
    };
    if (event.kind == vnpu::events::Kind::Access || event.kind == vnpu::events::Kind::HostAccess) {
      call(vnpu::operands_of(event), event.waits);
    } else {
      call();
    }
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(listener);
  }
}

int subscribe(py::function listener, const py::iterable& kinds) {
  uint32_t mask = 0;
  for (const auto& item : kinds) {
    const auto wanted = py::cast<std::string>(item);
    uint32_t bit = 0;
    for (unsigned kind = 0; kind < static_cast<unsigned>(vnpu::events::Kind::Count); ++kind)
      if (wanted == kind_name(static_cast<vnpu::events::Kind>(kind))) bit = 1u << kind;
    if (!bit) throw py::value_error("unknown kind of event: '" + wanted + "'");
    mask |= bit;
  }
  if (!mask) throw py::value_error("no kind of event was named");
  auto* holder = new Holder{std::move(listener)};
  const int id = vnpu::events::subscribe(mask, &call_listener, holder);
  if (id < 0) {
    delete holder;
    throw std::runtime_error("the table of listeners is full; unsubscribe one first");
  }
  holders()[id] = holder;
  return id;
}

void unsubscribe(int id) {
  if (!vnpu::events::unsubscribe(id)) throw py::value_error("no listener has the id " + std::to_string(id));
  if (!vnpu::events::listening(vnpu::events::Kind::HostAccess)) vnpu::stop_watching_host();
  holders()[id]->callable = py::none();
  holders().erase(id);
}

// A host thread that waits for a queue gives the GIL away: a listener on the queue's thread may need it.
void* release_gil() { return Py_IsInitialized() && !_Py_IsFinalizing() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void take_gil(void* state) {
  if (state) PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

void finish_import() {
  vnpuConfigureWaiting(&release_gil, &take_gil);
  vnpu::configure_queues();
  vnpuOpen();
}

// torch keeps a flag of its own, without which no memory counts as pinned.
void init() {
  vnpu::check(vnpuInit(), "initialise");
  at::globalContext().lazyInitDevice(c10::DeviceType::PrivateUse1);
}

int device_count() {
  int count = 0;
  vnpu::check(vnpuGetDeviceCount(&count), "count the devices");
  return count;
}

// As Generator.manual_seed: every 64-bit pattern is a seed, signed or not.
void manual_seed_all(const py::int_& seed) {
  const auto value = PyLong_AsUnsignedLongLongMask(seed.ptr());
  vnpu::manual_seed_all(value);
}

py::object default_generator(int device) {
  const auto& generator = vnpu::default_generator(static_cast<c10::DeviceIndex>(device));
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(generator));
}

// Storages cross this border as torch.UntypedStorage objects.
py::object share_storage(const py::object& npu) {
  auto storage = torch::createStorage(npu.ptr());
  if (storage.device().type() != vnpu::kNpu) throw py::type_error("expected a storage on npu");
  return py::reinterpret_steal<py::object>(torch::createPyObject(c10::Storage(vnpu::share_storage(storage.unsafeGetStorageImpl()))));
}

py::object storage_over(const py::object& cpu, int device) {
  auto storage = torch::createStorage(cpu.ptr());
  if (!storage.device().is_cpu()) throw py::type_error("expected a storage on CPU");
  auto bytes = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl());
  return py::reinterpret_steal<py::object>(
      torch::createPyObject(vnpu::wrap_cpu_storage(std::move(bytes), static_cast<c10::DeviceIndex>(device))));
}

void erase_stream(const py::object& npu, int64_t stream_id) {
  auto storage = torch::createStorage(npu.ptr());
  if (storage.device().type() != vnpu::kNpu) throw py::type_error("expected a storage on npu");
  vnpuStream_t stream = nullptr;
  vnpu::check(vnpuStreamFromId(&stream, storage.device().index(), stream_id), "erase a stream", storage.device().index());
  vnpu::erase_stream(storage.data_ptr(), stream);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Native core of torch_vnpu: the virtual runtime and its kernels for PyTorch's dispatcher.";
  module.def("register_kernels", &vnpu::register_kernels,
             "Register the zero-copy kernels with PyTorch's dispatcher; returns their number. Once per process.");
  module.def("finish_import", &finish_import, "The last native step of the import: from here on the runtime may start.");
  module.def("init", &init, "Fix the devices and their capacity. Idempotent.");
  module.def("is_initialized", [] { return vnpuIsInitialized() != 0; });
  module.def("is_in_bad_fork", [] { return vnpuInBadFork() != 0; });
  module.def("await_autograd_threads",
             [] {
               const auto devices = static_cast<c10::DeviceIndex>(device_count());
               py::gil_scoped_release without_gil;
               vnpu::await_autograd_threads(devices);
             },
             "Return when the autograd engine's thread of each device runs and is idle; raises where it has none.");
  module.def("device_count", &device_count, "Number of devices; initialises nothing.");
  module.def("current_device", [] { return static_cast<int>(vnpu::current_device()); });
  module.def("manual_seed_all", &manual_seed_all, py::arg("seed"),
             "Seed the generators of all devices, however many there will be; initialises nothing.");
  module.def("default_generator", &default_generator, py::arg("device"));
  module.def("share_storage", &share_storage, py::arg("npu"),
             "The CPU storage in shared memory that has the bytes of an npu storage from now on.");
  module.def("storage_over", &storage_over, py::arg("cpu"), py::arg("device"),
             "A new npu storage over the bytes of a CPU storage.");
  module.def("erase_stream", &erase_stream, py::arg("npu"), py::arg("stream"),
             "Let the memory of an npu storage wait no longer for a stream of its device that record_stream named.");
  module.def("subscribe", &subscribe, py::arg("listener"), py::arg("kinds"),
             "Call listener(kind, device, stream, name, pointer, bytes, sequence) for each event of the named kinds; for accesses "
             "with two more arguments, the operands and whether the host waits.");
  module.def("unsubscribe", &unsubscribe, py::arg("id"));
  module.def("listening", [] { return vnpu::events::listened.load() != 0; }, "Whether anything listens.");
  module.def("watches_host", &vnpu::watches_host, "Whether CPU operators on pinned memory are told to the listeners.");
  vnpu::bind_runtime(module);
  vnpu::bind_sanitizer(module);
}
