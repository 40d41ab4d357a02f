// The kernel of nearly every operator on npu: alias the inputs as CPU tensors, run PyTorch's CPU kernel, adopt the outputs.
// It also is where a device mistake is refused: operands on several devices, results that would land on CPU.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "aliases.h"
#include "check.h"
#include "device.h"
#include "kernels.h"

namespace vnpu {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

enum class Role : uint8_t { Other, Tensor, TensorList, OptionalTensorList, Generator, Device };

// Where an argument may lie, by the operator's own contract.
enum class Place : uint8_t { Same, SameOrHost, Any };

struct Argument {
  Role role;
  bool written;
  Place place;
};

struct Traits {
  std::string name;
  c10::SmallVector<Argument, 8> arguments;
  bool writes = false;
  size_t returns = 0;
};

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
    case c10::TypeKind::GeneratorType: return Role::Generator;
    case c10::TypeKind::DeviceObjType: return Role::Device;
    case c10::TypeKind::OptionalType: return role_of(type->castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType: {
      const auto& element = type->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return Role::TensorList;
      return role_of(element) == Role::Tensor ? Role::OptionalTensorList : Role::Other;
    }
    default: return Role::Other;
  }
}

Traits traits_of(const c10::FunctionSchema& schema) {
  Traits traits;
  traits.name = schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  traits.returns = schema.returns().size();
  for (const auto& argument : schema.arguments()) {
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    traits.arguments.push_back({role_of(argument.type()), written, place_of(schema, argument.name())});
    traits.writes |= written;
  }
  return traits;
}

[[noreturn]] void refuse_devices(const c10::OperatorHandle& op, const Traits& traits, size_t argument, c10::Device one,
                                 c10::Device other) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ",
              other, "! (when checking argument ", op.schema().arguments()[argument].name(), " of ", traits.name, ")");
}

// One operator call: what it aliases, and on which device it runs.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const Traits& traits) : op_(op), traits_(traits) {}

  void run(Stack* stack) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // CPU's autocast is not for this device: the CPU kernel may call operators that are on its list.
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    take_inputs(stack);
    try {
      launch(stack);
    } catch (...) {
      if (traits_.writes) aliases_.write_back();  // what the kernel resized before it failed has other memory now
      throw;
    }
    if (traits_.writes) aliases_.write_back();
    give_outputs(stack);
  }

 private:
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
      return aliases_.to_cpu(tensor, argument.written);
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
    return tensor;
  }

  void take_inputs(Stack* stack) {
    const size_t count = traits_.arguments.size();
    const size_t base = stack->size() - count;
    for (size_t i = 0; i < count; ++i) {
      auto& value = (*stack)[base + i];
      switch (traits_.arguments[i].role) {
        case Role::Other: break;
        case Role::Tensor:
          if (value.isTensor()) value = IValue(operand(value.toTensor(), i));
          break;
        case Role::TensorList:
          if (value.isTensorList()) value = take_list(value.toTensorList(), i);
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

  IValue take_list(const c10::List<at::Tensor>& list, size_t index) {
    c10::List<at::Tensor> taken;
    taken.reserve(list.size());
    for (size_t k = 0; k < list.size(); ++k) taken.push_back(operand(list.get(k), index));
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

  void launch(Stack* stack) {
    struct Task {
      const c10::OperatorHandle& op;
      Stack* stack;
    } task{op_, stack};
    const auto device = aliases_.device() < 0 ? current_device() : aliases_.device();
    auto* stream = vnpuGetCurrentStream(device);
    check(vnpuLaunch(
              stream, traits_.name.c_str(),
              [](void* argument) {
                auto* task = static_cast<Task*>(argument);
                task->op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), task->stack);
              },
              &task),
          traits_.name.c_str(), device);
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
  bool generators_ = false;
  bool host_result_ = false;             // the caller asked for a result on CPU
  c10::DeviceIndex result_device_ = -1;  // or on this device
  int first_host_ = -1;  // argument that holds a CPU tensor which no npu operator may take
  c10::Device host_device_{c10::kCPU};
};

struct BoxedKernel final : c10::OperatorKernel {
  explicit BoxedKernel(Traits own) : traits(std::move(own)) {}
  void operator()(const c10::OperatorHandle& op, DispatchKeySet, Stack* stack) { Call(op, traits).run(stack); }
  Traits traits;
};

// Operators of other libraries, and those defined after the registration, that have a CPU kernel but none on npu.
void fallback(const c10::OperatorHandle& op, Stack* stack) {
  // Not cached: a library can be destroyed and an operator of the same name, or at the same address, be defined anew.
  const auto traits = traits_of(op.schema());
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(DispatchKey::CPU), "npu: there is no kernel for ",
                              traits.name,
                              ", since it has none on CPU either; register one for PrivateUse1, or use other operators");
  Call(op, traits).run(stack);
}

// CompositeExplicit operators that run as one kernel here, as they do on accelerators that have one. Without this, they
// would be taken apart into many launches.
bool forced(const c10::OperatorName& name) {
  static const std::unordered_set<std::string_view> whole = {
      "aten::copy_", "aten::convolution", "aten::convolution_backward", "aten::zeros_like", "aten::ones_like"};
  if (name.name.starts_with("aten::_foreach_")) return true;
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
    auto traits = traits_of(op->schema());
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
