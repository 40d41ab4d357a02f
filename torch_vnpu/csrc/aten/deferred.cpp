#include "deferred.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "accesses.h"
#include "aliases.h"
#include "check.h"

namespace vnpu {
namespace {

void require(bool alike) {
  TORCH_CHECK(alike, "its result looks different from that of an earlier call with arguments of the same look; run with "
              "TASK_QUEUE_ENABLE=0 and report the operator");
}

void put(const at::Tensor& result, const at::Tensor& target) {
  require(result.defined() && result.sizes() == target.sizes() && result.strides() == target.strides() &&
          result.scalar_type() == target.scalar_type());
  if (const auto bytes = target.storage().nbytes())
    std::memcpy(target.storage().mutable_data(), result.storage().data(), bytes);
}

struct Looks {
  c10::SmallVector<int64_t, 16> words;
  bool operator==(const Looks& other) const { return words == other.words; }
};

// Where the `count` tensors from `first` lie, and their shapes.
Looks looks(const c10::IValue* first, size_t count) {
  Looks looks;
  for (size_t i = 0; i < count; ++i) {
    const auto* impl = first[i].toTensor().unsafeGetTensorImpl();
    looks.words.push_back(reinterpret_cast<int64_t>(impl->unsafe_storage().unsafeGetStorageImpl()->data()));
    looks.words.append(impl->sizes().begin(), impl->sizes().end());
    looks.words.append(impl->strides().begin(), impl->strides().end());
  }
  return looks;
}

#ifdef __SSE__
constexpr unsigned kDenormals = 0x8040;  // of MXCSR: flush to zero, denormals are zero
void set_denormal_mode(unsigned mode) {
  if (const auto now = _mm_getcsr(); (now & kDenormals) != mode) _mm_setcsr((now & ~kDenormals) | mode);
}
#else
void set_denormal_mode(unsigned) {}
#endif

void run(Deferred& call) {
  set_denormal_mode(call.denormals);
  const NoHostAccess kernels_own;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  c10::AutoGradMode grad_mode(call.grad_mode);
  const auto given = looks(call.arguments.data() + (call.arguments.size() - call.outs), call.outs);
  call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &call.arguments);
  // A kernel that finds its out too small or too large gives it other memory, which nobody sees.
  require(looks(call.arguments.data() + (call.arguments.size() - call.outs), call.outs) == given);
  for (size_t i = 0; i < call.results.size(); ++i) {
    const auto& value = call.arguments[call.arguments.size() - call.results.size() + i];
    const auto& targets = call.results[i];
    if (value.isTensor()) {
      if (!targets.empty()) put(value.toTensor(), targets[0]);
    } else {
      const auto list = value.toTensorList();
      for (size_t k = 0; k < targets.size(); ++k) put(list.get(k), targets[k]);
    }
  }
}

void kernel(void* argument) {
  std::unique_ptr<Deferred> call(static_cast<Deferred*>(argument));
  try {
    run(*call);
  } catch (const c10::Error& error) {
    vnpuFail(call->stream, (std::string(call->name) + " failed: " + error.what_without_backtrace()).c_str());
  } catch (const std::exception& error) {
    vnpuFail(call->stream, (std::string(call->name) + " failed: " + error.what()).c_str());
  } catch (...) {
    vnpuFail(call->stream, (std::string(call->name) + " failed").c_str());
  }
  call->arguments.clear();
  call->results.clear();
  reuse(std::move(call->aliases));
}

int threads_of_a_queue() {
  int devices = 0;
  vnpuGetDeviceCount(&devices);
  return std::max(1, (at::get_num_threads() - 1) / std::max(1, devices));
}

// On a queue's own thread, when its first task is there.
void start_thread() {
  const int usual = at::get_num_threads();
  const int mine = threads_of_a_queue();
  vnpuConfigureQueues(&start_thread, std::max(1, (usual - 1) / mine));
  at::set_num_threads(mine);
  // That is also what threads that start later would take: a thread that ends at once puts it back.
  try {
    std::thread([usual] { at::set_num_threads(usual); }).join();
  } catch (const std::system_error&) {  // there are too many threads already: then few more will start
  }
}

}  // namespace

unsigned Deferred::denormal_mode() {
#ifdef __SSE__
  return _mm_getcsr() & kDenormals;
#else
  return 0;
#endif
}

void Deferred::launch(std::unique_ptr<Deferred> call) {
  auto* task = call.release();  // the kernel may have run, and freed it, before the launch returns
  const auto stream = task->stream;
  const auto* name = task->name;
  if (const auto error = vnpuLaunch(stream, name, &kernel, task)) {
    delete task;
    raise_error(error, name, vnpuStreamDevice(stream));
  }
}

std::optional<c10::OperatorHandle> out_overload(const c10::OperatorHandle& op) {
  // Its reduction to a number is made in the same out, which is given memory for all the losses first.
  if (op.operator_name().name == "aten::huber_loss") return std::nullopt;
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  const auto fits = [&](const c10::OperatorHandle& other) {
    const auto& theirs = other.schema().arguments();
    if (theirs.size() != arguments.size() + schema.returns().size()) return false;
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (i < arguments.size()) {
        if (theirs[i].name() != arguments[i].name() || *theirs[i].type() != *arguments[i].type()) return false;
      } else if (!theirs[i].alias_info() || !theirs[i].alias_info()->isWrite()) {
        return false;
      }
    }
    return true;
  };
  static const auto overloads = [] {
    std::unordered_multimap<std::string, c10::OperatorName> all;
    for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(c10::DispatchKey::CPU))
      if (name.overload_name.find("out") != std::string::npos) all.emplace(name.name, name);
    return all;
  }();
  const auto [first, last] = overloads.equal_range(op.operator_name().name);
  for (auto candidate = first; candidate != last; ++candidate) {
    const auto other = c10::Dispatcher::singleton().findOp(candidate->second);
    if (other && other->hasSchema() && fits(*other)) return other;
  }
  return std::nullopt;
}

void configure_queues() { vnpuConfigureQueues(&start_thread, 1); }

}  // namespace vnpu
