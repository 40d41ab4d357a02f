#include "plan.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>

#include <bit>

#include "allocator.h"

namespace vnpu {
namespace {

constexpr size_t kPlansPerOperator = 512;  // beyond that they are forgotten and learned anew
constexpr c10::DispatchKeySet kLazy({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                     c10::DispatchKey::ZeroTensor});

// Words that tell kinds of values apart, so that no two looks share a spelling.
enum Mark : int64_t { kNone = -101, kUndefined, kSame, kNumbers, kInt, kDouble, kBool, kComplex, kText, kIntList, kBoolList };

int64_t settings() {
  auto& context = at::globalContext();
  return static_cast<int64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())) |
         int64_t{context.deterministicAlgorithms()} << 8 | int64_t{context.userEnabledMkldnn()} << 9 |
         int64_t{c10::GradMode::is_enabled()} << 10;
}

template <class Action>
void each_tensor(const c10::IValue& value, Action action) {
  if (value.isTensor()) {
    action(value.toTensor(), -1);
  } else if (value.isTensorList()) {
    const auto list = value.toTensorList();
    for (size_t k = 0; k < list.size(); ++k) action(list.get(k), static_cast<int>(k));
  }
}

bool storage_is(const at::Tensor& tensor, const c10::StorageImpl* storage) {
  return tensor.defined() && tensor.has_storage() &&
         tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage;
}

}  // namespace

bool Look::add(const at::Tensor& tensor, Place place, bool written) {
  if (!tensor.defined()) {
    words_.push_back(kUndefined);
    return true;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  if ((impl->key_set() & kLazy).raw_repr()) return false;
  const bool npu = impl->device_type() == kNpu;
  // A number from the host is copied into the queue; anything larger on the host has its own way (see copies).
  if (!npu && (place == Place::SameOrHost || written || !tensor.is_cpu() || impl->dim() > 0)) return false;
  if (npu) {
    const auto device = tensor.device().index();
    if (device_ >= 0 && device != device_) return false;  // a copy between devices, or a mistake
    device_ = device;
    if (impl->has_storage() && !owns_memory(impl->unsafe_storage().unsafeGetStorageImpl())) return false;
  }
  words_.push_back(static_cast<int64_t>(tensor.scalar_type()) | int64_t{impl->is_wrapped_number()} << 8 |
                   int64_t{npu} << 9 | int64_t{impl->dim()} << 16);
  words_.append(impl->sizes().begin(), impl->sizes().end());
  words_.append(impl->strides().begin(), impl->strides().end());
  return true;
}

int64_t number_bits(const c10::IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool();
  return value.isDouble() ? std::bit_cast<int64_t>(value.toDouble()) : 0;
}

// Its kind decides to which dtype a result is promoted; its value decides nothing. Step sizes change with every step.
void Look::add_number(const c10::IValue& value) {
  const auto kind = [](const c10::IValue& one) -> int64_t {
    return one.isDouble() ? kDouble : one.isInt() ? kInt : one.isBool() ? kBool : one.isComplexDouble() ? kComplex : kNone;
  };
  if (!value.isList()) return words_.push_back(kind(value));
  const auto list = value.toListRef();
  words_.append({kNumbers, static_cast<int64_t>(list.size())});
  for (const auto& one : list) words_.push_back(kind(one));
}

bool Look::add_value(const c10::IValue& value) {
  if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isInt()) {
    words_.append({kInt, value.toInt()});
  } else if (value.isBool()) {
    words_.append({kBool, value.toBool()});
  } else if (value.isString()) {
    const auto& text = value.toStringRef();
    words_.append({kText, static_cast<int64_t>(text.size())});
    for (const char letter : text) words_.push_back(letter);
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    words_.append({kIntList, static_cast<int64_t>(list.size())});
    words_.append(list.begin(), list.end());
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    words_.append({kBoolList, static_cast<int64_t>(list.size())});
    for (size_t k = 0; k < list.size(); ++k) words_.push_back(list.get(k));
  } else {
    return false;  // streams, symbolic numbers …: rare, and run at once
  }
  return true;
}

