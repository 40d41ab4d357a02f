// The refusal of sparse tensors.
#pragma once
#include <string>

namespace vnpu {
// Throws NotImplementedError: the operator `name` would need a sparse tensor on npu.
[[noreturn]] void refuse_sparse(const std::string& name);
}  // namespace vnpu
