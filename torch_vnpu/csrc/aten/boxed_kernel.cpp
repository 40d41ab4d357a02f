// The kernel of nearly every operator on npu: alias the inputs as CPU tensors, run PyTorch's CPU kernel, adopt the outputs.
// It also is where a device mistake is refused: operands on several devices, results that would land on CPU.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "../events.h"
#include "accesses.h"
#include "aliases.h"
#include "allocator.h"
#include "check.h"
#include "deferred.h"
#include "device.h"
#include "kernels.h"
#include "plan.h"
#include "traits.h"

namespace vnpu {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

[[noreturn]] void refuse_devices(const c10::OperatorHandle& op, const Traits& traits, size_t argument, c10::Device one,
                                 c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ",
              other, "! (when checking argument ", op.schema().arguments()[argument].name(), " of ", traits.name, ")");
}

// Passes warnings on, and notes that there were some.
class Warnings final : c10::WarningHandler {
 public:
  bool seen() const { return seen_; }

 private:
  void process(const c10::Warning& warning) override {
    seen_ = true;
    before_->process(warning);
  }
  bool seen_ = false;
  c10::WarningHandler* const before_ = c10::WarningUtils::get_warning_handler();
  const c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// One operator call: what it aliases, and on which device it runs.
class Call {
 public:
  // `foreign`: the operator of another library, whose kernel may keep what it gets or makes.
  Call(const c10::OperatorHandle& op, const Traits& traits, bool foreign = false)
      : op_(op), traits_(traits), aliases_(foreign), foreign_(foreign) {}
  ~Call() {
    if (C10_UNLIKELY(traits_.copies)) events::next_copy = {};  // where nothing was launched
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Runs the kernel before it returns.
  void run(Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // CPU's autocast is not for this device: the CPU kernel may call operators that are on its list.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const bool told = accesses_wanted() && traits_.when != When::View;
    const Stack given = told ? Stack(stack->end() - static_cast<std::ptrdiff_t>(traits_.arguments.size()), stack->end()) : Stack();
    Streams others;
    if (traits_.copies) {
      others = streams_of_other_devices(*stack);
      note_copy(*stack);
    }
    take_inputs(stack);
    for (const auto other : others) order(other, stream());
    // What another library's kernel makes it may keep for itself.
    const KernelMemory memory(foreign_ || host_result_ ? -1 : device());
    try {
      launch(stack);
    } catch (...) {
      if (traits_.writes) aliases_.write_back();  // what the kernel resized before it failed has other memory now
      throw;
    }
    if (traits_.writes) aliases_.write_back();
    give_outputs(stack);
    const auto order_others = [&] {
      for (const auto other : others) order(stream(), other);
    };
    if (C10_UNLIKELY(told)) tell(given, stack->data() + (stack->size() - traits_.returns), order_others);
    order_others();
  }

  // Queues the kernel, and puts the results that `plan` tells onto the stack. `out` is the overload that writes them.
  void queue(Stack* stack, const Plan& plan, const std::optional<c10::OperatorHandle>& out) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    queueing_ = true;
    if (traits_.copies) note_copy(*stack);
    const auto given = take(stack);
    Stack arguments = given;
    take_inputs(&arguments);
    const bool writes_results = out && plan.makes_all;
    auto call = std::make_unique<Deferred>(writes_results ? *out : op_, traits_.name.c_str(), stream());
    call->arguments = std::move(arguments);
    if (!writes_results && plan.makes_some) call->results.resize(plan.returned.size());
    const c10::OptionalDeviceGuard guard(c10::Device(kNpu, device()));
    for (size_t i = 0; i < plan.returned.size(); ++i) {
      const auto& returned = plan.returned[i];
      c10::List<at::Tensor> list;
      for (const auto& result : returned.results) {
        auto tensor = result_of(given, result);
        if (result.argument < 0 && result.defined) {
          auto alias = aliases_.to_cpu(tensor, true);
          if (writes_results) {
            call->arguments.emplace_back(std::move(alias));
            ++call->outs;
          } else {
            call->results[i].push_back(std::move(alias));
          }
        }
        if (returned.list) {
          list.push_back(std::move(tensor));
        } else {
          stack->emplace_back(std::move(tensor));
        }
      }
      if (returned.list) stack->emplace_back(std::move(list));
    }
    call->aliases = aliases_.hand_over();
    Deferred::launch(std::move(call));
    if (C10_UNLIKELY(accesses_wanted())) tell(given, stack->data() + (stack->size() - traits_.returns));
  }

