#include "accesses.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <mutex>
#include <optional>

#include "aliases.h"

namespace vnpu {
namespace {

thread_local bool inside_kernel = false;

template <class Action>
void each_tensor(const c10::IValue& value, Action action) {
  if (value.isTensor()) {
    action(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) action(tensor);
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    for (const c10::IValue& element : value.toListRef())
      if (element.isTensor()) action(element.toTensor());
  }
}

bool is_pinned(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.has_storage() && vnpuHostIsPinned(tensor.storage().data());
}

// A CPU operator, as PyTorch's dispatcher is about to call it.
void look_at_host(const at::RecordFunction& call) {
  if (inside_kernel || !events::listening(events::Kind::HostAccess)) return;
  const auto inputs = call.inputs();
  bool pinned = false, npu = false;
  for (const auto& input : inputs)
    each_tensor(input, [&](const at::Tensor& tensor) {
      npu |= is_npu(tensor);
      pinned = pinned || is_pinned(tensor);
    });
  if (!pinned || npu) return;
  const auto name = call.operator_name();
  if (!name) return;
  const auto op = c10::Dispatcher::singleton().findOp(*name);
  if (!op || !op->hasSchema()) return;
  // Others are taken apart into operators that come by here themselves.
  if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && name->name != "aten::copy_") return;
  const auto traits = traits_of(*op);
  if (traits.when == When::View || inputs.size() != traits.arguments.size()) return;
  Accesses accesses;
  for (size_t i = 0; i < inputs.size(); ++i)
    each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if ((traits.arguments[i].read || traits.arguments[i].written) && is_pinned(tensor))
        accesses.add(traits.arguments[i].name.c_str(), tensor, traits.arguments[i].written, true);
    });
  accesses.tell_host(traits.name.c_str());
}

std::mutex watch_mutex;
std::optional<at::CallbackHandle> watch;

}  // namespace

void Accesses::add(const char* argument, const at::Tensor& tensor, bool written, bool host) {
  if (!tensor.defined()) return;
  const auto* impl = tensor.unsafeGetTensorImpl();
  const bool npu = is_npu(tensor);
  if ((!npu && !host) || !impl->has_storage() || !impl->numel()) return;
  const auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const auto itemsize = static_cast<uint64_t>(impl->itemsize());
  operands_.push_back({.argument = argument,
                       .base = storage->data(),
                       .storage_bytes = storage->nbytes(),
                       .device = npu ? impl->device().index() : -1,
                       .written = written,
                       .offset = static_cast<uint64_t>(impl->storage_offset()) * itemsize,
                       .itemsize = itemsize,
                       .dims = static_cast<uint32_t>(impl->dim()),
                       .sizes = impl->sizes().data(),
                       .strides = impl->strides().data()});
}

void Accesses::add(const Traits& traits, const torch::jit::Stack& arguments, const c10::IValue* returned) {
  for (size_t i = 0; i < traits.arguments.size(); ++i) {
    const auto& argument = traits.arguments[i];
    if (!argument.read && !argument.written) continue;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      add(argument.name.c_str(), tensor, argument.written, traits.copies && is_pinned(tensor));
    });
  }
  for (size_t i = 0; i < traits.makes.size(); ++i)
    if (traits.makes[i]) each_tensor(returned[i], [&](const at::Tensor& tensor) { add("return", tensor, true); });
}

void Accesses::tell(const char* name, vnpuStream_t stream, bool waits) const {
  if (operands_.empty() && !waits) return;
  events::emit({.kind = events::Kind::Access,
                .device = vnpuStreamDevice(stream),
                .stream = vnpuStreamId(stream),
                .name = name,
                .operands = operands_.data(),
                .count = static_cast<uint32_t>(operands_.size()),
                .waits = waits});
}

void Accesses::tell_host(const char* name) const {
  if (operands_.empty()) return;
  events::emit({.kind = events::Kind::HostAccess,
                .name = name,
                .operands = operands_.data(),
                .count = static_cast<uint32_t>(operands_.size())});
}

void tell_read(const char* name, const c10::Storage& storage, vnpuStream_t stream) {
  if (C10_LIKELY(!accesses_wanted()) || !storage.nbytes()) return;
  const auto bytes = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(storage.nbytes())});
  Accesses accesses;
  accesses.add("self", bytes, false);
  accesses.tell(name, stream, false);
}

void watch_host() {
  std::lock_guard<std::mutex> lock(watch_mutex);
  if (watch || !events::listening(events::Kind::HostAccess)) return;  // every CPU operator pays for it
  using Context = std::unique_ptr<at::ObserverContext>;
  const auto start = [](const at::RecordFunction& call) -> Context {
    look_at_host(call);
    return nullptr;
  };
  watch = at::addGlobalCallback(
      at::RecordFunctionCallback(start).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

void stop_watching_host() {
  std::lock_guard<std::mutex> lock(watch_mutex);
  if (watch) at::removeCallback(*watch);
  watch.reset();
}

bool watches_host() {
  std::lock_guard<std::mutex> lock(watch_mutex);
  return watch.has_value();
}

NoHostAccess::NoHostAccess() : before_(inside_kernel) { inside_kernel = true; }
NoHostAccess::~NoHostAccess() { inside_kernel = before_; }

}  // namespace vnpu
