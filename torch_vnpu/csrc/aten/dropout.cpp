// Dropout draws from the generator of its device. The CPU kernel would draw from CPU's, since it takes no generator.
#define AT_PER_OPERATOR_HEADERS
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <tuple>

namespace vnpu {
namespace {

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  const auto flags = input.options().dtype(at::kBool);
  if (!input.numel()) return {input.clone(), at::empty_like(input, flags)};
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, flags)};
  const double kept = 1.0 - p;
  auto mask = at::empty_like(input, flags).bernoulli_(kept);
  auto output = input.mul(mask).mul_(kept == 0 ? 0.0 : 1.0 / kept);
  return {std::move(output), std::move(mask)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { library.impl("native_dropout", native_dropout); }

}  // namespace vnpu
