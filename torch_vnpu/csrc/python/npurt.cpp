// The runtime's own functions in Python. Addresses and handles are numbers; a function whose name says what it does to the
// runtime returns its error code, and one that reads a figure raises.
#include "npurt.h"

#include <utility>

#include "../aten/caching.h"
#include "../aten/check.h"
#include "../aten/pinned.h"
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
  const auto stats = pinned_stats();
  const auto figures = [](int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
    using namespace py::literals;
    return py::dict("current"_a = current, "peak"_a = peak, "allocated"_a = allocated, "freed"_a = freed);
  };
  const auto of = [&](const vnpuMemoryStats& one) {
    py::dict both;
    both["blocks"] = figures(one.blocks, one.blocks_peak, one.blocks_allocated, one.blocks_freed);
    both["bytes"] = figures(one.current, one.peak, one.allocated, one.freed);
    return both;
  };
  py::dict all;
  all["held"] = of(stats.held);
  all["in_use"] = of(stats.in_use);
  return all;
}

const char* state_name(caching::State state) {
  switch (state) {
    case caching::State::Used: return "active_allocated";
    case caching::State::Awaiting: return "active_awaiting_free";
    case caching::State::Binned:
    case caching::State::Free: break;
  }
  return "inactive";
}

py::list memory_snapshot() {
  py::list segments;
  for (const auto& segment : caching::snapshot()) {
    py::list blocks;
    size_t allocated = 0, active = 0, requested = 0;
    for (const auto& block : segment.blocks) {
      py::dict one;
      one["address"] = block.address;
      one["size"] = block.bytes;
      one["requested_size"] = block.requested;
      one["state"] = state_name(block.state);
      blocks.append(std::move(one));
      if (block.state == caching::State::Used) allocated += block.bytes;
      if (block.state <= caching::State::Awaiting) active += block.bytes;
      requested += block.requested;
    }
    py::dict one;
    one["device"] = static_cast<int>(segment.device);
    one["address"] = segment.address;
    one["total_size"] = segment.bytes;
    one["allocated_size"] = allocated;
    one["active_size"] = active;
    one["requested_size"] = requested;
    one["stream"] = segment.stream;
    one["segment_type"] = segment.large ? "large" : "small";
    one["is_expandable"] = false;
    one["blocks"] = std::move(blocks);
    segments.append(std::move(one));
  }
  return segments;
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
  module.def("memory_snapshot", &memory_snapshot, "The segments of all devices, each with its blocks.");
  module.def("host_memory_stats", &host_memory_stats, "Figures of pinned memory, held and in use: blocks and bytes.");
  module.def("host_memory_reset_peak", &reset_peak_pinned);
  module.def("host_memory_reset_accumulated", &reset_accumulated_pinned);
  module.def("empty_host_cache", &empty_pinned_cache, "Unpin and free pinned memory that no tensor has.");
}

}  // namespace vnpu
