#include "aliases.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/InferenceMode.h>

#include <mutex>

#include "device.h"
#include "sparse.h"

namespace vnpu {
namespace {
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::StorageImpl;
using c10::TensorImpl;
using StoragePtr = c10::intrusive_ptr<StorageImpl>;

// Properties that the CPU kernel must see too: a lazily conjugated tensor is one on any backend.
constexpr DispatchKeySet kLazyKeys({DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::ZeroTensor});

// PyTorch changes a tensor's sizes before it asks for the memory; where there was none, they are not to be kept.
bool fits(const TensorImpl& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                          static_cast<size_t>(tensor.storage_offset())) <=
      tensor.unsafe_storage().nbytes();
}

StorageImpl* storage_impl(const TensorImpl* tensor) { return tensor->unsafe_storage().unsafeGetStorageImpl(); }
}  // namespace

namespace {
// CPU tensors that stood for an npu tensor during a call on this thread, without storage, for the next call: making one anew costs
// two allocations. None is made in inference mode, where tensors are of another kind.
constexpr size_t kSpare = 128;
thread_local bool spare_open = true;  // outlives what it tells of
struct Spare {
  std::vector<at::Tensor> tensors;
  ~Spare() { spare_open = false; }
};
thread_local Spare spare;

// Those of queued calls come back from the queue's thread, for any.
constexpr size_t kReturned = 1024;
struct Returned {
  std::mutex mutex;
  std::vector<at::Tensor> tensors;
};
Returned& returned() {
  static auto* all = new Returned;  // leaked: queues may work while static objects are destroyed
  return *all;
}

bool find_spare() {
  if (!spare_open) return false;
  if (C10_UNLIKELY(spare.tensors.empty())) {
    auto& back = returned();
    const std::unique_lock<std::mutex> lock(back.mutex, std::try_to_lock);
    if (lock) spare.tensors.swap(back.tensors);
  }
  return !spare.tensors.empty();
}

at::Tensor cpu_tensor(c10::Storage storage, DispatchKeySet lazy, caffe2::TypeMeta dtype) {
  if (C10_LIKELY(lazy.empty() && !c10::InferenceMode::is_enabled() && find_spare())) {
    auto tensor = std::move(spare.tensors.back());
    spare.tensors.pop_back();
    tensor.unsafeGetTensorImpl()->set_storage_and_dtype(std::move(storage), dtype);
    return tensor;
  }
  return at::detail::make_tensor<TensorImpl>(std::move(storage), DispatchKeySet(DispatchKey::CPU) | lazy, dtype);
}

// Whether nobody else has it, and it is as cpu_tensor makes it. Its storage is let go.
bool clear(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (tensor.use_count() != 1 || tensor.weak_use_count() != 1 || (impl->key_set() & kLazyKeys).raw_repr() ||
      impl->is_inference() || impl->is_wrapped_number() || impl->autograd_meta())
    return false;
  impl->release_resources();
  return true;
}
}  // namespace

Aliases::~Aliases() {
  if (C10_UNLIKELY(!spare_open)) return;
  for (auto& alias : aliases_)
    if (alias.cpu.defined() && spare.tensors.size() < kSpare && clear(alias.cpu))
      spare.tensors.push_back(std::move(alias.cpu));
}

std::vector<at::Tensor> Aliases::hand_over() {
  std::vector<at::Tensor> all;
  all.reserve(aliases_.size());
  for (auto& alias : aliases_) all.push_back(std::move(alias.cpu));
  return all;
}

