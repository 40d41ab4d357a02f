// What a kernel reads and writes, told to the listeners: by the schema's alias information, in the bytes of the tensors' own sizes
// and strides. Values may narrow that further (an index into a table); the whole operand counts then.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include "../events.h"
#include "../runtime/vnpu_runtime.h"
#include "traits.h"

namespace vnpu {

inline bool accesses_wanted() { return events::listening(events::Kind::Access); }

class Accesses {
 public:
  // `host`: memory of the host counts too, where it is pinned.
  void add(const char* argument, const at::Tensor& tensor, bool written, bool host = false);
  // All operands of a call: its arguments, and what it returned.
  void add(const Traits& traits, const torch::jit::Stack& arguments, const c10::IValue* returned);
  void tell(const char* name, vnpuStream_t stream, bool waits) const;
  void tell_host(const char* name) const;

 private:
  c10::SmallVector<events::Operand, 8> operands_;
};

// Tells that a kernel on `stream` reads all the memory of a storage.
void tell_read(const char* name, const c10::Storage& storage, vnpuStream_t stream);

// From the first asynchronous copy to or from pinned memory that a listener hears of, CPU operators on pinned memory are told too.
void watch_host();
void stop_watching_host();
bool watches_host();

// What runs on this thread while it lasts is a kernel's own work, and no access of the host.
class NoHostAccess {
 public:
  NoHostAccess();
  ~NoHostAccess();
  NoHostAccess(const NoHostAccess&) = delete;
  NoHostAccess& operator=(const NoHostAccess&) = delete;

 private:
  const bool before_;
};

}  // namespace vnpu
