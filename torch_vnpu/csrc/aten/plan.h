// How a launch can return before its kernel has run: what an operator's results look like depends on what its arguments look
// like, never on their values (operators for which that is not so are never queued). So the first call with arguments of a
// certain look runs at once and is remembered; later calls of the same look make their results from the memory and queue the
// kernel.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aliases.h"
#include "traits.h"

namespace vnpu {

// The look of a call's arguments: shapes, strides, dtypes, kinds of numbers, the values of what else is no tensor, and the
// global settings on which results depend.
class Look {
 public:
  // False where the look cannot be told, or a call of it can never be queued.
  bool read(const torch::jit::Stack& stack, const Traits& traits);
  bool operator==(const Look& other) const { return words_ == other.words_; }
  size_t hash() const;

 private:
  bool add(const at::Tensor& tensor, Place place, bool written);
  bool add_value(const c10::IValue& value);
  void add_number(const c10::IValue& value);
  c10::SmallVector<int64_t, 48> words_;
  c10::DeviceIndex device_ = -1;  // of the npu tensors, once one is seen
};

struct LookHash {
  size_t operator()(const Look& look) const { return look.hash(); }
};

// One result: an argument that the operator writes and returns, or a tensor that it makes.
struct Result {
  int argument = -1;  // position of the argument; -1: a new tensor
  int element = -1;   // position in the list, where the argument is one
  bool defined = true;
  at::ScalarType dtype = at::kFloat;
  c10::SmallVector<int64_t, 5> sizes, strides;
};

struct Returned {
  bool list = false;
  std::vector<Result> results;  // one where it is no list
};

struct Plan {
  bool queued = false;      // false: calls of this look run at once
  bool makes_some = false;  // there are new tensors among the results
  bool makes_all = true;    // there is nothing else, and no list
  std::vector<Returned> returned;
};

// What an operator's calls have taught, by look. Thread-safe.
class Plans {
 public:
  std::shared_ptr<const Plan> find(const Look& look);
  void learn(Look look, Plan plan);

 private:
  std::mutex mutex_;
  std::unordered_map<Look, std::shared_ptr<const Plan>, LookHash> plans_;
};

// What a call that has just run teaches: `before` are its arguments, `now` what it returned. Arguments that it writes are
// compared with how they looked, by `written`.
struct Shape {
  c10::TensorImpl* tensor;
  c10::StorageImpl* storage;
  const void* data;
  int64_t offset;
  c10::SmallVector<int64_t, 5> sizes, strides;
};
// Whether a tensor that the call writes has its memory in common with another operand, and is not that operand itself (which the
// look tells). Then more than the look decides: a kernel may refuse operands that overlap.
bool writes_what_it_reads(const torch::jit::Stack& stack, const Traits& traits);
std::vector<Shape> shapes_of_written(const torch::jit::Stack& arguments, const Traits& traits);
Plan plan_from(const torch::jit::Stack& arguments, const std::vector<Shape>& written, const c10::IValue* returned,
               const Traits& traits, c10::DeviceIndex device);

}  // namespace vnpu
