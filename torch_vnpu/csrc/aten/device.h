// What the kernels need to know of devices: the current one and its generators.
#pragma once
#include <ATen/core/Generator.h>

namespace vnpu {
c10::DeviceIndex current_device();
const at::Generator& default_generator(c10::DeviceIndex device);  // -1: the current device
// Seeds the default generators of all devices, those that are made later too.
void manual_seed_all(uint64_t seed);
// The CPU generator that does the work of an npu generator. Refuses a generator that is not one of `device`.
at::Generator& cpu_generator_of(const at::Generator& npu, c10::DeviceIndex device);
}  // namespace vnpu
