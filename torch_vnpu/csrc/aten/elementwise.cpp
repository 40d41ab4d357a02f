// Typed kernels for the arithmetic that small models spend their time in: PyTorch's own structured kernels, with npu memory for
// their result, and CPU's vectorised loop on the bytes as they lie. No CPU tensor is made and no argument is boxed. They take calls
// of plain tensors of one dtype on one device that run at once; all others go to the zero-copy kernel.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/clamp_min_meta.h>
#include <ATen/ops/div_meta.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/sub_meta.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <torch/library.h>

#include <initializer_list>

#include "accesses.h"
#include "aliases.h"
#include "allocator.h"
#include "check.h"
#include "kernels.h"

namespace vnpu {
namespace {

using at::Scalar;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);
constexpr c10::DispatchKeySet kSpecial({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});

// Where CPU's loop does the same for the tensors of any device. For dtypes of 16 bits it looks at which operand is a number on
// CPU, and integers may be promoted.
bool is_plain(c10::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kDouble; }

bool is_plain(const Tensor& one, const Tensor& other) {
  const auto *a = one.unsafeGetTensorImpl(), *b = other.unsafeGetTensorImpl();
  return a->device_type() == kNpu && b->device_type() == kNpu && a->device() == b->device() && a->dtype() == b->dtype() &&
         is_plain(one.scalar_type()) && !((a->key_set() | b->key_set()) & kSpecial).raw_repr() &&
         !a->is_wrapped_number() && !b->is_wrapped_number() && !vnpuQueueEnabled();
}

// The iterator of an operator that makes its result.
template <class Meta>
struct Making final : Meta {
  explicit Making(c10::DeviceIndex on) : device(on) {}

  void set_output_raw_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options) override {
    const auto dtype = c10::typeMetaToScalarType(options.dtype());
    made = strides.empty() ? at::detail::empty_generic(sizes, allocator_of(device), kKeys, dtype, options.memory_format_opt())
                           : at::detail::empty_strided_generic(sizes, strides, allocator_of(device), kKeys, dtype);
    Meta::set_output_raw_strided(index, sizes, strides, options);
  }
  void set_output_strided(int64_t index, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options) override {
    set_output_raw_strided(index, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t) override { return made; }

  c10::DeviceIndex device;
  Tensor made;
};

struct Read {
  const char* argument;
  const Tensor& tensor;
};

// Runs `loop(iterator)` as a kernel of the device that reads `read`.
template <class Meta, class Loop>
Tensor run(const char* name, Making<Meta>& iterator, std::initializer_list<Read> read, Loop loop) {
  struct Task {
    Making<Meta>& iterator;
    Loop& loop;
  } task{iterator, loop};
  const auto kernel = [](void* argument) {
    auto* task = static_cast<Task*>(argument);
    task->loop(task->iterator);
  };
  check(vnpuRun(vnpuGetCurrentStream(iterator.device), name, kernel, &task, 1), name, iterator.device);
  if (C10_UNLIKELY(accesses_wanted())) {
    Accesses accesses;
    for (const auto& operand : read) accesses.add(operand.argument, operand.tensor, false);
    accesses.add("return", iterator.made, true);
    accesses.tell(name, vnpuGetCurrentStream(iterator.device), false);
  }
  return std::move(iterator.made);
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  static ZeroCopy general("aten::add", "Tensor");
  if (!is_plain(self, other)) return general.call(self, other, alpha);
  Making<at::meta::structured_add_Tensor> iterator(self.device().index());
  iterator.meta(self, other, alpha);
  return run(general.name(), iterator, {{"self", self}, {"other", other}}, [&](auto& loop) { at::native::add_stub(c10::kCPU, loop, alpha); });
}

Tensor sub(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  static ZeroCopy general("aten::sub", "Tensor");
  if (!is_plain(self, other)) return general.call(self, other, alpha);
  Making<at::meta::structured_sub_Tensor> iterator(self.device().index());
  iterator.meta(self, other, alpha);
  return run(general.name(), iterator, {{"self", self}, {"other", other}}, [&](auto& loop) { at::native::add_stub(c10::kCPU, loop, -alpha); });
}

Tensor mul(const Tensor& self, const Tensor& other) {
  static ZeroCopy general("aten::mul", "Tensor");
  if (!is_plain(self, other)) return general.call(self, other);
  Making<at::meta::structured_mul_Tensor> iterator(self.device().index());
  iterator.meta(self, other);
  return run(general.name(), iterator, {{"self", self}, {"other", other}}, [](auto& loop) { at::native::mul_stub(c10::kCPU, loop); });
}

Tensor div(const Tensor& self, const Tensor& other) {
  static ZeroCopy general("aten::div", "Tensor");
  if (!is_plain(self, other)) return general.call(self, other);
  Making<at::meta::structured_div_Tensor> iterator(self.device().index());
  iterator.meta(self, other);
  return run(general.name(), iterator, {{"self", self}, {"other", other}}, [](auto& loop) { at::native::div_true_stub(c10::kCPU, loop); });
}

Tensor relu(const Tensor& self) {
  static ZeroCopy general("aten::relu", "");
  if (!is_plain(self, self)) return general.call(self);
  Making<at::meta::structured_clamp_min> iterator(self.device().index());
  iterator.meta(self, 0);
  return run(general.name(), iterator, {{"self", self}}, [](auto& loop) { at::native::clamp_min_scalar_stub(c10::kCPU, loop, 0); });
}

Tensor threshold_backward(const Tensor& gradient, const Tensor& self, const Scalar& threshold) {
  static ZeroCopy general("aten::threshold_backward", "");
  if (!is_plain(gradient, self)) return general.call(gradient, self, threshold);
  Making<at::meta::structured_threshold_backward> iterator(self.device().index());
  iterator.meta(gradient, self, threshold);
  return run(general.name(), iterator, {{"grad_output", gradient}, {"self", self}}, [&](auto& loop) { at::native::threshold_stub(c10::kCPU, loop, threshold, 0); });
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("add.Tensor", add);
  library.impl("sub.Tensor", sub);
  library.impl("mul.Tensor", mul);
  library.impl("div.Tensor", div);
  library.impl("relu", relu);
  library.impl("threshold_backward", threshold_backward);
}

}  // namespace vnpu
