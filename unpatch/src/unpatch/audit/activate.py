"""Sets a package's patches off: imports it, runs a script, makes calls."""

from __future__ import annotations

import builtins
import importlib
import importlib.metadata
import os
import sys
import types
from collections.abc import Callable

from unpatch.audit.hook import TRACER
from unpatch.audit.records import Activation


def audited_packages(activation: Activation) -> tuple[str, ...]:
    """The top-level packages that are audited: those of the target's distribution, or the script and what lies beside it."""
    then = [name.partition(".")[0] for name in activation.then]
    if activation.is_script:
        folder = os.path.dirname(os.path.abspath(activation.target))
        beside = {
            name.removesuffix(".py")
            for name in os.listdir(folder)
            if name.endswith(".py") or os.path.isfile(os.path.join(folder, name, "__init__.py"))
        }
        own = ["__main__", *sorted(beside - sys.stdlib_module_names)]
    else:
        own = [activation.target.partition(".")[0]]
    return tuple(dict.fromkeys([*own, *then, *_siblings({*own, *then})]))


def _siblings(tops: set[str]) -> list[str]:
    """Other top-level packages of the same distributions."""
    by_top = importlib.metadata.packages_distributions()
    distributions = {name for top in tops for name in by_top.get(top, ())}
    found = (top for top, names in by_top.items() if set(names) <= distributions and top.isidentifier())
    return sorted(set(found) - tops)


def activate(
    activation: Activation,
    code_of: Callable[[str], types.CodeType | None] = lambda path: None,
    tracer: object = None,
) -> None:
    """Do what the activation says. Whatever it raises is the activation's own.

    Args:
        activation: what to do; its environment variables are set already.
        code_of: rewritten code of a script, or None.
        tracer: what rewritten code calls.
    """
    if activation.is_script:
        run_script(activation.target, code_of, tracer)
        scope = vars(sys.modules["__main__"])
    else:
        importlib.import_module(activation.target)
        scope = {"__name__": "__main__", "__builtins__": builtins}
    for module in activation.then:
        importlib.import_module(module)
    for call in activation.calls:
        _call(call, scope)


def run_script(
    path: str, code_of: Callable[[str], types.CodeType | None] = lambda path: None, tracer: object = None
) -> None:
    """Run a script as `python path` does, in a `__main__` of its own."""
    path = os.path.abspath(path)
    main = types.ModuleType("__main__")
    main.__file__ = path
    main.__dict__["__builtins__"] = builtins
    main.__dict__[TRACER] = tracer
    sys.modules["__main__"] = main
    sys.path.insert(0, os.path.dirname(path))
    code = code_of(path)
    if code is None:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _call(call: str, scope: dict[str, object]) -> None:
    """Evaluate `pkg.mod.fn(…)`, having imported as much of its path as are modules."""
    names = call.partition("(")[0].strip().split(".")
    known = dict(scope)
    for length in range(len(names) - 1, 0, -1):
        try:
            importlib.import_module(".".join(names[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not ".".join(names[:length]).startswith(error.name):
                raise
            continue
        known[names[0]] = sys.modules[names[0]]
        break
    exec(compile(call, "<call>", "exec"), known)


#: What stands between us and the first line of what is activated.
_MACHINERY = frozenset({"unpatch", "importlib", "ast"})


def own_trace(error: BaseException) -> types.TracebackType | None:
    """The traceback of what an activation raised, from its own first line on; None for source that cannot be compiled."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # the first frame is the one that caught it
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY:
        trace = trace.tb_next
    return trace
