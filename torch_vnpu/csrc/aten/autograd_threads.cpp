#include "autograd_threads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/neg.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <thread>

#include "allocator.h"

namespace vnpu {

void await_autograd_threads(c10::DeviceIndex devices) {
  std::exception_ptr failure;
  // On a thread of its own, since the caller may be inside modes, transforms or without gradients. Without elements, and so
  // without a trace in the memory figures.
  std::thread([&] {
    try {
      for (c10::DeviceIndex index = 0; index < devices; ++index) {
        const auto leaf = at::empty({0}, c10::Device(kNpu, index)).set_requires_grad(true);
        torch::autograd::backward({leaf.neg()}, {leaf.detach()});
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace vnpu