  // Queues a copy between host and device where that is safe; otherwise does nothing and returns false.
  bool queue_host_copy(Stack* stack) {
    const at::Tensor target = peek(*stack, 0), source = peek(*stack, 1);
    const bool to_device = is_npu(target) && source.is_cpu();
    const bool to_host = target.is_cpu() && is_npu(source);
    if ((!to_device && !to_host) || target.sizes() != source.sizes()) return false;
    if (!target.is_non_overlapping_and_dense()) return false;  // the copy may be refused, which the caller has to see
    for (const auto* tensor : {&target, &source})
      if (tensor->layout() != at::kStrided || tensor->is_conj() || tensor->is_neg()) return false;
    const auto& [host, npu] = to_device ? std::tie(source, target) : std::tie(target, source);
    if (!owns_memory(npu.storage().unsafeGetStorageImpl())) return false;
    const bool direct = stack->back().toBool() && vnpuHostIsPinned(host.storage().data());
    if (!direct && (to_host || host.storage().nbytes() > kStagedBytes)) return false;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    note_copy(*stack);
    const auto given = take(stack);
    Stack arguments = given;
    // Pageable memory may change as soon as the call returns, so what it holds now is what is copied.
    const size_t position = to_device ? 1 : 0;
    auto held = direct ? view_of(host) : host.clone();
    arguments[1 - position] = IValue(operand(given[1 - position].toTensor(), 1 - position));
    arguments[position] = IValue(std::move(held));
    auto call = std::make_unique<Deferred>(op_, traits_.name.c_str(), stream());
    call->arguments = std::move(arguments);
    call->aliases = aliases_.hand_over();
    Deferred::launch(std::move(call));
    if (C10_UNLIKELY(accesses_wanted())) tell(given, given.data());
    stack->push_back(given[0]);
    return true;
  }

  // Queues a copy from another device on the target's stream, or does nothing and returns false. The source's stream waits for it as
  // it waits for the source, so that either device's later work comes after the copy.
  bool queue_device_copy(Stack* stack) {
    const at::Tensor target = peek(*stack, 0), source = peek(*stack, 1);
    if (!is_npu(target) || !is_npu(source) || target.device() == source.device()) return false;
    if (target.sizes() != source.sizes() || !target.is_non_overlapping_and_dense()) return false;
    for (const auto* tensor : {&target, &source})
      if (tensor->is_conj() || tensor->is_neg() || !owns_memory(tensor->storage().unsafeGetStorageImpl())) return false;
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    note_copy(*stack);
    const auto given = take(stack);
    Stack arguments = given;
    for (size_t i = 0; i < 2; ++i) arguments[i] = IValue(operand(given[i].toTensor(), i));
    auto call = std::make_unique<Deferred>(op_, traits_.name.c_str(), stream());
    call->arguments = std::move(arguments);
    call->aliases = aliases_.hand_over();
    const auto to = stream(), from = vnpuGetCurrentStream(source.device().index());
    order(from, to);
    Deferred::launch(std::move(call));
    if (C10_UNLIKELY(accesses_wanted())) tell(given, given.data(), [&] { order(to, from); });
    order(to, from);
    stack->push_back(given[0]);
    return true;
  }

