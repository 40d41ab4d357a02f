// Operators that need no kernel: they make memory, or change how a tensor looks at its memory.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>

#include "accesses.h"
#include "aliases.h"
#include "allocator.h"

namespace vnpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_options(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "npu: only strided tensors can be made, not layout ",
                              *layout);
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned, not tensors on npu");
}

// The device to switch to; "npu" without an index is the current one.
std::optional<at::Device> indexed(std::optional<at::Device> device) {
  return device && device->has_index() ? device : std::nullopt;
}

Tensor empty_memory_format(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                           std::optional<at::Device> device, std::optional<bool> pinned,
                           std::optional<at::MemoryFormat> format) {
  check_options(layout, pinned);
  const c10::OptionalDeviceGuard guard(indexed(device));
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  check_options(layout, pinned);
  const c10::OptionalDeviceGuard guard(indexed(device));
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype));
}

// New memory comes from the current device, so `change` is made with the tensor's as current. PyTorch changes the sizes before
// it asks for the memory: where there is none, the tensor looks at its memory as before, or it would look beyond it.
template <class Change>
void grow(const Tensor& self, Change change) {
  const c10::DeviceGuard guard(self.device());
  auto* impl = self.unsafeGetTensorImpl();
  const c10::Storage storage = impl->storage();
  const auto sizes = self.sizes().vec(), strides = self.strides().vec();
  const auto offset = self.storage_offset();
  try {
    change();
  } catch (...) {
    impl->set_storage_keep_dtype(storage);
    impl->set_sizes_and_strides(sizes, strides, offset);
    throw;
  }
}

// Larger memory takes over what the old one holds, so what is still queued has to be written before.
void await_writes(const char* name, const c10::Storage& storage, IntArrayRef size, IntArrayRef stride, int64_t offset,
                  size_t itemsize) {
  if (!storage.nbytes() || offset < 0 || std::any_of(size.begin(), size.end(), [](int64_t n) { return n < 0; })) return;
  const auto first = static_cast<size_t>(offset);
  const bool strided = stride.size() == size.size() && !stride.empty();
  const auto bytes = strided ? at::detail::computeStorageNbytes(size, stride, itemsize, first)
                             : at::detail::computeStorageNbytesContiguous(size, itemsize, first);
  if (bytes <= storage.nbytes()) return;
  const auto device = storage.device().index();
  tell_read(name, storage, vnpuGetCurrentStream(device));
  if (vnpuQueueEnabled()) vnpuDeviceDrain(device);
}

const Tensor& resize(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  await_writes("aten::resize_", self.storage(), size, {}, self.storage_offset(), self.dtype().itemsize());
  grow(self, [&] { at::native::resize_(self, size, format); });
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  await_writes("aten::set_", source, size, stride, offset, self.dtype().itemsize());
  grow(self, [&] { at::native::set_storage_cpu_(self, std::move(source), offset, size, stride); });
  return self;
}

Tensor& set_to_empty(Tensor& self) {
  const c10::DeviceGuard guard(self.device());
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator(), true);
  return at::native::set_storage_cpu_(self, std::move(none), 0, {0}, {});
}

Tensor copy_from(const Tensor& self, const Tensor& target, bool non_blocking) {
  return target.copy_(self, non_blocking);
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& target) {
  at::native::resize_output(target, self.sizes());
  return target.copy_(self);
}

void record_stream_of(Tensor& self, c10::Stream stream) {
  TORCH_CHECK(stream.device() == self.device(), "npu: a tensor on ", self.device(), " cannot be recorded on a stream of ",
              stream.device());
  static_cast<c10::DeviceAllocator*>(allocator())->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_memory_format);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
  library.impl("resize_", resize);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_));
  library.impl("set_.source_Tensor", at::native::set_tensor_);
  library.impl("set_", set_to_empty);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("record_stream", record_stream_of);
}

}  // namespace vnpu
