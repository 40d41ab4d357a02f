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
    """The traceback of what an activation raised, from its own first line on; None for source that cannot be compiled.

    Our frames between, of the loader and of the tracer that does the writes, are left out, of what led to the error as well.
    """
    trace = error.__traceback__ and error.__traceback__.tb_next  # the first frame is the one that caught it
    while trace is not None and _module(trace).partition(".")[0] in _MACHINERY:
        trace = trace.tb_next
    seen = {id(error)}
    due = [error.__cause__, error.__context__]
    while due:
        other = due.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            other.__traceback__ = _without_ours(other.__traceback__)
            due += [other.__cause__, other.__context__]
    return _without_ours(trace)


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    kept = []
    while trace is not None:
        # Python leaves out the import system's frames itself, but not around our loader's.
        of_import = trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")
        if not of_import and not _module(trace).startswith("unpatch.audit."):
            kept.append(trace)
        trace = trace.tb_next
    inner = None
    for one in reversed(kept):
        inner = types.TracebackType(inner, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return inner


def _module(trace: types.TracebackType) -> str:
    return str(trace.tb_frame.f_globals.get("__name__"))