  c10::DeviceIndex device() const { return aliases_.device() < 0 ? current_device() : aliases_.device(); }

 private:
  static constexpr size_t kStagedBytes = size_t{4} << 20;  // larger pageable copies run at once instead of twice

  const at::Tensor& peek(const Stack& stack, size_t argument) const {
    return stack[stack.size() - traits_.arguments.size() + argument].toTensor();
  }

  // The call's arguments, off the stack.
  Stack take(Stack* stack) const {
    const auto first = stack->end() - static_cast<std::ptrdiff_t>(traits_.arguments.size());
    Stack given(std::make_move_iterator(first), std::make_move_iterator(stack->end()));
    stack->erase(first, stack->end());
    return given;
  }

  // A tensor over the same memory that Python has never seen.
  static at::Tensor view_of(const at::Tensor& tensor) {
    auto* impl = tensor.unsafeGetTensorImpl();
    auto view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()),
                                                         DispatchKeySet(DispatchKey::CPU), impl->dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    return view;
  }

  at::Tensor result_of(const Stack& given, const Result& result) const {
    if (result.argument >= 0) {
      const auto& argument = given[static_cast<size_t>(result.argument)];
      return result.element < 0 ? argument.toTensor() : argument.toTensorList().get(static_cast<size_t>(result.element));
    }
    if (!result.defined) return {};
    return at::detail::empty_strided_generic(result.sizes, result.strides, allocator(),
                                             DispatchKeySet(DispatchKey::PrivateUse1), result.dtype);
  }