bool writes_what_it_reads(const torch::jit::Stack& stack, const Traits& traits) {
  if (!traits.writes) return false;
  const auto* values = &stack[stack.size() - traits.arguments.size()];
  for (size_t i = 0; i < traits.arguments.size(); ++i) {
    if (!traits.arguments[i].written || !values[i].isTensor()) continue;
    const auto& written = values[i].toTensor();
    if (!written.defined() || !written.has_storage()) continue;
    const auto* storage = written.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    for (size_t k = 0; k < traits.arguments.size(); ++k) {
      bool shared = false;
      each_tensor(values[k], [&](const at::Tensor& other, int) {
        shared |= storage_is(other, storage) && other.unsafeGetTensorImpl() != written.unsafeGetTensorImpl();
      });
      if (shared) return true;
    }
  }
  return false;
}

bool Look::read(const torch::jit::Stack& stack, const Traits& traits) {
  const size_t count = traits.arguments.size();
  const size_t base = stack.size() - count;
  words_.push_back(settings());
  bool integers = false;
  for (size_t i = 0; i < count && !integers; ++i)
    each_tensor(stack[base + i], [&](const at::Tensor& tensor, int) {
      integers |= tensor.defined() && c10::isIntegralType(tensor.scalar_type(), false);
    });
  for (size_t i = 0; i < count; ++i) {
    const auto& argument = traits.arguments[i];
    const auto& value = stack[base + i];
    if (value.isTensor()) {
      const auto& tensor = value.toTensor();
      if (!add(tensor, argument.place, argument.written)) return false;
      for (size_t k = 0; k < i && tensor.defined() && traits.writes; ++k) {
        const auto& other = stack[base + k];
        if (other.isTensor() && other.toTensor().is_same(tensor)) words_.append({kSame, static_cast<int64_t>(k)});
      }
    } else if (argument.role == Role::TensorList && value.isTensorList()) {
      const auto list = value.toTensorList();
      words_.push_back(static_cast<int64_t>(list.size()));
      for (size_t k = 0; k < list.size(); ++k)
        if (!add(list.get(k), argument.place, argument.written)) return false;
    } else if (argument.role == Role::OptionalTensorList && value.isOptionalTensorList()) {
      const auto list = value.toOptionalTensorList();
      words_.push_back(static_cast<int64_t>(list.size()));
      for (size_t k = 0; k < list.size(); ++k) {
        const std::optional<at::Tensor> element = list.get(k);
        if (!element || !element->defined()) {
          words_.push_back(kNone);
          continue;
        }
        const auto dtype = element->scalar_type();  // a mask selects as many elements as are true
        if (dtype == at::kBool || dtype == at::kByte || !is_npu(*element)) return false;
        if (!add(*element, Place::Same, false)) return false;
      }
    } else if (argument.role == Role::Number) {
      add_number(value);
      // Integers cannot hold every number, and are not raised to every power.
      if (integers) words_.push_back(number_bits(value));
    } else if (argument.role == Role::Device ? !value.isNone() : !add_value(value)) {
      return false;
    }
  }
  return true;
}

size_t Look::hash() const {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a over words, with a final mix
  for (const auto word : words_) hash = (hash ^ static_cast<uint64_t>(word)) * 0x100000001b3ull;
  return hash ^ hash >> 29;
}

std::shared_ptr<const Plan> Plans::find(const Look& look) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = plans_.find(look);
  return found == plans_.end() ? nullptr : found->second;
}

void Plans::learn(Look look, Plan plan) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (plans_.size() >= kPlansPerOperator) plans_.clear();
  plans_.insert_or_assign(std::move(look), std::make_shared<const Plan>(std::move(plan)));
}

