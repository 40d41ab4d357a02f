// Sparse tensors: this device has none. Whatever would make one here, or works on one that something else made, is refused with
// the same sentence, so that nothing is left on CPU in silence.
#include "sparse.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace vnpu {
namespace {

void fallback(const c10::OperatorHandle& op, torch::jit::Stack*) {
  const auto& name = op.operator_name();
  refuse_layout(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
}

}  // namespace

void refuse_layout(const std::string& name, c10::Layout layout) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu: there are no ", layout == c10::Layout::Mkldnn ? "oneDNN" : "sparse",
                              " tensors on this device (in ", name,
                              "); use a dense tensor, or do this part on CPU with .cpu()");
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// They are composite, which ranks above the fallback, and make a tensor of a compressed layout without asking the device.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, library) {
  for (const auto* name : {"_sparse_compressed_tensor_unsafe", "_sparse_csr_tensor_unsafe", "_sparse_csc_tensor_unsafe",
                           "_sparse_bsr_tensor_unsafe", "_sparse_bsc_tensor_unsafe"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace vnpu
