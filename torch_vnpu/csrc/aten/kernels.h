// Registration of the operators on npu, and the zero-copy kernel for kernels that do not take all calls of their operator.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>

namespace vnpu {

// Registers the zero-copy kernel for every aten operator that has a CPU kernel and none on npu; returns how many. Once.
int register_kernels();

class BoxedKernel;

// The zero-copy kernel of one operator that returns one tensor.
class ZeroCopy {
 public:
  ZeroCopy(const char* name, const char* overload);
  ~ZeroCopy();
  const char* name() const;

  template <class... Arguments>
  at::Tensor call(const Arguments&... arguments) const {
    torch::jit::Stack stack;
    stack.reserve(sizeof...(arguments));
    (stack.emplace_back(arguments), ...);
    run(&stack);
    return std::move(stack.back()).toTensor();
  }

 private:
  void run(torch::jit::Stack* stack) const;
  const c10::OperatorHandle op_;
  const std::unique_ptr<BoxedKernel> kernel_;
};

}  // namespace vnpu
