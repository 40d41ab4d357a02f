"""Case study: five patches that torch_npu carried until PyTorch 2.13. Can they go?

What each patch is stands in patches.py. Here is what must keep working without it, and a direct probe of what a patch would do
if it were reached. Which patch can go is for the lab to find: no verdict is written here.
"""

import warnings

import torch
import torch.nn.functional as F
from patches import DATA_PARALLEL, MODULE_METHODS, PARALLEL_APPLY, SANITIZER, TENSOR_TYPE, enable_autograd, manager
from torch import nn

from torch_vnpu import sanitizer
from torch_vnpu.sanitizer import StreamCheckMode
from unpatch.study import Study

study = Study(
    name="torch_npu",
    title="Five historical patches of torch_npu under PyTorch 2.13",
    summary=(
        "torch_npu carried these patches to torch for years, and its maintainers removed them by hand. "
        "Here each is re-created in our own words, applied on a virtual NPU, and ablated in fresh processes."
    ),
    patches=manager,
    environment={"VNPU_DEVICES": "2", "OMP_NUM_THREADS": "1"},
    goals=(
        "Decide for each patch, by measurement, whether a backend on PyTorch 2.13 still needs it.",
        "List every exception, message and warning that its users see change.",
    ),
    non_goals=(
        "Performance: the hardware is virtual, time is recorded and not judged.",
        "Other versions of PyTorch than the one that is installed.",
    ),
    options=(
        "Keep the patch: nothing changes, and it is carried to the next release of PyTorch.",
        "Keep it behind a version check: right where older versions of PyTorch are still supported.",
        "Delete it: right where no case needs it, and what changes for users is listed here.",
    ),
    not_covered=(
        "Real Ascend hardware, and the test-suites of torch_npu itself.",
        "Tensors on another npu than the current one in Tensor.type: the patch moves them to the current device, torch leaves "
        "them where they are. A direct probe shows it; a program that relied on the move has to ask for the device.",
        "Under npu autocast, the worker threads of DataParallel run without autocast, with the patch and without: both ask "
        "torch.is_autocast_enabled() for no device in particular, which does not speak of npu.",
    ),
)


# ------------------------------------------------------------------------------------ (a) operators under the sanitizer
def _image(channels=3):
    return torch.randn(4, channels, 8, 8, device="npu", requires_grad=True)


def _batch_norm(leaf):
    mean, variance = torch.zeros(3, device="npu"), torch.ones(3, device="npu")
    return F.batch_norm(leaf, mean, variance, training=True)


def _nll_loss(leaf):
    target = torch.arange(4, device="npu") % 3
    return F.nll_loss(leaf, target)


OPERATORS = {
    "adaptive_avg_pool2d": (_image, lambda leaf: F.adaptive_avg_pool2d(leaf, 2)),
    "batch_norm": (_image, _batch_norm),
    "log_softmax": (_image, lambda leaf: F.log_softmax(leaf, 1)),
    "nll_loss": (lambda: torch.randn(4, 3, device="npu", requires_grad=True), _nll_loss),
    "to": (_image, lambda leaf: leaf.to(torch.float64)),
}


@study.workload(covers=[SANITIZER], params=OPERATORS)
def under_sanitizer(case, operator):
    """One of the five operators of the list, forward and backward on npu, with the sanitizer's dispatch mode on."""
    make, apply = operator
    sanitizer.enable_npu_sanitizer(capture="dispatch")
    try:
        leaf = make()
        result = apply(leaf)
        result.sum().backward()
    finally:
        sanitizer.disable_npu_sanitizer()
    case.output("result", result)
    case.gradient("leaf.grad", leaf.grad)