  // The CPU kernel's operand for `tensor`, after the check that it may take part.
  at::Tensor operand(const at::Tensor& tensor, size_t index) {
    const auto& argument = traits_.arguments[index];
    if (is_npu(tensor)) {
      const auto device = tensor.device();
      if (aliases_.device() < 0) {
        // A CPU tensor that came before is judged now that the call is known to be one on npu; see below.
        if (C10_UNLIKELY(first_host_ >= 0)) refuse_devices(op_, traits_, static_cast<size_t>(first_host_), device, host_device_);
      } else if (C10_UNLIKELY(device.index() != aliases_.device()) && argument.place != Place::Any) {
        refuse_devices(op_, traits_, index, c10::Device(kNpu, aliases_.device()), device);
      }
      return aliases_.to_cpu(tensor, argument.written, traits_.writes && argument.role == Role::Tensor);
    }
    if (!tensor.defined()) return tensor;
    aliases_.keep_host(tensor);
    // Numbers in the form of 0-dim CPU tensors are legal operands on every device; nothing else is, unless by contract.
    if (argument.place == Place::Same && (tensor.dim() > 0 || argument.written || !tensor.is_cpu())) {
      if (aliases_.device() >= 0) refuse_devices(op_, traits_, index, c10::Device(kNpu, aliases_.device()), tensor.device());
      if (first_host_ < 0) {
        first_host_ = static_cast<int>(index);
        host_device_ = tensor.device();
      }
    }
    // A number that the caller may change while the call is queued; those that torch itself made, it cannot.
    if (queueing_ && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor.clone();
    return tensor;
  }

  void take_inputs(Stack* stack) {
    const size_t count = traits_.arguments.size();
    const size_t base = stack->size() - count;
    for (size_t i = 0; i < count; ++i) {
      auto& value = (*stack)[base + i];
      switch (traits_.arguments[i].role) {
        case Role::Other:
        case Role::Number: break;
        case Role::Tensor:
          if (value.isTensor()) value = IValue(operand(value.toTensor(), i));
          break;
        case Role::TensorList:
          if (value.isTensorList()) value = take_list(value.toListRef(), i);
          break;
        case Role::OptionalTensorList:
          if (value.isOptionalTensorList()) value = take_optional_list(value.toOptionalTensorList(), i);
          break;
        case Role::Generator: generators_ = true; break;
        case Role::Device:
          if (value.isDevice()) value = take_device(value.toDevice());
          break;
      }
    }
    if (C10_UNLIKELY(result_device_ >= 0)) aliases_.set_device(result_device_);
    if (C10_UNLIKELY(generators_)) take_generators(stack, base);
  }

  // A device argument says where the result goes, wherever the tensors are.
  IValue take_device(c10::Device device) {
    host_result_ = device.is_cpu();
    if (device.type() != kNpu) return IValue(device);
    result_device_ = device.has_index() ? device.index() : current_device();
    return IValue(c10::Device(c10::kCPU));
  }

  IValue take_list(c10::ArrayRef<IValue> list, size_t index) {
    c10::List<at::Tensor> taken;
    taken.reserve(list.size());
    for (const auto& element : list) taken.push_back(operand(element.toTensor(), index));
    return IValue(std::move(taken));
  }

  IValue take_optional_list(const c10::List<std::optional<at::Tensor>>& list, size_t index) {
    c10::List<std::optional<at::Tensor>> taken;
    taken.reserve(list.size());
    for (size_t k = 0; k < list.size(); ++k) {
      std::optional<at::Tensor> element = list.get(k);
      if (element) element = operand(*element, index);
      taken.push_back(std::move(element));
    }
    return IValue(std::move(taken));
  }

  // After the tensors: the default generator is that of the device on which the call runs.
  void take_generators(Stack* stack, size_t base) {
    for (size_t i = 0; i < traits_.arguments.size(); ++i) {
      if (traits_.arguments[i].role != Role::Generator) continue;
      auto& value = (*stack)[base + i];
      const auto device = aliases_.device() < 0 ? current_device() : aliases_.device();
      if (value.isNone()) {
        value = IValue(cpu_generator_of(default_generator(device), device));
        continue;
      }
      const auto generator = value.toGenerator();
      TORCH_CHECK(aliases_.device() >= 0 || first_host_ < 0, "Expected a '", host_device_.type(),
                  "' device type for generator but found '", generator.device().type(), "'");
      value = IValue(cpu_generator_of(generator, device));
    }
  }

  // Tells listeners what kind of copy the launch is that comes.
  void note_copy(const Stack& stack) const {
    if (C10_LIKELY(!events::listening(events::Kind::Launch))) return;
    const auto* values = &stack[stack.size() - traits_.arguments.size()];
    if (!values[0].isTensor() || !values[1].isTensor()) return;
    const auto &target = values[0].toTensor(), &source = values[1].toTensor();
    auto copy = events::Copy::None;
    if (is_npu(target) && source.is_cpu()) {
      copy = events::Copy::HostToDevice;
    } else if (is_npu(source) && target.is_cpu()) {
      copy = events::Copy::DeviceToHost;
    } else if (target.device() != source.device()) {
      copy = events::Copy::BetweenDevices;
    } else if (target.dtype() == source.dtype() && target.strides() == source.strides()) {
      copy = events::Copy::WithinDevice;  // any other is a kernel
    }
    events::next_copy = {copy, copy == events::Copy::None ? 0 : target.nbytes()};
  }

  vnpuStream_t stream() const { return vnpuGetCurrentStream(device()); }

  // What `later` does from now on comes after what is in the queue of `earlier`.
  void order(vnpuStream_t earlier, vnpuStream_t later) const {
    vnpuEvent_t event = nullptr;
    check(vnpuEventCreate(&event, 0), traits_.name.c_str());
    const std::unique_ptr<vnpuEvent, vnpuError_t (*)(vnpuEvent_t)> owned(event, &vnpuEventDestroy);
    check(vnpuEventRecord(event, earlier), traits_.name.c_str(), vnpuStreamDevice(earlier));
    check(vnpuStreamWaitEvent(later, event), traits_.name.c_str(), vnpuStreamDevice(later));
  }

  using Streams = c10::SmallVector<vnpuStream_t, 2>;

  // A copy runs on the first npu operand's stream. The current streams of the other operands' devices wait for it, as it waits for
  // what they have in their queues.
  Streams streams_of_other_devices(const Stack& stack) const {
    Streams streams;
    c10::DeviceIndex first = -1;
    const auto look = [&](const at::Tensor& tensor) {
      if (!is_npu(tensor)) return;
      const auto index = tensor.device().index();
      if (first < 0) first = index;
      const auto stream = vnpuGetCurrentStream(index);
      if (index != first && std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
    };
    for (size_t i = 0; i < 2; ++i) {
      const auto& value = stack[stack.size() - traits_.arguments.size() + i];
      if (value.isTensor()) {
        look(value.toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
      }
    }
    return streams;
  }

  // Tells the listeners what the call reads and writes. Where one throws, `otherwise` is still done.
  template <class Otherwise>
  void tell(const Stack& given, const IValue* returned, Otherwise otherwise) const {
    try {
      tell(given, returned);
    } catch (...) {
      otherwise();
      throw;
    }
  }

  void tell(const Stack& given, const IValue* returned) const {
    bool waits = traits_.waits || host_result_;
    if (traits_.copies && given[0].isTensor() && given[1].isTensor()) {
      const bool to_host = !is_npu(given[0].toTensor()), from_host = !is_npu(given[1].toTensor());
      const bool non_blocking = given.back().isBool() && given.back().toBool();
      if (to_host || from_host) {
        const auto& host = given[to_host ? 0 : 1].toTensor();
        const bool pinned = host.has_storage() && vnpuHostIsPinned(host.storage().data());
        // What goes to pageable memory is there when the call returns; what comes from it is read before.
        waits = !non_blocking || (to_host && !pinned);
        if (!waits && pinned) watch_host();
      }
    }
    Accesses accesses;
    accesses.add(traits_, given, returned);
    accesses.tell(traits_.name.c_str(), stream(), waits);
  }

  void launch(Stack* stack) {
    struct Task {
      const c10::OperatorHandle& op;
      Stack* stack;
    } task{op_, stack};
    const auto kernel = [](void* argument) {
      auto* task = static_cast<Task*>(argument);
      task->op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), task->stack);
    };
    if (traits_.when == When::View) return kernel(&task);
    const NoHostAccess kernels_own;
    // Another library's kernel may do whatever it likes, also wait for other threads.
    check(vnpuRun(stream(), traits_.name.c_str(), kernel, &task, !foreign_), traits_.name.c_str(), device());
  }

  void give_outputs(Stack* stack) {
    if (C10_UNLIKELY(host_result_)) return;
    const size_t base = stack->size() - traits_.returns;
    for (size_t i = 0; i < traits_.returns; ++i) {
      auto& value = (*stack)[base + i];
      if (value.isTensor()) {
        value = IValue(aliases_.to_npu(std::move(value).toTensor(), traits_.name.c_str()));
      } else if (value.isTensorList()) {
        auto list = std::move(value).toTensorList();
        c10::List<at::Tensor> given;
        given.reserve(list.size());
        for (size_t k = 0; k < list.size(); ++k) given.push_back(aliases_.to_npu(list.extract(k), traits_.name.c_str()));
        value = IValue(std::move(given));
      }
    }
  }

  const c10::OperatorHandle& op_;
  const Traits& traits_;
  Aliases aliases_;
  const bool foreign_;
  bool queueing_ = false;
  bool generators_ = false;
  bool host_result_ = false;             // the caller asked for a result on CPU
  c10::DeviceIndex result_device_ = -1;  // or on this device
  int first_host_ = -1;  // argument that holds a CPU tensor which no npu operator may take
  c10::Device host_device_{c10::kCPU};
};

}  // namespace