std::vector<Shape> shapes_of_written(const torch::jit::Stack& arguments, const Traits& traits) {
  std::vector<Shape> shapes;
  for (size_t i = 0; i < traits.arguments.size(); ++i) {
    if (!traits.arguments[i].written) continue;
    each_tensor(arguments[i], [&](const at::Tensor& tensor, int) {
      if (!tensor.defined()) return;
      auto* impl = tensor.unsafeGetTensorImpl();
      auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
      shapes.push_back({impl, storage, storage->data(), impl->storage_offset(), {}, {}});
      shapes.back().sizes.append(impl->sizes().begin(), impl->sizes().end());
      shapes.back().strides.append(impl->strides().begin(), impl->strides().end());
    });
  }
  return shapes;
}

Plan plan_from(const torch::jit::Stack& arguments, const std::vector<Shape>& written, const c10::IValue* returned,
               const Traits& traits, c10::DeviceIndex device) {
  Plan plan;
  for (const auto& shape : written) {
    const auto* impl = shape.tensor;
    const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    if (storage != shape.storage || storage->data() != shape.data || impl->storage_offset() != shape.offset ||
        impl->sizes() != c10::IntArrayRef(shape.sizes) || impl->strides() != c10::IntArrayRef(shape.strides))
      return plan;  // it was resized or re-pointed
  }
  std::vector<const c10::StorageImpl*> made;
  bool floats = false;
  for (size_t i = 0; i < traits.arguments.size(); ++i)
    each_tensor(arguments[i], [&](const at::Tensor& tensor, int) {
      floats |= tensor.defined() && is_npu(tensor) && !c10::isIntegralType(tensor.scalar_type(), true);
    });
  const auto result_of = [&](const at::Tensor& tensor, Result& result) {
    if (!tensor.defined()) {
      result.defined = false;
      return true;
    }
    for (size_t i = 0; i < traits.arguments.size(); ++i) {
      bool same = false;
      each_tensor(arguments[i], [&](const at::Tensor& argument, int element) {
        if (argument.unsafeGetTensorImpl() != tensor.unsafeGetTensorImpl()) return;
        result.argument = static_cast<int>(i);
        result.element = element;
        same = true;
      });
      if (same) return traits.arguments[i].written;
    }
    const auto* impl = tensor.unsafeGetTensorImpl();
    if (!is_npu(tensor) || tensor.device().index() != device || (impl->key_set() & kLazy).raw_repr() ||
        !impl->has_storage() || impl->storage_offset() != 0)
      return false;
    const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto bytes = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize());
    if (storage->nbytes() != bytes) return false;
    for (const auto* other : made)
      if (other == storage) return false;
    made.push_back(storage);
    for (size_t i = 0; i < traits.arguments.size(); ++i) {
      bool shared = false;
      each_tensor(arguments[i], [&](const at::Tensor& argument, int) { shared |= storage_is(argument, storage); });
      if (shared) return false;
    }
    // The default dtype decides over such a result, and over how it is computed; it may be another when the kernel runs.
    const bool inexact = c10::isFloatingType(tensor.scalar_type()) || c10::isComplexType(tensor.scalar_type());
    if (inexact && !floats && traits.name != "aten::_to_copy") return false;
    result.dtype = tensor.scalar_type();
    result.sizes.append(impl->sizes().begin(), impl->sizes().end());
    result.strides.append(impl->strides().begin(), impl->strides().end());
    return true;
  };
  for (size_t i = 0; i < traits.returns; ++i) {
    const auto& value = returned[i];
    if (!value.isTensor() && !value.isTensorList()) return plan;
    Returned one{value.isTensorList(), {}};
    bool told = true;
    each_tensor(value, [&](const at::Tensor& tensor, int) { told = told && result_of(tensor, one.results.emplace_back()); });
    if (!told) return plan;
    plan.makes_all &= !one.list;
    for (const auto& result : one.results) {
      const bool made = result.argument < 0 && result.defined;
      plan.makes_some |= made;
      plan.makes_all &= made;
    }
    plan.returned.push_back(std::move(one));
  }
  plan.queued = true;
  return plan;
}

}  // namespace vnpu
