#include "sanitizer.h"

#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../aten/accesses.h"
#include "../sanitizer/detector.h"

namespace py = pybind11;

namespace vnpu {
namespace {

using events::Event;
using events::Kind;
using events::Operand;
using sanitizer::Stack;

constexpr size_t kMaxDepth = 128;
constexpr size_t kStacks = 1 << 16;  // different ones; what comes later has none

// Call stacks, each kept once: where a program goes round in circles it costs no memory. Used with the GIL held.
class Stacks {
 public:
  // The stack of this thread's innermost `depth` frames; 0 where it runs no Python.
  Stack capture(size_t depth) {
    std::array<std::pair<PyCodeObject*, int>, kMaxDepth> frames;
    size_t count = 0;
    uint64_t hash = 0xcbf29ce484222325ull;
    auto* frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame && count < depth) {
      auto* code = PyFrame_GetCode(frame);
      Py_DECREF(code);  // the frame, which runs, has one
      const int at = PyFrame_GetLasti(frame);
      frames[count++] = {code, at};
      hash = (hash ^ reinterpret_cast<uint64_t>(code) ^ static_cast<uint64_t>(at) << 48) * 0x9e3779b97f4a7c15ull;
      hash ^= hash >> 32;
      auto* back = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = back;
    }
    Py_XDECREF(frame);
    if (!count) return 0;
    if (const auto found = ids_.find(hash); found != ids_.end()) return found->second;
    if (stacks_.size() >= kStacks) return 0;
    for (size_t i = 0; i < count; ++i) Py_INCREF(frames[i].first);
    stacks_.emplace_back(frames.begin(), frames.begin() + static_cast<std::ptrdiff_t>(count));
    return ids_[hash] = static_cast<Stack>(stacks_.size());
  }

  // (file, function, line), innermost first.
  py::list frames(Stack id) const {
    py::list all;
    if (!id || id > stacks_.size()) return all;
    for (const auto& [code, at] : stacks_[id - 1]) {
      const auto object = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code));
      all.append(py::make_tuple(object.attr("co_filename"), object.attr("co_qualname"), PyCode_Addr2Line(code, at)));
    }
    return all;
  }

  ~Stacks() {
    for (auto& stack : stacks_)
      for (auto& [code, at] : stack) Py_DECREF(code);
  }

 private:
  std::unordered_map<uint64_t, Stack> ids_;
  std::deque<std::vector<std::pair<PyCodeObject*, int>>> stacks_;
};

// The operands of a call from Python, and the memory that they point to.
class Given {
 public:
  explicit Given(const py::iterable& operands) {
    for (const auto& item : operands) {
      const auto given = py::cast<py::tuple>(item);
      if (given.size() != 9)
        throw py::value_error("an operand is (argument, base, storage bytes, device, offset, itemsize, sizes, strides, written)");
      auto& kept = kept_.emplace_back();
      kept.argument = py::cast<std::string>(given[0]);
      for (const auto& size : py::cast<py::tuple>(given[6])) kept.sizes.push_back(py::cast<int64_t>(size));
      for (const auto& stride : py::cast<py::tuple>(given[7])) kept.strides.push_back(py::cast<int64_t>(stride));
      if (kept.sizes.size() != kept.strides.size()) throw py::value_error("an operand has as many strides as sizes");
      all.push_back({.argument = kept.argument.c_str(),
                     .base = reinterpret_cast<const void*>(py::cast<uintptr_t>(given[1])),
                     .storage_bytes = py::cast<uint64_t>(given[2]),
                     .device = py::cast<int>(given[3]),
                     .written = py::cast<bool>(given[8]),
                     .offset = py::cast<uint64_t>(given[4]),
                     .itemsize = py::cast<uint64_t>(given[5]),
                     .dims = static_cast<uint32_t>(kept.sizes.size()),
                     .sizes = kept.sizes.data(),
                     .strides = kept.strides.data()});
    }
  }
  std::vector<Operand> all;

 private:
  struct Kept {
    std::string argument;
    std::vector<int64_t> sizes, strides;
  };
  std::deque<Kept> kept_;
};

py::tuple as_tuple(const sanitizer::Side& side) {
  return py::make_tuple(side.operation, side.argument, side.device, side.stream, side.written, side.stack);
}

py::tuple as_tuple(const sanitizer::Finding& finding) {
  constexpr const char* kinds[] = {"race", "host_race", "use_after_free"};
  return py::make_tuple(kinds[static_cast<size_t>(finding.kind)], as_tuple(finding.first), as_tuple(finding.second),
                        finding.owner_device, finding.owner_stream, finding.base, finding.bytes, finding.memory_device,
                        finding.reused, finding.allocated, finding.freed);
}

// An exception that could not leave where it arose: it is raised on the main thread, at its next call.
int raise_later(void* exception) {
  auto* object = static_cast<PyObject*>(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(object)), object);
  Py_DECREF(object);
  return -1;
}

