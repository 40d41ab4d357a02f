// The refusal of sparse tensors, and of the other layouts that have no storage.
#pragma once
#include <c10/core/Layout.h>

#include <string>

namespace vnpu {
// Throws NotImplementedError: the operator `name` would need a tensor of this layout on npu.
[[noreturn]] void refuse_layout(const std::string& name, c10::Layout layout = c10::Layout::Sparse);
}  // namespace vnpu
