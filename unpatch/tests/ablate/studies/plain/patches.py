"""One patch of each kind; it is a module of its own so that the study has a sibling to import."""

import os
import signal
import time

from unpatch.patches import PatchManager, original

manager = PatchManager("plain")


def patch(name):
    return manager.patch(f"library.{name}", id=name, group="all", title=name, reason="to be judged")


@patch("same")
def same(x):
    return x + x


@patch("changed")
def changed(x):
    return 3 * x


@patch("refused")
def refused(x):
    raise RuntimeError("not supported")


@patch("missing")
def missing(x):
    return 2 * x


@patch("never")
def never(x):
    return 0


@patch("guarded")
def guarded(x):
    if x < 0:
        x = -x
    return original(guarded)(x)


@patch("noisy")
def noisy(x):
    return 2 * x


@patch("failing")
def failing(x):
    return original(failing)(x)


@patch("reworded")
def reworded(x):
    try:
        return original(reworded)(x)
    except ValueError:
        error = ValueError("the patch's words")
    raise error


@patch("retyped")
def retyped(x):
    raise OSError("the patch's type")


@patch("killed")
def killed(x):
    os.kill(os.getpid(), signal.SIGKILL)


@patch("stuck")
def stuck(x):
    while True:
        time.sleep(0.01)


@patch("told")
def told(x):
    return 2 * x


uncovered = manager.declare(id="uncovered", group="all", title="uncovered", reason="no workload covers it")
uncovered.replace("library.CONSTANT", 2)


@manager.register_patch("opaque")
def opaque():
    """Nobody knows what it writes."""
