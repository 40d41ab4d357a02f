#include "traits.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace vnpu {
namespace {

// Operators that copy between devices.
const std::unordered_set<std::string_view>& copies() {
  static const std::unordered_set<std::string_view> names = {"aten::copy_", "aten::_copy_from",
                                                             "aten::_copy_from_and_resize", "aten::_foreach_copy_"};
  return names;
}

// Arguments that may lie on CPU, as they may on any accelerator.
const std::unordered_map<std::string_view, std::vector<std::string_view>>& host_arguments() {
  static const std::unordered_map<std::string_view, std::vector<std::string_view>> table = {
      {"aten::index", {"indices"}},
      {"aten::index_put_", {"indices"}},
      {"aten::index_put", {"indices"}},
      {"aten::_index_put_impl_", {"indices"}},
      {"aten::_unsafe_index", {"indices"}},
      {"aten::_unsafe_index_put", {"indices"}},
      {"aten::_pack_padded_sequence", {"lengths"}},
      {"aten::_ctc_loss", {"input_lengths", "target_lengths"}},
      {"aten::_ctc_loss_backward", {"input_lengths", "target_lengths"}},
  };
  return table;
}

Place place_of(const c10::FunctionSchema& schema, const std::string& argument) {
  if (copies().contains(schema.name())) return Place::Any;
  const auto found = host_arguments().find(schema.name());
  if (found == host_arguments().end()) return Place::Same;
  const auto& names = found->second;
  return std::find(names.begin(), names.end(), argument) != names.end() ? Place::SameOrHost : Place::Same;
}

Role role_of(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType: return Role::Tensor;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType: return Role::Number;
    case c10::TypeKind::GeneratorType: return Role::Generator;
    case c10::TypeKind::DeviceObjType: return Role::Device;
    case c10::TypeKind::OptionalType: return role_of(type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: {
      const auto& element = type->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return Role::TensorList;
      const auto role = role_of(element);
      return role == Role::Tensor ? Role::OptionalTensorList : role == Role::Number ? Role::Number : Role::Other;
    }
    default: return Role::Other;
  }
}

// Operators whose results' shapes depend on values though no tag says so, or which look at values on the host.
const std::unordered_set<std::string_view>& value_dependent() {
  static const std::unordered_set<std::string_view> names = {
      "aten::_ctc_loss",        "aten::_ctc_loss_backward", "aten::segment_reduce", "aten::_segment_reduce_backward",
      "aten::_embedding_bag",   "aten::_embedding_bag_forward_only", "aten::_pack_padded_sequence",
      "aten::linalg_lstsq",     "aten::_linalg_check_errors", "aten::set_data", "aten::_assert_async",
      "aten::arange",           "aten::range",  // numbers say how many elements there are
  };
  return names;
}

When when_of(const c10::OperatorHandle& op, const Traits& traits) {
  const auto& schema = op.schema();
  bool view = false, fresh = false;
  for (const auto& result : schema.returns()) {
    const auto role = role_of(result.type());
    if (role != Role::Tensor && role != Role::TensorList) return When::Now;  // a value for the host
    const auto* alias = result.alias_info();
    (alias && !alias->isWrite() ? view : fresh) = true;
  }
  if (view) return !fresh && !traits.writes ? When::View : When::Now;
  if (!schema.name().starts_with("aten::") || value_dependent().contains(schema.name())) return When::Now;
  // Random numbers are drawn in the order of the calls, on whatever streams these are.
  for (const auto tag : {at::Tag::data_dependent_output, at::Tag::inplace_view, at::Tag::nondeterministic_seeded})
    if (op.hasTag(tag)) return When::Now;
  // An index with numbers has a shape that can be told; one with a mask cannot, which the look of the call says.
  if (op.hasTag(at::Tag::dynamic_output_shape) && schema.name() != "aten::index") return When::Now;
  for (const auto& argument : traits.arguments)
    if (argument.role == Role::Generator) return When::Now;
  return schema.returns().empty() && !traits.writes ? When::Now : When::Later;
}

// Whether `schema` looks at the sizes, strides and dtype of its argument `index` only.
bool only_looks(const c10::FunctionSchema& schema, size_t index) {
  const std::string_view full = schema.name();
  if (!full.starts_with("aten::")) return false;
  const auto name = full.substr(6);
  if (index == 0 && (name.starts_with("new_") || name.ends_with("_like"))) return true;
  if (name == "resize_as_" || name == "resize_as_sparse_") return index == 1;
  return name == "resize_" || name == "set_" || name == "set_data" || name == "is_set_to" || name == "is_same_size";
}

bool makes_no_values(const c10::FunctionSchema& schema) {
  const std::string_view full = schema.name();
  return full.starts_with("aten::empty") || full.starts_with("aten::new_empty");
}

// Where the host needs what the kernel computed, any accelerator waits for the stream.
bool waits_for_values(const c10::OperatorHandle& op) {
  for (const auto& result : op.schema().returns()) {
    const auto role = role_of(result.type());
    if (role != Role::Tensor && role != Role::TensorList) return true;
  }
  return op.hasTag(at::Tag::data_dependent_output) ||
         (op.hasTag(at::Tag::dynamic_output_shape) && op.schema().name() != "aten::index");
}

}  // namespace

Traits traits_of(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  Traits traits;
  traits.name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  traits.returns = schema.returns().size();
  traits.copies = copies().contains(schema.name());
  traits.waits = waits_for_values(op);
  for (const auto& argument : schema.arguments()) {
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    const bool read = !only_looks(schema, traits.arguments.size());
    traits.arguments.push_back({role_of(argument.type()), written, place_of(schema, argument.name()), argument.name(), read});
    traits.writes |= written;
  }
  for (const auto& result : schema.returns()) traits.makes.push_back(!result.alias_info() && !makes_no_values(schema));
  traits.when = when_of(op, traits);
  return traits;
}

}  // namespace vnpu
