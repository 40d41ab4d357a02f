"""A study with torch on CPU: operators, keys, tensors, gradients and state."""

import random
import threading

import library
import torch

from unpatch.patches import PatchManager
from unpatch.study import Study

manager = PatchManager("tensors")
study = Study("tensors", "Patches that compute", patches=manager, seed=3)


def patch(name):
    return manager.patch(f"library.{name}", id=name, group="all", title=name, reason="to be judged")


@patch("same")
def same(x):
    return x * 2


@patch("other_operators")
def other_operators(x):
    return x + x


@patch("other_values")
def other_values(x):
    return x * 2.5


@patch("keys")
def keys(x):
    torch._C._dispatch_tls_set_dispatch_key_excluded(torch._C.DispatchKey.FuncTorchBatched, True)
    return x * 2


@patch("noisy")
def noisy(x):
    return x * 2


@patch("in_thread")
def in_thread(x):
    return x + x


@patch("compiled")
def compiled(x):
    return x * 2


def train(case, double):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(4, 3, requires_grad=True)
    y = double(model(x))
    case.output("before", y)
    y.square().sum().backward()
    optimizer.step()
    case.output("python", random.random())
    case.gradient("x", x.grad)
    case.gradient("none", y.grad_fn and None)
    case.state(model)
    case.state(optimizer, "optimizer")
    y.data.zero_()


@study.workload(covers=["same"])
def trains(case):
    train(case, library.same)


@study.workload(covers=["same"])
def hands_over_strange_tensors(case):
    base = torch.tensor([1.0, float("nan"), float("inf")])
    case.output("nan", library.same(base))
    case.output("bfloat16", base.bfloat16())
    case.output("conjugate", torch.tensor([1 + 2j]).conj())
    case.output("strided", torch.arange(6).reshape(2, 3).t())
    case.output("empty", torch.empty(0, 2))
    case.output("scalar", torch.tensor(True))


@study.workload(covers=["other_operators"])
def adds(case):
    case.output("y", library.other_operators(torch.ones(3)))


@study.workload(covers=["other_values"])
def scales(case):
    case.output("y", library.other_values(torch.ones(3)))


@study.workload(covers=["noisy"])
def is_random(case):
    generator = torch.Generator()
    generator.seed()
    case.output("y", library.noisy(torch.rand(3, generator=generator)))


@study.workload(covers=["in_thread"])
def works_in_a_thread(case):
    found = []
    thread = threading.Thread(target=lambda: found.append(library.in_thread(torch.ones(2))))
    thread.start()
    thread.join()
    case.output("y", found)


@study.workload(covers=["compiled"])
def compiles_undeclared(case):
    case.output("y", torch.compile(lambda x: library.compiled(x), backend="eager")(torch.ones(2)))


@study.workload(covers=["keys"])
def leaves_a_key(case):
    # The last of the cases, because in A the patch changes what comes after it.
    case.output("y", library.keys(torch.ones(2)))