class PyDetector {
 public:
  explicit PyDetector(size_t depth) : depth_(std::min(depth, kMaxDepth)) {}

  py::list take() {
    py::list all;
    for (const auto& finding : core.take()) all.append(as_tuple(finding));
    return all;
  }
  py::list frames(Stack stack) const { return stacks_.frames(stack); }

  Stack capture() {
    if (!depth_ || !PyGILState_GetThisThreadState()) return 0;
    const py::gil_scoped_acquire gil;
    return stacks_.capture(depth_);
  }

  // Hands what was found to `report`. Where it raises and may not, the exception is raised later.
  void deliver(bool may_raise) {
    const py::gil_scoped_acquire gil;
    py::object raised;
    {
      const py::error_scope keep_error;
      for (const auto& finding : core.take()) {
        try {
          if (!report.is_none()) report(as_tuple(finding));
        } catch (py::error_already_set& error) {
          if (raised) {
            error.discard_as_unraisable(report);
          } else {
            raised = error.value();
          }
        }
      }
    }
    if (!raised) return;
    if (!may_raise) {
      Py_AddPendingCall(&raise_later, raised.release().ptr());
      return;
    }
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    python_error error;
    error.persist();
    throw error;
  }

  void feed(const Event& event) {
    const auto pointer = reinterpret_cast<uint64_t>(event.pointer);
    switch (event.kind) {
      case Kind::Alloc: return core.alloc(pointer, event.bytes, event.device, event.stream, capture());
      case Kind::Free:
        return core.free(pointer, event.device, event.stream, core.free_matters(pointer) ? capture() : 0);
      case Kind::RecordStream: return core.record_stream(pointer, event.device, event.stream);
      case Kind::EventRecord: return core.event_record(pointer, event.device, event.stream);
      case Kind::EventWait: return core.event_wait(pointer, event.device, event.stream);
      case Kind::EventSynchronize: return core.event_synchronize(pointer);
      case Kind::StreamSynchronize: return core.stream_synchronize(event.device, event.stream);
      case Kind::DeviceSynchronize: return core.device_synchronize(event.device);
      case Kind::Access:
        return core.launch(event.device, event.stream, event.name, event.operands, event.count, event.waits, capture());
      case Kind::HostAccess: return core.host_access(event.name, event.operands, event.count, capture());
      case Kind::Launch:
      case Kind::Launched:
      case Kind::Start:
      case Kind::Complete:
      case Kind::Count: return;
    }
  }

  void attach(py::object to) {
    if (holder_) throw std::runtime_error("the detector listens already");
    report = std::move(to);
    holder_ = new Holder{this};
    uint32_t mask = (1u << static_cast<unsigned>(Kind::Count)) - 1;
    for (const auto kind : {Kind::Launch, Kind::Launched, Kind::Start, Kind::Complete}) mask &= ~(1u << static_cast<unsigned>(kind));
    id_ = events::subscribe(mask, &listen, holder_);
    if (id_ >= 0) return;
    holder_ = nullptr;
    throw std::runtime_error("the table of listeners is full; unsubscribe one first");
  }

  void detach() {
    auto* holder = std::exchange(holder_, nullptr);  // first: another thread may be asked the same while the GIL is away
    if (!holder) return;
    events::unsubscribe(id_);
    if (!events::listening(Kind::HostAccess)) stop_watching_host();
    holder->detector.store(nullptr);  // a call that is under way, without the GIL, ends before this object does
    // The calls under way on this thread are those in which it was asked to detach.
    int here = 0;
    for (const auto* busy = innermost; busy; busy = busy->outer) here += busy->holder == holder;
    while (holder->busy.load() > here) {
      const py::gil_scoped_release without_gil;
      std::this_thread::yield();
    }
    report = py::none();
  }
  bool attached() const { return holder_ != nullptr; }
  ~PyDetector() { detach(); }

  sanitizer::Detector core;
  py::object report = py::none();

 private:
  // Never freed: another thread may be about to call with it while it is withdrawn.
  struct Holder {
    explicit Holder(PyDetector* of) : detector(of) {}
    std::atomic<PyDetector*> detector;
    std::atomic<int> busy{0};
  };

  // The calls under way on this thread, innermost first.
  struct Busy;
  static inline thread_local Busy* innermost = nullptr;
  struct Busy {
    explicit Busy(Holder* of) : holder(of), outer(innermost) {
      ++holder->busy;
      innermost = this;
    }
    ~Busy() {
      innermost = outer;
      --holder->busy;
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    Holder* const holder;
    Busy* const outer;
  };

