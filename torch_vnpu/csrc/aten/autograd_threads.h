// The autograd engine has a thread a device, made at the first backward() of the process.
#pragma once
#include <c10/core/Device.h>

namespace vnpu {
// Returns when the engine's threads of the devices [0, devices) run and are idle: a backward() of nothing has gone through
// each. One that still starts, or still lets go of its last graph, while the interpreter ends would abort the process.
// Throws what the engine throws where it does not know the devices. The caller must not hold the GIL.
void await_autograd_threads(c10::DeviceIndex devices);
}  // namespace vnpu