void reuse(std::vector<at::Tensor> tensors) {
  std::erase_if(tensors, [](const at::Tensor& tensor) { return !clear(tensor); });
  auto& back = returned();
  const std::lock_guard<std::mutex> lock(back.mutex);
  if (back.tensors.size() + tensors.size() > kReturned) return;
  back.tensors.insert(back.tensors.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
}

StorageImpl* Aliases::npu_storage_for(StorageImpl* cpu) const {
  for (const auto& pair : storages_)
    if (pair.cpu == cpu) return pair.npu;
  return nullptr;
}

c10::Storage Aliases::adopt_storage(StorageImpl* cpu, c10::DeviceIndex device) {
  if (auto* known = npu_storage_for(cpu)) return c10::Storage(StoragePtr::reclaim_copy(known));
  auto adopted = wrap_cpu_storage(StoragePtr::reclaim_copy(cpu), device);
  storages_.push_back({adopted.unsafeGetStorageImpl(), cpu});
  return adopted;
}

at::Tensor Aliases::to_cpu(const at::Tensor& npu, bool written, bool known) {
  auto* impl = npu.unsafeGetTensorImpl();
  if (known) {
    for (auto& alias : aliases_) {
      if (alias.npu.unsafeGetTensorImpl() != impl) continue;
      alias.written |= written;
      return alias.cpu;
    }
  }
  if (device_ < 0) device_ = npu.device().index();
  auto* storage = storage_impl(impl);
  StoragePtr cpu;
  if (C10_LIKELY(!keeps_)) cpu = cpu_storage_of(storage);
  if (C10_UNLIKELY(!cpu || !is_alias(cpu.get(), storage))) {  // it may be made anew each time it is asked for
    for (const auto& pair : storages_)
      if (pair.npu == storage) cpu = StoragePtr::reclaim_copy(pair.cpu);
    if (!cpu) cpu = keeping_cpu_storage_of(storage);
  }
  storages_.push_back({storage, cpu.get()});
  auto alias = cpu_tensor(c10::Storage(std::move(cpu)), impl->key_set() & kLazyKeys, impl->dtype());
  auto* alias_impl = alias.unsafeGetTensorImpl();
  alias_impl->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  if (C10_UNLIKELY(impl->is_wrapped_number())) alias_impl->set_wrapped_number(true);
  aliases_.push_back({alias, npu, written});
  return alias;
}

void Aliases::write_back() {
  for (auto& alias : aliases_) {
    if (!alias.written) continue;
    auto* cpu = alias.cpu.unsafeGetTensorImpl();
    auto* npu = alias.npu.unsafeGetTensorImpl();
    auto* cpu_storage = storage_impl(cpu);
    auto* npu_storage = storage_impl(npu);
    const bool same_memory = is_alias(cpu_storage, npu_storage);
    const auto device = alias.npu.device().index();
    if (C10_LIKELY(same_memory)) {
      // as nearly always
    } else if (npu_storage_for(cpu_storage) != npu_storage) {
      npu->set_storage_keep_dtype(adopt_storage(cpu_storage, device));  // the kernel pointed it at another storage
    } else if (cpu_storage->data() != npu_storage->data() || cpu_storage->nbytes() != npu_storage->nbytes()) {
      rewrap_cpu_storage(npu_storage, cpu_storage, device);  // the kernel resized the storage
    }
    const bool changed = cpu->sizes() != npu->sizes() || cpu->strides() != npu->strides() ||
                         cpu->storage_offset() != npu->storage_offset();
    if (C10_UNLIKELY(changed) && fits(*cpu))
      npu->set_sizes_and_strides(cpu->sizes(), cpu->strides(), cpu->storage_offset());
  }
}

at::Tensor Aliases::to_npu(at::Tensor cpu, const char* name) {
  if (!cpu.defined() || cpu.device().type() != c10::kCPU) return cpu;
  auto* impl = cpu.unsafeGetTensorImpl();
  for (const auto& alias : aliases_)
    if (alias.cpu.unsafeGetTensorImpl() == impl) return alias.npu;
  for (const auto* host : host_)
    if (host == impl) return cpu;
  if (C10_UNLIKELY(!impl->has_storage())) refuse_layout(name, cpu.layout());
  TORCH_CHECK_NOT_IMPLEMENTED(!impl->key_set().has(DispatchKey::Quantized), "npu: there are no quantised tensors on this device (in ",
                              name, "); quantise on CPU, or use fake quantisation");
  const auto device = device_ < 0 ? current_device() : device_;
  if (C10_LIKELY(cpu.use_count() == 1)) {  // nobody else sees it: it turns into an npu tensor where it stands
    auto* own = storage_impl(impl);
    // Nor its storage, whose bytes the kernel took from the device.
    const bool converted = impl->unsafe_storage().use_count() == 1 && convert_to_npu(own, device);
    impl->set_storage_keep_dtype(converted ? c10::Storage(StoragePtr::reclaim_copy(own)) : adopt_storage(own, device));
    impl->_change_backend_component_keys(c10::Device(kNpu, device));
    return cpu;
  }
  auto storage = adopt_storage(storage_impl(impl), device);
  auto npu = at::detail::make_tensor<TensorImpl>(
      std::move(storage), DispatchKeySet(DispatchKey::PrivateUse1) | (impl->key_set() & kLazyKeys), impl->dtype());
  npu.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return npu;
}

}  // namespace vnpu
