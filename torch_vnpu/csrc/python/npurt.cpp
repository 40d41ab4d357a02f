// The runtime's own functions in Python. Addresses and handles are numbers; a function whose name says what it does to the
// runtime returns its error code, and one that reads a figure raises.
#include "npurt.h"

#include <utility>

#include "../aten/check.h"
#include "../runtime/vnpu_runtime.h"

namespace py = pybind11;

namespace vnpu {
namespace {

int code(vnpuError_t error) { return static_cast<int>(error); }

void* address(uintptr_t number) { return reinterpret_cast<void*>(number); }

int host_register(uintptr_t pointer, size_t bytes, unsigned flags) {
  return code(vnpuHostRegister(address(pointer), bytes, flags));
}

int host_unregister(uintptr_t pointer) { return code(vnpuHostUnregister(address(pointer))); }

int stream_create(uintptr_t where) {
  int device = 0;
  if (auto error = vnpuGetDevice(&device)) return code(error);
  return code(vnpuStreamCreate(static_cast<vnpuStream_t*>(address(where)), device, 0));
}

int stream_destroy(uintptr_t handle) { return code(vnpuStreamDestroy(static_cast<vnpuStream_t>(address(handle)))); }

std::pair<int, int64_t> stream_ids(uintptr_t handle) {
  auto* stream = static_cast<vnpuStream_t>(address(handle));
  check(vnpuStreamCheck(stream), "find the stream of a handle");
  return {vnpuStreamDevice(stream), vnpuStreamId(stream)};
}

py::tuple mem_get_info(int device) {
  size_t free = 0, total = 0;
  const auto error = vnpuMemGetInfo(&free, &total, device);
  return py::make_tuple(code(error), free, total);
}

void set_memory_fraction(double fraction, int device) {
  check(vnpuMemSetFraction(fraction, device), "limit the memory", device);
}

double memory_fraction(int device) {
  double fraction = 0;
  check(vnpuMemGetFraction(&fraction, device), "read the memory limit", device);
  return fraction;
}

py::dict host_memory_stats() {
  vnpuMemoryStats stats{};
  check(vnpuHostGetStats(&stats), "read memory statistics");
  const auto figures = [](int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
    using namespace py::literals;
    return py::dict("current"_a = current, "peak"_a = peak, "allocated"_a = allocated, "freed"_a = freed);
  };
  py::dict all;
  all["blocks"] = figures(stats.blocks, stats.blocks_peak, stats.blocks_allocated, stats.blocks_freed);
  all["bytes"] = figures(stats.current, stats.peak, stats.allocated, stats.freed);
  return all;
}

}  // namespace

void bind_runtime(py::module_& module) {
  module.def("host_register", &host_register, py::arg("pointer"), py::arg("bytes"), py::arg("flags"));
  module.def("host_unregister", &host_unregister, py::arg("pointer"));
  module.def("stream_create", &stream_create, py::arg("where"), "Write the handle of a new stream of the current device there.");
  module.def("stream_destroy", &stream_destroy, py::arg("handle"));
  module.def("stream_ids", &stream_ids, py::arg("handle"), "Device and id of a live stream.");
  module.def("mem_get_info", &mem_get_info, py::arg("device"), "Error code, bytes free and bytes in all, without waiting.");
  module.def("error_string", [](int error) { return vnpuGetErrorString(static_cast<vnpuError_t>(error)); }, py::arg("code"));
  module.def("set_memory_fraction", &set_memory_fraction, py::arg("fraction"), py::arg("device"));
  module.def("memory_fraction", &memory_fraction, py::arg("device"));
  module.def("host_memory_stats", &host_memory_stats, "Figures of pinned memory: blocks and bytes.");
  module.def("host_memory_reset_peak", &vnpuHostResetPeak);
  module.def("host_memory_reset_accumulated", &vnpuHostResetAccumulated);
}

}  // namespace vnpu
