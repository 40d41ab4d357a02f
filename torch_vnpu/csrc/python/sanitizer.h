// The sanitizer's detector for Python: fed from the event table, or call by call.
#pragma once
#include <pybind11/pybind11.h>

#include "../events.h"

namespace vnpu {
void bind_sanitizer(pybind11::module_& module);
// An access' operands: (argument, base, storage bytes, device, offset, itemsize, sizes, strides, written) each.
pybind11::list operands_of(const events::Event& event);
}  // namespace vnpu
