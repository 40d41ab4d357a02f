"""A study without torch: endings of every kind, and what a workload may do to its own process."""

import os
import sys
import threading
import uuid

import library
from patches import manager

from unpatch.study import Study

study = Study(
    "plain",
    "Patches of a plain library",
    patches=manager,
    environment={"PLAIN_STUDY": "declared"},
    seed=7,
    goals=["judge every kind of patch"],
)


@study.workload(covers=["same"])
def same(case):
    """The same, computed in another way.

    Only the first paragraph is told.
    """
    case.output("y", library.same(4))
    case.output("parts", {"list": [1, (2, 3)], "empty": []})


@study.workload(covers=["changed"], params=[1, 2])
def changed(case, x):
    case.output("y", library.changed(x))


@study.workload(covers=["refused"])
def refused(case):
    case.output("y", library.refused(1))


@study.workload(covers=["missing"])
def missing(case):
    case.output("y", library.missing(1))


@study.workload(covers=["never"])
def never(case):
    case.output("y", 1)


@study.workload(covers=["guarded"])
def guarded(case):
    case.output("y", library.guarded(5))


@study.workload(covers=["noisy"])
def noisy(case):
    case.output("y", (library.noisy(1), uuid.uuid4()))


@study.workload(covers=["failing"])
def failing(case):
    library.failing(1)


@study.workload(covers=["reworded"])
def reworded(case):
    library.reworded(1)


@study.workload(covers=["retyped"])
def retyped(case):
    library.retyped(1)


@study.workload(covers=["killed"])
def killed(case):
    print("about to die", file=sys.stderr, flush=True)
    case.output("y", library.killed(1))


@study.workload(covers=["stuck"])
def stuck(case):
    case.output("y", library.stuck(1))


@study.workload(covers=["told"])
def told(case):
    case.output("y", library.told(1))


@study.workload(covers=["patches.opaque"])
def opaque(case):
    case.output("y", 1)


# What a workload may do to its process must not cost the other cases.
@study.workload(covers=["same"])
def prints_garbage(case):
    os.write(1, b'\xff\xfe\x00{"type":"Done"}\n')
    print('{"type": "Observed"', flush=True)
    os.write(2, b"\xff\x00 garbage\n")
    case.output("y", library.same(1))


@study.workload(covers=["same"])
def forks(case):
    child = os.fork()
    if child == 0:
        raise RuntimeError("the child of the fork comes back from the workload")
    os.waitpid(child, 0)
    case.output("y", library.same(1))


@study.workload(covers=["same"])
def closes_stdout(case):
    os.close(1)
    case.output("y", library.same(1))


@study.workload(covers=["same"], params=[SystemExit, KeyboardInterrupt])
def leaves(case, exception):
    library.same(1)
    raise exception("of the workload")


@study.workload(covers=["same"])
def calls_from_a_thread(case):
    results = []
    thread = threading.Thread(target=lambda: results.append(library.same(1)))
    thread.start()
    thread.join()
    case.output("y", results)


@study.workload(covers=["same"])
def looks_around(case):
    case.output("environment", os.environ["PLAIN_STUDY"])
    case.output("hash seed", os.environ["PYTHONHASHSEED"])
    case.output("object", object())
    case.output("torch", "torch" in sys.modules)


@study.workload(covers=["same"])
def hands_over_twice(case):
    case.output("y", 1)
    case.output("y", 2)


@study.probe("guarded")
def negative(probe):
    """A negative number takes the branch."""
    probe.before(library.guarded(1))
    probe.after(library.guarded(-1) + 1)
    probe.says("It is made positive.")


@study.probe("guarded")
def half_done(probe):
    probe.before(1)


@study.probe("killed")
def fatal(probe):
    library.killed(1)