  static void listen(const Event& event, void* context) {
    auto* holder = static_cast<Holder*>(context);
    const Busy busy(holder);
    auto* self = holder->detector.load();
    if (!self || !Py_IsInitialized() || _Py_IsFinalizing()) return;
    self->feed(event);
    if (__builtin_expect(self->core.found(), 0))
      self->deliver(event.kind == Kind::Access || event.kind == Kind::DeviceSynchronize);
  }

  const size_t depth_;
  Stacks stacks_;
  Holder* holder_ = nullptr;
  int id_ = -1;
};

py::tuple tuple_of(const int64_t* values, uint32_t count) {
  py::tuple all(count);
  for (uint32_t i = 0; i < count; ++i) all[i] = values[i];
  return all;
}

}  // namespace

py::list operands_of(const Event& event) {
  py::list all;
  for (uint32_t i = 0; i < event.count; ++i) {
    const auto& one = event.operands[i];
    all.append(py::make_tuple(one.argument, reinterpret_cast<uintptr_t>(one.base), one.storage_bytes, one.device, one.offset,
                              one.itemsize, tuple_of(one.sizes, one.dims), tuple_of(one.strides, one.dims), one.written));
  }
  return all;
}

void bind_sanitizer(py::module_& module) {
  py::class_<PyDetector>(module, "Detector",
                         "Finds accesses to the same bytes that nothing orders. Fed by the device's events while attached, or call "
                         "by call; streams are (device, id), stacks any number.")
      .def(py::init<size_t>(), py::arg("depth") = 32, "Of the call stacks, `depth` frames are kept (at most 128).")
      .def("attach", &PyDetector::attach, py::arg("report"), "Listen to the device; call report(finding) for each, which may raise.")
      .def("detach", &PyDetector::detach, "Listen no more. Idempotent.")
      .def_property_readonly("attached", &PyDetector::attached)
      .def("alloc", [](PyDetector& self, uint64_t base, uint64_t bytes, int device, int64_t stream,
                       Stack stack) { self.core.alloc(base, bytes, device, stream, stack); },
           py::arg("base"), py::arg("bytes"), py::arg("device"), py::arg("stream"), py::arg("stack") = 0)
      .def("free", [](PyDetector& self, uint64_t base, int device, int64_t stream,
                      Stack stack) { self.core.free(base, device, stream, stack); },
           py::arg("base"), py::arg("device"), py::arg("stream"), py::arg("stack") = 0)
      .def("record_stream", [](PyDetector& self, uint64_t base, int device,
                               int64_t stream) { self.core.record_stream(base, device, stream); },
           py::arg("base"), py::arg("device"), py::arg("stream"))
      .def("launch", [](PyDetector& self, int device, int64_t stream, const std::string& name, const py::iterable& operands,
                        bool waits, Stack stack) {
             const Given given(operands);
             self.core.launch(device, stream, name, given.all.data(), given.all.size(), waits, stack);
           },
           py::arg("device"), py::arg("stream"), py::arg("name"), py::arg("operands"), py::arg("waits") = false,
           py::arg("stack") = 0)
      .def("host_access", [](PyDetector& self, const std::string& name, const py::iterable& operands, Stack stack) {
             const Given given(operands);
             self.core.host_access(name, given.all.data(), given.all.size(), stack);
           },
           py::arg("name"), py::arg("operands"), py::arg("stack") = 0)
      .def("event_record", [](PyDetector& self, uint64_t event, int device,
                              int64_t stream) { self.core.event_record(event, device, stream); },
           py::arg("event"), py::arg("device"), py::arg("stream"))
      .def("event_wait", [](PyDetector& self, uint64_t event, int device,
                            int64_t stream) { self.core.event_wait(event, device, stream); },
           py::arg("event"), py::arg("device"), py::arg("stream"))
      .def("event_synchronize", [](PyDetector& self, uint64_t event) { self.core.event_synchronize(event); }, py::arg("event"))
      .def("stream_synchronize", [](PyDetector& self, int device, int64_t stream) { self.core.stream_synchronize(device, stream); },
           py::arg("device"), py::arg("stream"))
      .def("device_synchronize", [](PyDetector& self, int device) { self.core.device_synchronize(device); }, py::arg("device"))
      .def("finish", [](PyDetector& self) { self.core.finish(); }, "The program ends: what was freed and never ordered is judged.")
      .def("take", &PyDetector::take, "The findings since the last call.")
      .def("capture", &PyDetector::capture, "The calling thread's stack, to be given to the calls above.")
      .def("frames", &PyDetector::frames, py::arg("stack"), "(file, function, line) of a captured stack, innermost first.")
      .def("statistics", [](PyDetector& self) {
        const auto all = self.core.statistics();
        py::dict figures;
        figures["events"] = all.events;
        figures["blocks"] = all.blocks;
        figures["records"] = all.records;
        figures["freed"] = all.freed;
        figures["findings"] = all.findings;
        figures["repeated"] = all.repeated;
        figures["dropped"] = all.dropped;
        return figures;
      });
}

}  // namespace vnpu
