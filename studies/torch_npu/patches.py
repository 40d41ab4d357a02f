"""The historical patches of torch_npu for PyTorch 2.13, re-created in our own words and declared.

Five patches: (a) the sanitizer's dispatch-key workaround, (b1) and (b2) DataParallel's two functions, (c) `Tensor.type`,
(d) six module methods. They are applied on the virtual NPU as torch_npu applied them on the real one.
"""

import threading
from itertools import chain

import torch
from torch._utils import ExceptionWrapper, _get_all_device_indices, _get_available_device_type, _get_device_index
from torch.nn.parallel.parallel_apply import get_a_var
from torch.nn.parallel.replicate import replicate
from torch.nn.parallel.scatter_gather import gather, scatter_kwargs

from unpatch.patches import Origin, PatchManager, original

manager = PatchManager("torch_npu", order=("monkey", "api", "npu"))

SANITIZER = "sanitizer-keys"
PARALLEL_APPLY = "parallel-apply"
DATA_PARALLEL = "data-parallel"
TENSOR_TYPE = "tensor-type"
MODULE_METHODS = "module-methods"

# ------------------------------------------------------------------------------------ (a) the sanitizer's workaround
#: The public names that the workaround looks for. The mode sees internal names, which these never equal.
ADJUSTED = ("adaptive_avg_pool2d", "batch_norm", "log_softmax", "nll_loss", "to")


def enable_autograd(name):
    """Let autograd run in this thread, where an operator of the list is about to."""
    if name in ADJUSTED:
        torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality, False)


@manager.patch(
    "torch_vnpu.sanitizer.stream_check.StreamCheckMode.__torch_dispatch__",
    id=SANITIZER,
    group="npu",
    title="(a) autograd's dispatch key re-enabled for five operators under the sanitizer",
    reason=(
        "A dispatch mode runs below autograd. For five operators, the key AutogradFunctionality was to be taken off the "
        "thread's excluded keys, so that they would be differentiated under the mode."
    ),
    origin=Origin(
        introduced="2024-04-29 by torch_npu commit a6e615ee59b3 (pull 10733)",
        removed="2026-08-07 by torch_npu commit d1d86400a",
        note="The list holds public names; the mode is handed the internal operators that these are made of.",
    ),
    remove_when="the mode is never handed an operator of the list",
    risk=(
        "An operator that reaches the mode under one of the five public names would be dispatched with other keys than "
        "before. A test that calls the workaround's method directly has to go with it."
    ),
)
def dispatch_with_autograd(self, func, types, args=(), kwargs=None):
    enable_autograd(func.__name__.split(".")[0])
    return original(dispatch_with_autograd)(self, func, types, args, kwargs)


# ------------------------------------------------------------------------------------ (b) DataParallel
#: The codes that the backend appended to its messages.
ERROR_CODES = {"PARAM": "ERR00001 PTA invalid parameter", "VALUE": "ERR00003 PTA invalid value"}


def coded(message, code):
    return f"{message}\n[ERROR] {ERROR_CODES[code]}"


def apply_in_threads(modules, inputs, kwargs_tup=None, devices=None):
    """Each module on its input, one thread each, with the accelerator named by hand."""
    count = len(modules)
    if count != len(inputs):
        raise AssertionError(
            coded(f"The number of modules {count} is not equal to the number of inputs {len(inputs)}", "PARAM")
        )
    if kwargs_tup is None:
        kwargs_tup = [{}] * count
    elif count != len(kwargs_tup):
        raise AssertionError(
            coded(f"The number of modules {count} is not equal to the number of kwargs_tup {len(kwargs_tup)}", "PARAM")
        )
    if devices is None:
        devices = [None] * count
    elif count != len(devices):
        raise AssertionError(
            coded(f"The number of modules {count} is not equal to the number of devices {len(devices)}", "PARAM")
        )
    devices = [_get_device_index(device, True) for device in devices]
    grad_enabled = torch.is_grad_enabled()
    autocast_enabled = torch.is_autocast_enabled()
    results = [None] * count

    def work(index):
        torch.set_grad_enabled(grad_enabled)
        device = devices[index]
        if device is None:
            tensor = get_a_var(inputs[index])
            if tensor is None:
                results[index] = ExceptionWrapper(
                    where=f"in replica {index}, no device was provided and no tensor input was found; "
                    "device cannot be resolved"
                )
                return
            device = tensor.get_device()
        torch.npu.set_device(device)
        arguments = inputs[index]
        if not isinstance(arguments, (list, tuple)):
            arguments = (arguments,)
        try:
            with (
                torch.npu.device(device),
                torch.npu.stream(torch.npu.current_stream(device)),
                torch.npu.amp.autocast(enabled=autocast_enabled),
            ):
                results[index] = modules[index](*arguments, **kwargs_tup[index])
        except Exception:
            results[index] = ExceptionWrapper(where=f"in replica {index} on device {device}")

    if count > 1:
        threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        work(0)
    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


_UPSTREAM = Origin(
    removed="torch_npu commit 8f1a8ba94",
    note="Obsolete since upstream's functions ask torch.accelerator for the device (pytorch pull 162573).",
)


