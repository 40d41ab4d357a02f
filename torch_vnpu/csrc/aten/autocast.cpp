// Autocast on npu: PyTorch's own lists of operators, for AutocastPrivateUse1.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

// `m` and the position in this namespace are what the KERNEL_… macros expect.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define VNPU_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(VNPU_LOWER_PRECISION)
#define VNPU_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(VNPU_FP32)
#define VNPU_FP32_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(VNPU_FP32_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define VNPU_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(VNPU_PROMOTE)

  m.impl("binary_cross_entropy", [](const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) -> Tensor {
    TORCH_CHECK(false,
                "binary_cross_entropy and BCELoss are unsafe to autocast: use binary_cross_entropy_with_logits or "
                "BCEWithLogitsLoss, or leave autocast for this call");
  });
}

}  // namespace at::autocast
