// What an operator's schema says about its arguments, read once.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <string>

namespace vnpu {

// Number: a scalar or a double, on whose value no result's shape depends (sizes and dimensions are integers, and Other).
enum class Role : uint8_t { Other, Number, Tensor, TensorList, OptionalTensorList, Generator, Device };

// Where an argument may lie, by the operator's own contract.
enum class Place : uint8_t { Same, SameOrHost, Any };

// When its kernel may run. View: it changes no byte and reads none, so it runs on the host, whatever is queued. Now: after all
// that is queued, on the host. Later: in the queue.
enum class When : uint8_t { View, Now, Later };

struct Argument {
  Role role;
  bool written;
  Place place;
  std::string name;
  bool read;  // it touches the values, not only sizes, strides and dtype
};

struct Traits {
  std::string name;
  c10::SmallVector<Argument, 8> arguments;
  bool writes = false;
  bool copies = false;  // between devices
  When when = When::Now;
  bool waits = false;   // the host needs a value, or a shape that depends on values: it waits for the kernel
  size_t returns = 0;
  c10::SmallVector<bool, 4> makes;  // for each result, whether the kernel writes it and it is none of the arguments
};

Traits traits_of(const c10::OperatorHandle& op);

}  // namespace vnpu
