// What torch.npu.npurt() and the figures of torch.npu need of the runtime, as functions of torch_vnpu._C.
#pragma once
#include <pybind11/pybind11.h>

namespace vnpu {
void bind_runtime(pybind11::module_& module);
}  // namespace vnpu
