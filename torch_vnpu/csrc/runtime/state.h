// What the runtime's own files share: whether it is initialised, how many devices there are and how large each is.
#pragma once
#include <string>

#include "vnpu_runtime.h"

namespace vnpu {

struct Settings {
  int devices = 0;
  size_t capacity = 0;  // bytes of each device
  bool queues = true;   // launches return before their kernel has run
};

// VNPU_SUCCESS, or VNPU_ERROR_BAD_ENVIRONMENT with the detail set for this thread.
vnpuError_t read_environment(Settings& settings);
const Settings& fixed_settings();  // valid once initialised
bool valid_device(int device);     // initialises nothing
vnpuError_t usable();              // VNPU_SUCCESS, VNPU_ERROR_BAD_FORK, or what vnpuInit says
void set_detail(std::string text);  // for vnpuGetLastErrorDetail, in this thread
int64_t now_ns();                  // wall clock, as the profiler's timestamps are

}  // namespace vnpu
