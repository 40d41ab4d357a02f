#include "autograd_threads.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <exception>
#include <thread>

#include "allocator.h"

namespace vnpu {

void await_autograd_threads(c10::DeviceIndex devices) {
  std::exception_ptr failure;
  // On a thread of its own, since the caller may be inside modes, transforms or without gradients. Without elements, and so
  // without a trace in the memory figures; the gradient of a view that nothing accumulates takes no kernel, and so leaves none in
  // logs and profiles.
  std::thread([&] {
    try {
      for (c10::DeviceIndex index = 0; index < devices; ++index) {
        const auto leaf = at::empty({0}, c10::Device(kNpu, index)).set_requires_grad(true);
        torch::autograd::grad({at::alias(leaf)}, {leaf}, {leaf.detach()});
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace vnpu
