// What the kernels need to know of devices: the current one and its generators.
#pragma once
#include <ATen/core/Generator.h>

namespace vnpu {
c10::DeviceIndex current_device();
const at::Generator& default_generator(c10::DeviceIndex device);  // -1: the current device
// The CPU generator that does the work of an npu generator.
at::Generator& cpu_generator_of(const at::Generator& npu);
}  // namespace vnpu