@manager.patch(
    "torch.nn.parallel.DataParallel.parallel_apply",
    id=PARALLEL_APPLY,
    group="monkey",
    title="(b1) DataParallel.parallel_apply with the accelerator named by hand",
    reason=(
        "Upstream's worker threads knew CUDA only. The copy names the accelerator, sets the device in each worker thread, "
        "enters the backend's own autocast there, and appends an error code to messages."
    ),
    origin=_UPSTREAM,
    remove_when="torch.nn.parallel asks torch.accelerator for the device",
    risk="Whoever matches the text of messages no longer finds the backend's error code in them.",
)
def parallel_apply(self, replicas, inputs, kwargs):
    return apply_in_threads(replicas, inputs, kwargs, self.device_ids[: len(replicas)])


@manager.patch(
    "torch.nn.parallel.data_parallel",
    id=DATA_PARALLEL,
    group="monkey",
    title="(b2) the function data_parallel with the accelerator named by hand",
    reason="As for DataParallel.parallel_apply: upstream's function knew CUDA only.",
    origin=_UPSTREAM,
    remove_when="torch.nn.parallel asks torch.accelerator for the device",
    risk="Whoever matches the text of messages no longer finds the backend's error code in them.",
)
def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    device_type = _get_available_device_type()
    if device_type is None:
        raise RuntimeError(coded("device type could not be determined", "PARAM"))
    if device_ids is None:
        device_ids = _get_all_device_indices()
    if device_ids is None:
        raise RuntimeError(coded("no available devices were found", "PARAM"))
    output_device = _get_device_index(device_ids[0] if output_device is None else output_device, True)
    device_ids = [_get_device_index(device, True) for device in device_ids]
    source = torch.device(device_type, device_ids[0])
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.device != source:
            raise RuntimeError(
                coded(
                    f"module must have its parameters and buffers on device {source} (device_ids[0]) "
                    f"but found one of them on device: {tensor.device}",
                    "VALUE",
                )
            )
    inputs, module_kwargs = scatter_kwargs(inputs, module_kwargs, device_ids, dim)
    if not inputs and not module_kwargs:
        inputs, module_kwargs = ((),), ({},)
    if len(device_ids) == 1:
        return module(*inputs[0], **module_kwargs[0])
    used = device_ids[: len(inputs)]
    return gather(apply_in_threads(replicate(module, used), inputs, module_kwargs, used), output_device, dim)


# ------------------------------------------------------------------------------------ (c) Tensor.type
_tensor_type = manager.declare(
    id=TENSOR_TYPE,
    group="api",
    title="(c) Tensor.type takes the backend's legacy tensor types",
    reason=(
        "Tensor.type did not know types such as torch.npu.FloatTensor, by class or by name. The replacement converts to "
        "them with Tensor.to, and leaves everything else to the original, which is kept as Tensor.type_raw."
    ),
    origin=Origin(removed="torch_npu commit 145924cec"),
    remove_when="Tensor.type takes the types of a renamed PrivateUse1 backend",
    risk=(
        "Code that calls Tensor.type_raw, which existed only because of the patch, fails. A tensor on another npu than the "
        "current one stays there, where the patch moved it to the current one (see the direct probe)."
    ),
)
_tensor_type.add("torch.Tensor.type_raw", torch.Tensor.type)
LEGACY_DTYPES = {
    f"torch.npu.{name}": getattr(torch.npu, name).dtype
    for name in (
        "BoolTensor",
        "ByteTensor",
        "CharTensor",
        "DoubleTensor",
        "FloatTensor",
        "HalfTensor",
        "BFloat16Tensor",
        "IntTensor",
        "LongTensor",
        "ShortTensor",
    )
}


@_tensor_type.replace("torch.Tensor.type")
def tensor_type(self, dtype=None, non_blocking=False, **kwargs):
    if dtype is None:
        return self.type_raw(dtype, non_blocking, **kwargs)
    name = dtype.__name__ if isinstance(dtype, type) else dtype
    if isinstance(name, str) and name in LEGACY_DTYPES:
        return self.to(dtype=LEGACY_DTYPES[name], device="npu", non_blocking=non_blocking)
    return self.type_raw(dtype, non_blocking, **kwargs)


# ------------------------------------------------------------------------------------ (d) module methods
_module_methods = manager.declare(
    id=MODULE_METHODS,
    group="npu",
    title="(d) six module methods refused for modules on npu",
    reason=(
        "Tensors on npu could not be shared between processes, and scripted modules were not supported on npu: the methods "
        "were to fail with a clear message for a module that has a parameter on npu."
    ),
    origin=Origin(
        introduced="2023-08 by torch_npu commit 217f26d6d",
        removed="2026-08-13 by torch_npu commit 0a0f799ed",
        note=(
            "Tensors can be shared since torch_npu commit 967ed515b (2025-07). Five of the methods are inherited: undoing "
            "means deleting."
        ),
    ),
    remove_when="npu tensors can be shared, and scripted modules work on npu",
    risk="Code that expects the refusal gets torch's own behaviour: the result, or torch's own error.",
)


def refusing(owner, name):
    method = getattr(owner, name)

    def refuse_on_npu(self, *args, **kwargs):
        if any(parameter.device.type == "npu" for parameter in torch.nn.Module.parameters(self)):
            raise RuntimeError(f"{owner.__name__}.{name} is not supported in npu.")
        return method(self, *args, **kwargs)

    return refuse_on_npu


_module_methods.replace("torch.nn.Module.share_memory", refusing(torch.nn.Module, "share_memory"))
for _name in ("add_module", "bfloat16", "register_buffer", "register_parameter", "register_module"):
    _module_methods.replace(f"torch.jit.ScriptModule.{_name}", refusing(torch.jit.ScriptModule, _name))