class BoxedKernel final : public c10::OperatorKernel {
 public:
  explicit BoxedKernel(Traits traits) : traits_(std::move(traits)) {}
  const char* name() const { return traits_.name.c_str(); }

  void operator()(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) {
    Call call(op, traits_);
    if (traits_.when == When::Later && vnpuQueueEnabled()) return queue(op, call, stack);
    call.run(stack);
  }

 private:
  void queue(const c10::OperatorHandle& op, Call& call, Stack* stack) {
    Look look;
    if (writes_what_it_reads(*stack, traits_) || !look.read(*stack, traits_)) {
      if (traits_.name == "aten::copy_" && (call.queue_host_copy(stack) || call.queue_device_copy(stack))) return;
      return call.run(stack);
    }
    if (const auto plan = plans_.find(look)) {
      if (!plan->queued) return call.run(stack);
      std::call_once(out_sought_, [&] { out_ = out_overload(op); });
      return call.queue(stack, *plan, out_);
    }
    const Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(traits_.arguments.size()), stack->end());
    const auto written = shapes_of_written(arguments, traits_);
    const Warnings warnings;
    call.run(stack);
    if (warnings.seen()) return plans_.learn(std::move(look), Plan{});  // the queue's thread could not warn Python
    const auto* returned = stack->data() + (stack->size() - traits_.returns);
    plans_.learn(std::move(look), plan_from(arguments, written, returned, traits_, call.device()));
  }

  const Traits traits_;
  Plans plans_;
  std::once_flag out_sought_;
  std::optional<c10::OperatorHandle> out_;
};

