// Registration of the operators on npu.
#pragma once

namespace vnpu {
// Registers the zero-copy kernel for every aten operator that has a CPU kernel and none on npu; returns how many. Once.
int register_kernels();
}  // namespace vnpu