@study.workload(covers=[SANITIZER])
def training_under_sanitizer(case):
    """Two training steps of a small network that uses all five operators, with the sanitizer's dispatch mode on."""
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).npu()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    images, targets = torch.randn(4, 3, 8, 8), torch.arange(4) % 3
    sanitizer.enable_npu_sanitizer(capture="dispatch")
    try:
        for step in range(2):
            loss = F.nll_loss(F.log_softmax(network(images.to("npu")), 1), targets.to("npu"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            case.output(f"loss.{step}", loss)
    finally:
        sanitizer.disable_npu_sanitizer()
    case.state(network)


@study.probe(SANITIZER)
def autograd_exclusion(probe):
    """Call the workaround with a name of its list, where a dispatch mode stands: does it change the thread's keys?"""

    class Inside(StreamCheckMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            key = torch._C.DispatchKey.AutogradFunctionality
            excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
            probe.before(excluded(key))
            enable_autograd("batch_norm")
            probe.after(excluded(key))
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)
            return func(*args, **(kwargs or {}))

    probe.says("Whether the thread excludes the dispatch key AutogradFunctionality, inside the mode.")
    operand = torch.ones(2, device="npu")
    with Inside():
        torch.neg(operand)


# ------------------------------------------------------------------------------------ (b) DataParallel
class Network(nn.Module):
    """Linear, BatchNorm, and a keyword argument; returns a tensor or a dict."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x, scale=1.0, as_dict=False):
        y = self.head(torch.relu(self.norm(self.hidden(x)))) * scale
        return {"y": y, "mean": y.mean(0, keepdim=True)} if as_dict else y


def _network():
    torch.manual_seed(1)
    return Network().npu()


def _run_dataparallel(network, x, **kwargs):
    return nn.DataParallel(network)(x, **kwargs)


def _run_function(network, x, **kwargs):
    return nn.parallel.data_parallel(network, x, module_kwargs=kwargs or None)


RUNS = {"DataParallel": _run_dataparallel, "data_parallel": _run_function}


def _both(function):
    """The same workload through the class, for (b1), and through the function, for (b2)."""
    for name, patch in (("DataParallel", PARALLEL_APPLY), ("data_parallel", DATA_PARALLEL)):
        study.workload(covers=[patch], params={name: RUNS[name]})(function)
    return function


@_both
def training_on_two_devices(case, run):
    """Two training steps on two devices, with BatchNorm and SGD."""
    network = _network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        loss = run(network, torch.randn(8, 4, device="npu")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        case.output(f"loss.{step}", loss)
    for name, parameter in network.named_parameters():
        case.gradient(f"{name}.grad", parameter.grad)
    case.state(network)
    case.state(optimizer, "optimizer")


@_both
def keyword_and_structured_result(case, run):
    """A keyword argument for the module, a dict as its result, an uneven batch, no gradients."""
    with torch.no_grad():
        case.output("result", run(_network().eval(), torch.randn(5, 4, device="npu"), scale=2.0, as_dict=True))


@_both
def one_sample(case, run):
    """A batch of one: only one of the two devices has work."""
    case.output("result", run(_network().eval(), torch.randn(1, 4, device="npu")))


@_both
def under_autocast(case, run):
    """Two devices under torch.autocast("npu"): which dtype do the workers compute in?"""
    with torch.autocast("npu", dtype=torch.bfloat16):
        result = run(_network(), torch.randn(8, 4, device="npu"))
    case.output("result", result)


@_both
def error_in_a_worker(case, run):
    """The module fails in every replica: the input has the wrong width."""
    run(_network(), torch.randn(8, 3, device="npu"))


@_both
def error_tensor_on_the_wrong_device(case, run):
    """A tensor that is hidden from scatter stays on the first device and meets the second one's in a worker."""

    class Hidden(Network):
        def forward(self, x):
            return super().forward(x) + _HIDDEN[0]

    _HIDDEN[:] = [torch.ones(2, device="npu:0")]
    torch.manual_seed(1)
    run(Hidden().npu(), torch.randn(8, 4, device="npu"))


_HIDDEN: list = []


@_both
def error_module_on_another_device(case, run):
    """The module's parameters lie on the second device."""
    run(_network().to("npu:1"), torch.randn(8, 4, device="npu"))


@_both
def error_module_on_cpu(case, run):
    """The module was left on CPU."""
    run(_network().cpu(), torch.randn(8, 4, device="npu"))


def _replicas(count=2):
    parallel = nn.DataParallel(_network())
    return parallel, parallel.replicate(parallel.module, parallel.device_ids)[:count]


def _inputs(count):
    return [(torch.randn(4, 4, device=f"npu:{index % 2}"),) for index in range(count)]


ARGUMENTS = {
    "too_few_inputs": lambda replicas: (replicas, _inputs(1), [{}, {}]),
    "too_many_inputs": lambda replicas: (replicas, _inputs(3), [{}, {}]),
    "too_few_keywords": lambda replicas: (replicas, _inputs(2), [{}]),
    "more_modules_than_devices": lambda replicas: ([*replicas, replicas[0]], _inputs(3), [{}, {}, {}]),
}


@study.workload(covers=[PARALLEL_APPLY], params=ARGUMENTS)
def error_wrong_counts(case, arguments):
    """parallel_apply is called with modules, inputs, keywords and devices of different numbers."""
    parallel, replicas = _replicas()
    parallel.parallel_apply(*arguments(replicas))


# ------------------------------------------------------------------------------------ (c) Tensor.type
def _npu_type(name):
    return getattr(torch.npu, name)


CONVERSIONS = {
    "npu_class": lambda x: x.type(_npu_type("HalfTensor")),
    "npu_name": lambda x: x.type("torch.npu.LongTensor"),
    "npu_same_class": lambda x: x.type(_npu_type("FloatTensor")),
    "cpu_class": lambda x: x.type(torch.DoubleTensor),
    "cpu_name": lambda x: x.type("torch.IntTensor"),
    "dtype": lambda x: x.type(torch.bfloat16),
    "non_blocking": lambda x: x.type("torch.npu.DoubleTensor", non_blocking=True),
}
DEVICES = ("cpu", "npu")


@study.workload(
    covers=[TENSOR_TYPE],
    params={f"{name}-{device}": (convert, device) for name, convert in CONVERSIONS.items() for device in DEVICES},
)
def conversion(case, param):
    """Tensor.type with one kind of argument, from one device, with the gradient back where the dtype has one."""
    convert, device = param
    leaf = torch.randn(3, 4, device=device, requires_grad=True)
    result = convert(leaf)
    case.output("result", result)
    if result.requires_grad:
        result.double().square().sum().backward()
        case.gradient("leaf.grad", leaf.grad)


@study.workload(covers=[TENSOR_TYPE], params=DEVICES)
def type_name(case, device):
    """Tensor.type without an argument names the type."""
    for dtype in (torch.float32, torch.float16, torch.int64, torch.bool):
        case.output(str(dtype), torch.zeros(2, dtype=dtype, device=device).type())


@study.workload(covers=[TENSOR_TYPE], params=("torch.npu.NoSuchTensor", "torch.npu.QUInt8Tensor", 3.5))
def error_unknown_type(case, name):
    """Tensor.type with what is no type."""
    torch.ones(2, device="npu").type(name)


COMPILED = {
    "name": lambda x: (x.type(), x + 1),
    "cpu_class": lambda x: x.type(torch.DoubleTensor) * 2,
}


@study.workload(covers=[TENSOR_TYPE], params=COMPILED, compiled=True)
def compiled(case, function):
    """torch.compile(fullgraph=True) of a function that calls Tensor.type."""
    torch._dynamo.reset()
    case.output("result", torch.compile(function, fullgraph=True, backend="eager")(torch.ones(3)))


@study.probe(TENSOR_TYPE)
def type_on_another_device(probe):
    """Convert a tensor on npu:1 while npu:0 is current, with torch's own method and with the patch's branch."""
    from patches import tensor_type

    tensor = torch.ones(2, device="npu:1")
    probe.says("The device of the result: of torch's own Tensor.type, then of the patch's.")
    probe.before(str(tensor.type_raw("torch.npu.HalfTensor").device))
    probe.after(str(tensor_type(tensor, "torch.npu.HalfTensor").device))


# ------------------------------------------------------------------------------------ (d) module methods
class Plain(nn.Module):
    """A module with parameters and a buffer."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return self.linear(x) * self.scale


class Scripted(torch.jit.ScriptModule):
    """A subclass of ScriptModule that registers everything inside __init__, on the device it is given."""

    def __init__(self, device="cpu"):
        super().__init__()
        self.linear = nn.Linear(2, 2, device=device)
        self.register_buffer("buffer", torch.ones(1, device=device))
        self.register_parameter("parameter", nn.Parameter(torch.ones(1, device=device)))
        self.add_module("first", nn.ReLU())
        self.register_module("second", nn.ReLU())

    @torch.jit.script_method
    def forward(self, x):
        return self.second(self.first(self.linear(x)))


KINDS = {
    "plain": Plain,
    "subclass": Scripted,
    "scripted": lambda: torch.jit.script(Plain()),
    "traced": lambda: torch.jit.trace(Plain(), torch.ones(1, 2)),
}


def _share_memory(case, module):
    case.output("returns itself", module.share_memory() is module)
    case.output("shared", [parameter.is_shared() for parameter in module.parameters()])
    case.state(module)


def _bfloat16(case, module):
    case.state(module.bfloat16())


METHODS = {
    "share_memory": _share_memory,
    "bfloat16": _bfloat16,
    "add_module": lambda case, module: module.add_module("added", nn.ReLU()),
    "register_module": lambda case, module: module.register_module("added", nn.ReLU()),
    "register_buffer": lambda case, module: module.register_buffer("added", torch.ones(1)),
    "register_parameter": lambda case, module: module.register_parameter("added", nn.Parameter(torch.ones(1))),
}


@study.workload(
    covers=[MODULE_METHODS],
    params={
        f"{method}-{kind}-{device}": (call, make, device)
        for method, call in METHODS.items()
        for kind, make in KINDS.items()
        for device in DEVICES
    },
)
def module_method(case, param):
    """One of the six methods, on one kind of module, on one device."""
    call, make, device = param
    torch.manual_seed(1)
    with warnings.catch_warnings():
        # Making the module is not what is compared; torch deprecates torch.jit, once per process and function.
        warnings.simplefilter("ignore")
        module = make().to(device)
    call(case, module)


@study.workload(covers=[MODULE_METHODS], params=DEVICES)
def inside_init(case, device):
    """The four registering methods inside a ScriptModule's __init__, its parameters made on the device."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = Scripted(device)
    case.output("result", module(torch.ones(1, 2, device=device)))
    case.state(module)