ZeroCopy::ZeroCopy(const char* name, const char* overload)
    : op_(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)),
      kernel_(std::make_unique<BoxedKernel>(traits_of(op_))) {}
ZeroCopy::~ZeroCopy() = default;
const char* ZeroCopy::name() const { return kernel_->name(); }
void ZeroCopy::run(torch::jit::Stack* stack) const { (*kernel_)(op_, DispatchKeySet(DispatchKey::PrivateUse1), stack); }

namespace {

// Operators of other libraries, and those defined after the registration, that have a CPU kernel but none on npu.
void fallback(const c10::OperatorHandle& op, Stack* stack) {
  // Not cached: a library can be destroyed and an operator of the same name, or at the same address, be defined anew.
  const auto traits = traits_of(op);
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(DispatchKey::CPU), "npu: there is no kernel for ",
                              traits.name,
                              ", since it has none on CPU either; register one for PrivateUse1, or use other operators");
  Call(op, traits, true).run(stack);
}

// CompositeExplicit operators that run as one kernel here, as they do on accelerators that have one. Without this, they would
// be taken apart into many launches, or (kaiser_window, conj_physical_) look for a kernel of this device where CPU's are kept.
bool forced(const c10::OperatorName& name) {
  static const std::unordered_set<std::string_view> whole = {
      "aten::copy_",     "aten::convolution", "aten::convolution_backward",
      "aten::zeros_like", "aten::ones_like",   "aten::conj_physical_"};
  if (name.name.starts_with("aten::_foreach_") || name.name == "aten::kaiser_window") return true;
  if (name.name == "aten::fill_") return name.overload_name == "Scalar";
  return name.overload_name.empty() && whole.contains(name.name);
}

}  // namespace

int register_kernels() {
  static torch::Library* library = nullptr;
  TORCH_CHECK(!library, "npu: the kernels are registered already");
  library = new torch::Library(torch::Library::IMPL, "aten", DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  int count = 0;
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || op->hasKernelForDispatchKey(DispatchKey::PrivateUse1)) continue;
    if (!op->hasKernelForDispatchKey(DispatchKey::CPU) && !forced(name)) continue;
    auto traits = traits_of(*op);
    const std::string full = traits.name;
    library->impl(full.c_str(),
                  torch::CppFunction::makeFromBoxedFunctor(std::make_unique<BoxedKernel>(std::move(traits))));
    ++count;
  }
  return count;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace vnpu
