"""A study whose patches and workloads reach for what the lab uses, and for what it does not look at of itself."""

import os
import pathlib
import warnings

import library
import numpy

from unpatch.patches import PatchManager, original
from unpatch.study import Study

manager = PatchManager("hostile")
study = Study("hostile", "Patches of the lab itself", patches=manager)


def patch(target, id):
    return manager.patch(target, id=id, group="all", reason="to be judged")


# ------------------------------------------------------------------------------------------ what the lab uses
@patch("time.perf_counter", "clock")
def perf_counter():
    return "noon"


@study.workload(covers=["clock"])
def looks_at_no_clock(case):
    case.output("y", 1)


@patch("warnings.catch_warnings.__exit__", "recorder")
def leave(self, *error):
    original(leave)(self, *error)
    if library.angry:
        library.angry = False
        raise OSError("not today")


@study.workload(covers=["recorder"])
def angers(case):
    library.angry = True
    case.output("y", 1)


# ------------------------------------------------------------------------------------------ what a repr leaves out
@patch("library.as_hex", "hex")
def as_hex(x):
    return hex(x + 1)


@patch("library.container", "container")
def container(x):
    return (x,)


@patch("library.boxed", "dataclass")
def boxed(x):
    values = numpy.arange(x)
    values[x // 2] = 0
    return library.Box(values)


@patch("library.digits", "digits")
def digits(x):
    return numpy.array([x + 1e-12])


@patch("library.elements", "elements")
def elements(x):
    zeros = numpy.zeros(x)
    zeros[x // 2] = 1
    return zeros


@study.workload(covers=["hex"])
def hands_over_hex(case):
    case.output("y", library.as_hex(16))


@study.workload(covers=["container"])
def hands_over_a_container(case):
    case.output("y", library.container(16))


@study.workload(covers=["dataclass"])
def hands_over_a_dataclass(case):
    case.output("y", library.boxed(5000))


@study.workload(covers=["digits"])
def hands_over_digits(case):
    case.output("y", library.digits(1.0))


@study.workload(covers=["elements"])
def hands_over_many_elements(case):
    case.output("y", library.elements(100_000))


# ------------------------------------------------------------------------------------------ what is not ablated
@patch("library.early", "early")
def early(x):
    return x + 1


os.environ.pop("UNPATCH_DISABLE", None)
manager.apply("early")


@patch("library.cleared", "cleared")
def cleared(x):
    return x + 1


@patch("library.disabled", "disabled")
def disabled(x):
    return x + 1


manager.disable("disabled")
manager.declare(id="empty", group="all", reason="writes nothing here")


@study.workload(covers=["early", "cleared", "disabled", "empty"])
def calls_them(case):
    case.output("y", [library.early(1), library.cleared(1), library.disabled(1)])


# ------------------------------------------------------------------------------------------ warnings, failures
@manager.register_patch("opaque")
def strict():
    warnings.filterwarnings("error", message="old")


@study.workload(covers=["study.strict"])
def warns(case):
    warnings.warn("old")  # noqa: B028 - where it points to is of no interest
    case.output("y", 1)


@patch("library.broken", "broken")
def broken(x):
    return x + 1


@study.workload(covers=["broken"])
def fails_before_it_calls(case):
    missing_name  # noqa: B018, F821
    case.output("y", library.broken(1))


# ------------------------------------------------------------------------------------------ what a workload does
@patch("library.bystander", "bystander")
def bystander(x):
    return x


@study.workload(covers=["bystander"])
def is_large(case):
    os.write(1, b"\xff\x00\n" * 1_000_000)
    case.output("y", "x" * 1_000_000)


@study.workload(covers=["bystander"])
def closes_everything(case):
    os.closerange(0, 256)
    case.output("y", library.bystander(1))


@study.workload(covers=["bystander"])
def takes_every_number(case):
    os.closerange(0, 256)
    case.output("y", len([os.open(pathlib.Path(__file__), os.O_RDONLY) for _ in range(16)]))


@study.workload(covers=["bystander"])
def warns_of_a_file(case):
    warnings.warn("unreadable: a\udc80")  # noqa: B028
    case.output("y", library.bystander(1))


class SilentError(Exception):
    def __str__(self):
        raise ValueError("no words")


class ExitsError(Exception):
    def __str__(self):
        raise SystemExit("no words")


class NotedError(Exception):
    __notes__ = 3


class UndecodableError(Exception):
    def __str__(self):
        return "a\udc80"


@study.workload(covers=["bystander"], params=[SilentError, ExitsError, NotedError, UndecodableError])
def raises(case, kind):
    raise kind("x")
