// Zero copy: the npu tensors of one operator call become CPU tensors over the same bytes, and what the CPU kernel returns
// becomes npu tensors again, with every aliasing relation between inputs and outputs kept.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "allocator.h"

#include <vector>

namespace vnpu {

inline bool is_npu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->device_type() == kNpu;
}

class Aliases {
 public:
  // `keeps`: the kernel may keep its operands beyond the call, so their bytes have to live as long.
  explicit Aliases(bool keeps = false) : keeps_(keeps) {}
  ~Aliases();
  // A CPU tensor over the bytes of `npu`. `written`: the kernel may write, resize or re-point it. `known`: it may be an operand
  // already; the kernel gets the same tensor then, as it may ask whether its result is its input.
  at::Tensor to_cpu(const at::Tensor& npu, bool written, bool known = false);
  // A CPU tensor that the caller passed itself: where the kernel returns it, it is returned as it is.
  void keep_host(const at::Tensor& host) { host_.push_back(host.unsafeGetTensorImpl()); }
  // Sizes, strides and storages that the kernel changed go back to the npu tensors.
  void write_back();
  // The npu tensor for what the kernel returned. `name` is the operator's, for errors.
  at::Tensor to_npu(at::Tensor cpu, const char* name);

  // The CPU tensors of a call that is queued; they outlive this object.
  std::vector<at::Tensor> hand_over();

  c10::DeviceIndex device() const { return device_; }  // -1: no npu tensor or device was seen
  void set_device(c10::DeviceIndex device) { device_ = device; }

 private:
  c10::StorageImpl* npu_storage_for(c10::StorageImpl* cpu) const;
  c10::Storage adopt_storage(c10::StorageImpl* cpu, c10::DeviceIndex device);

  struct Alias {
    at::Tensor cpu, npu;  // both alive until the outputs are adopted: identity is compared by address
    bool written;
  };
  struct Pair {
    c10::StorageImpl *npu, *cpu;
  };
  c10::SmallVector<Alias, 6> aliases_;
  c10::SmallVector<Pair, 8> storages_;
  c10::SmallVector<c10::TensorImpl*, 4> host_;
  c10::DeviceIndex device_ = -1;
  const bool keeps_;
};

// Takes the CPU tensors of a call that is done, on whatever thread, so that another call need not make new ones.
void reuse(std::vector<at::Tensor> tensors);

}  // namespace vnpu
