// An operator call on its way through a stream's queue.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <optional>

#include "../runtime/vnpu_runtime.h"

namespace vnpu {

// Holds CPU tensors over the bytes of the operands and results, and nothing that Python knows of: it ends on the queue's thread.
struct Deferred {
  Deferred(const c10::OperatorHandle& called, const char* called_name, vnpuStream_t on)
      : op(called), name(called_name), stream(on), grad_mode(c10::GradMode::is_enabled()), denormals(denormal_mode()) {}

  // How the calling thread treats numbers close to zero (torch.set_flush_denormal), where the processor tells.
  static unsigned denormal_mode();

  // Puts the call into its stream's queue, which owns it from then on.
  static void launch(std::unique_ptr<Deferred> call);

  c10::OperatorHandle op;
  const char* name;
  vnpuStream_t stream;
  bool grad_mode;
  unsigned denormals;
  torch::jit::Stack arguments;
  std::vector<at::Tensor> aliases;  // the CPU tensors among the arguments and results, to be used again
  size_t outs = 0;  // how many of the last arguments are results that the operator writes itself
  // What the operator returns is copied here. Empty where it writes its results itself.
  std::vector<std::vector<at::Tensor>> results;
};

// The overload of `op` that writes its results into tensors given after the same arguments, where CPU has a kernel for it.
std::optional<c10::OperatorHandle> out_overload(const c10::OperatorHandle& op);

// Sizes the queues' threads by torch's number of threads, so that the host and they never have more than that together.
void configure_queues();

}  // namespace vnpu
