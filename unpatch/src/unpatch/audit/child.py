"""The process of an audit, `python -m unpatch.audit.child ORDERS.json`: activates a package, and says what it wrote.

It answers in a file of its own, line by line, so that what was written is known even when it dies. In its first pass it
only learns which modules the activation loads; in the second it loads the foreign ones, takes the snapshot, and activates.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import importlib.metadata
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import msgspec

from unpatch.answers import AnswerWriter
from unpatch.audit import raw, torch_states
from unpatch.audit.activate import activate, own_trace
from unpatch.audit.declared import GORILLA_BOOKKEEPING
from unpatch.audit.holders import holders
from unpatch.audit.hook import TracingFinder, traced_code
from unpatch.audit.join import Found, Join, findings
from unpatch.audit.records import Audited, Learned, Orders, Phase, Write
from unpatch.audit.snapshot import Snapshot
from unpatch.audit.trace import Entry, Tracer

#: Large packages that others patch, and whose own source is traced only when they are audited themselves: rewriting them
#: would cost more than everything else.
PLATFORMS = frozenset(
    (
        "torch",
        "torchgen",
        "functorch",
        "numpy",
        "scipy",
        "sympy",
        "mpmath",
        "networkx",
        "pandas",
        "jax",
        "jaxlib",
        "tensorflow",
    )
)
#: Never traced, and never part of a snapshot.
_OURS = frozenset({"unpatch", "msgspec"})


def main(path: str) -> None:
    """Follow the orders in the file `path`."""
    orders = msgspec.json.decode(Path(path).read_bytes(), type=Orders)
    answers = AnswerWriter(Path(orders.answers))
    faulthandler.enable()
    os.environ.update(orders.activation.environment)
    sys.argv = [orders.activation.target]
    if orders.mode == "learn":
        _learn(orders, answers)
    else:
        _Audit(orders, answers).run()
    # Not through the interpreter's exit: what the package does there is not asked for, and may hang.
    sys.stdout.flush()
    os._exit(0)


def _learn(orders: Orders, answers: AnswerWriter) -> None:
    answers.write(Phase("learning which modules are loaded"))
    _activation_error(orders, None)  # the next pass tells it
    answers.write(Learned(_loaded()))


def _loaded() -> tuple[str, ...]:
    return tuple(name for name in list(sys.modules) if type(name) is str and name != "__main__")


def _activation_error(orders: Orders, tracer: Tracer | None) -> str:
    cache = Path(orders.cache) if orders.cache else None
    try:
        if tracer is None:
            activate(orders.activation)
        else:
            activate(orders.activation, lambda file: traced_code(file, cache), tracer)
    except SystemExit as error:
        return "" if orders.activation.is_script and not error.code else f"SystemExit: {error.code}"
    except BaseException as error:
        return "".join(traceback.format_exception(type(error), error, own_trace(error)))
    return ""


class _Audit:
    """The second pass."""

    def __init__(self, orders: Orders, answers: AnswerWriter) -> None:
        self._orders = orders
        self._answers = answers
        self._audited = orders.audited
        self._platforms = PLATFORMS - set(self._audited)
        self._tracer = Tracer(self._tell)
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        cache = Path(self._orders.cache) if self._orders.cache else None
        TracingFinder(self._is_traced, self._tracer, cache).install()
        self._tracer.watch_interpreter()
        with self._phase("loading foreign modules"):
            unloaded = self._preload()
        with self._phase("taking the snapshot"):
            snapshot = Snapshot({*self._audited, *_OURS}, torch_states.states())
            before = torch_states.kernels()
        self._tracer.early = False
        self._tracer.find_owner = snapshot.owner
        with self._phase("activating"):
            error = _activation_error(self._orders, self._tracer)
        self._tracer.find_owner = lambda value: None
        gc.disable()  # from here on everything lives to the end
        with self._phase("comparing"):
            traced = {raw.top(name) for name in list(sys.modules) if type(name) is str and self._is_traced(name)}
            kernels = (before, torch_states.kernels() if before else {})
            found = Join(self._tracer, snapshot, self._audited, traced, kernels).found()
            found = [one for one in map(_without_bookkeeping, found) if self._wanted(one)]
        with self._phase("looking for copies"):
            patches = [one for one in found if one.classed in ("patch", "dependency")]
            places = [
                (id(value), name)
                for one in patches
                for name in (one.target, *one.aliases)
                for value in (one.old, one.new)
            ]
            stale = holders([one.old for one in patches], places)
            copied = holders([one.new for one in patches], places)
        result = Audited(
            findings(found, stale, copied), _versions(self._audited, found), snapshot.places, unloaded,
            self._seconds, error,
        )  # fmt: skip
        self._answers.write(result)

    def _is_traced(self, module: str) -> bool:
        package = raw.top(module)
        if package in self._audited:
            return True
        if module.startswith("unpatch.patches"):
            return True  # writes in the name of others
        return package not in sys.stdlib_module_names and package not in self._platforms | _OURS

    def _wanted(self, found: Found) -> bool:
        """Whether what is written lies under one of the names asked for."""
        places = [found.target, *found.aliases]
        if found.kind == "kernel":
            places.append("torch")
        if found.owner is sys.modules:
            places.append(found.target.removeprefix("sys.modules['"))
        return not self._orders.on or any(
            place == name or place.startswith((f"{name}.", f"{name}[", f"{name}'"))
            for name in self._orders.on
            for place in places
        )

    def _preload(self) -> tuple[str, ...]:
        """Load what is not audited, in the order in which the activation loads it."""
        unloaded = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in self._orders.learned:
                if raw.top(name) in self._audited or name in sys.modules:
                    continue
                try:
                    importlib.import_module(name)
                except BaseException as error:
                    unloaded.append(f"{name}: {type(error).__name__}")
        return tuple(unloaded)

    def _tell(self, entry: Entry) -> None:
        if not entry.early:
            new = raw.describe(entry.new)
            write = Write(
                entry.order, entry.kind, entry.target, new, entry.site, entry.package, entry.via, entry.traced_by
            )
            self._answers.write(write)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._answers.write(Phase(name))
        started = perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = round(perf_counter() - started, 3)


def _without_bookkeeping(found: Found) -> Found:
    """What gorilla keeps beside the patched attribute is no patch."""
    if found.via == "gorilla" and found.target.rpartition(".")[2].startswith(GORILLA_BOOKKEEPING):
        found.classed = "noise"
    return found


def _versions(audited: tuple[str, ...], found: list[Found]) -> dict[str, str]:
    """Versions of the distributions of the audited packages and of those that were written to."""
    tops = {*audited, *(raw.top(one.target) for one in found if one.classed not in ("noise", "self-patch"))}
    distributions = importlib.metadata.packages_distributions()
    names = sorted({name for top in tops for name in distributions.get(top, ())})
    return {"python": sys.version.split()[0], **{name: importlib.metadata.version(name) for name in names}}


if __name__ == "__main__":
    main(sys.argv[1])
