"""Calls and branches of replacements: in threads, in autograd, under other tracers, inside compiled regions."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from unpatch.model import ReachRecord
from unpatch.observe import ObservationError
from unpatch.observe.reach import Reach

numbers = itertools.count()


class Patched:
    """Replacements from a file, wrapped as the reach trial does; `patched(name)` is what stands at the target."""

    def __init__(self, folder: Path, source: str, *names: str) -> None:
        self.module = load(folder, source)
        self.reach = Reach(folder)
        self.functions = {name: self.wrap(name, getattr(self.module, name)) for name in names}

    def wrap(self, patch: str, replacement: Any) -> Any:
        declared = SimpleNamespace(id=patch, declared_at=(self.module.__file__, 1))
        return self.reach.transform(declared, f"library.{patch}", replacement)

    def run(self, work: Callable[..., object], case: str = "case") -> dict[str, ReachRecord]:
        with self.reach.case(case):
            work(*self.functions.values())
        return {record.patch: record for record in self.reach.records() if record.case == case}


def load(folder: Path, source: str) -> ModuleType:
    path = folder / f"patches_{next(numbers)}.py"
    path.write_text(dedent(source))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENABLE = """
    NAMES = ["a", "b"]
    done = []

    def original(replacement):
        return lambda func, *args: func(*args)

    def enable(name):
        if name in NAMES:
            done.append(name)

    def dispatch(func, *args):
        enable(func.__name__.split(".")[0])
        return original(dispatch)(func, *args)
"""


def test_the_condition_sits_in_a_helper_and_is_never_met(tmp_path: Path) -> None:
    patched = Patched(tmp_path, ENABLE, "dispatch")
    record = patched.run(lambda dispatch: [dispatch(abs, -1), dispatch(len, "ab")])["dispatch"]
    assert record == ReachRecord("dispatch", "case", 2, ("main",), 1, 0, ())


def test_the_condition_in_a_helper_is_met(tmp_path: Path) -> None:
    patched = Patched(tmp_path, ENABLE, "dispatch")
    patched.module.NAMES.append("abs")
    record = patched.run(lambda dispatch: dispatch(abs, -1))["dispatch"]
    assert (record.branches, record.branches_run) == (1, 1)
    assert record.lines_run == (f"{patched.module.__name__}.py:10",)


@pytest.mark.parametrize(
    "body",
    [
        "if dtype is None:\n        return self.f_raw(dtype)\n    return self.to(dtype)",
        "if dtype is None: return self.f_raw(dtype)\n    return self.to(dtype)",
        "if dtype is not None: return self.to(dtype)\n    return self.f_raw(dtype)",
    ],
)
@pytest.mark.parametrize(("dtype", "ran"), [(None, 0), (1, 1)])
def test_handing_on_to_the_original_is_no_branch(tmp_path: Path, body: str, dtype: object, ran: int) -> None:
    patched = Patched(tmp_path, f"def f(self, dtype=None):\n    {body}\n", "f")
    target = SimpleNamespace(f_raw=lambda dtype: "raw", to=lambda dtype: "to")
    record = patched.run(lambda f: f(target, dtype))["f"]
    assert (record.calls, record.branches, record.branches_run) == (1, 1, ran)


def test_results_and_errors_pass_through(tmp_path: Path) -> None:
    patched = Patched(tmp_path, "def f(x, *, y=2):\n    return 1 / (x - y)\n", "f")
    f = patched.functions["f"]
    before = sys.gettrace()
    with patched.reach.case("case"):
        assert f(4) == 0.5
        assert f(3, y=1) == 0.5
        with pytest.raises(ZeroDivisionError):
            f(2)
        assert sys.gettrace() is before
    assert f(4) == 0.5  # outside of a case: not counted
    (record,) = patched.reach.records()
    assert record.calls == 3
    assert f.__name__ == "f"
    assert f.__wrapped__ is patched.module.f


def test_recursion_and_replacements_that_call_each_other(tmp_path: Path) -> None:
    source = """
        hooks = {}

        def shared(n):
            if n == 0:
                return "end"
            return n

        def down(n):
            if n:
                return hooks["down"](n - 1)
            return hooks["other"](n)

        def other(n):
            if n > 5:
                return shared(n)
            return shared(n + 1)

        def apart(n):
            if n:
                return shared(n)
            return 0
    """
    patched = Patched(tmp_path, source, "down", "other", "apart")
    patched.module.hooks.update(patched.functions)
    records = patched.run(lambda down, *others: down(3))
    assert [records[name].calls for name in ("down", "other", "apart")] == [4, 1, 0]
    assert (records["down"].branches, records["down"].branches_run) == (2, 2)
    assert (records["other"].branches, records["other"].branches_run) == (4, 2)
    # Not entered: nothing of it ran, although a helper that it shares did.
    assert (records["apart"].branches, records["apart"].branches_run) == (4, 0)


def test_each_case_on_its_own_and_calls_of_nobody(tmp_path: Path) -> None:
    patched = Patched(
        tmp_path, "def f(x):\n    if x:\n        x += 1\n    return x\n\ndef g():\n    return 1\n", "f", "g"
    )
    first = patched.run(lambda f, g: f(0), "first")
    second = patched.run(lambda f, g: [f(1), f(0)], "second")
    assert [(record.patch, record.case) for record in patched.reach.records()] == [
        ("f", "first"),
        ("g", "first"),
        ("f", "second"),
        ("g", "second"),
    ]
    assert (first["f"].calls, first["f"].branches_run) == (1, 0)
    assert (second["f"].calls, second["f"].branches_run) == (2, 1)
    assert second["g"] == ReachRecord("g", "second", 0, (), 0, 0, ())


def test_cases_do_not_nest(tmp_path: Path) -> None:
    reach = Reach()
    with reach.case("one"), pytest.raises(ObservationError, match="two"), reach.case("two"):
        pass
    with reach.case("three"):  # the refusal left the first case as it was, and it ended
        pass


DESCRIPTORS = """
    class Replacement:
        @staticmethod
        def static(x):
            return x + 1

        @classmethod
        def of_class(cls, x):
            return cls.__name__, x

        def method(self):
            if self:
                return self.helper()
            return None

        def helper(self):
            if not self:
                return 0
            return 1

        @property
        def value(self):
            '''doc'''
            return 5

        @value.setter
        def value(self, new):
            self.new = new
"""


def test_descriptors_keep_their_kind(tmp_path: Path) -> None:
    patched = Patched(tmp_path, DESCRIPTORS)
    members = vars(patched.module.Replacement)
    target = type(
        "Target", (), {name: patched.wrap(name, members[name]) for name in ("static", "of_class", "method", "value")}
    )
    target.helper = members["helper"]  # type: ignore[attr-defined]

    def work() -> None:
        one = target()
        assert target.static(1) == one.static(1) == 2  # type: ignore[attr-defined]
        assert target.of_class(1) == ("Target", 1)  # type: ignore[attr-defined]
        assert one.method() == 1  # type: ignore[attr-defined]
        assert one.value == 5  # type: ignore[attr-defined]
        one.value = 6  # type: ignore[attr-defined]
        assert one.new == 6  # type: ignore[attr-defined]

    records = patched.run(work)
    assert {name: record.calls for name, record in records.items()} == {
        "static": 2,
        "of_class": 1,
        "method": 1,
        "value": 2,
    }
    assert target.value.__doc__ == "doc"  # type: ignore[attr-defined]
    # A method of the replacement's class that it names belongs to it.
    assert (records["method"].branches, records["method"].branches_run) == (4, 2)


def test_a_partial_is_counted_and_stays_a_partial(tmp_path: Path) -> None:
    patched = Patched(tmp_path, "import functools\ndef g(x, y):\n    return x + y\nf = functools.partial(g, 1)\n", "f")
    assert type(patched.functions["f"]) is functools.partial
    assert patched.run(lambda f: f(2))["f"].calls == 1


@pytest.mark.parametrize("replacement", [3, "text", int, len])
def test_what_is_no_function_is_left_alone_and_its_reach_unknown(replacement: object) -> None:
    reach = Reach()
    assert reach.transform(SimpleNamespace(id="p", declared_at=("p.py", 1)), "library.x", replacement) is replacement
    with reach.case("case"):
        pass
    assert reach.records() == (ReachRecord("p", "case", 0, (), 0, 0, (), "unknown"),)


HELPERS = {
    "decorated helper": """
        import functools

        def keep(f):
            @functools.wraps(f)
            def inner(*args):
                return f(*args)
            return inner

        @keep
        def helper(x):
            if x: return 1
            return 2

        def f(x):
            return helper(x)
        """,
    "cached helper": """
        import functools

        @functools.lru_cache
        def helper(x):
            if x: return 1
            return 2

        def f(x):
            return helper(x)
        """,
    "context manager": """
        import contextlib

        @contextlib.contextmanager
        def helper(x):
            if x: done = 1
            else: done = 2
            yield

        def f(x):
            with helper(x):
                return 1
        """,
    "helper of a helper": """
        def inner(x):
            if x: return 1
            return 2

        def outer(x):
            return inner(x)

        def f(x):
            return outer(x)
        """,
    "module-level instance": """
        class Helper:
            def __call__(self, x):
                if x: return 1
                return 2

        helper = Helper()

        def f(x):
            return helper(x)
        """,
    "class": """
        class Base:
            def run(self, x):
                if x: return 1
                return 2

        class Helper(Base):
            pass

        def f(x):
            return Helper().run(x)
        """,
    "closure": """
        def make():
            def helper(x):
                if x: return 1
                return 2

            def f(x):
                return helper(x)
            return f

        f = make()
        """,
    "nested function": """
        def f(x):
            def helper(x):
                if x: return 1
                return 2
            return helper(x)
        """,
    "decorated replacement": """
        import contextlib

        class no_grad(contextlib.ContextDecorator):
            def __enter__(self):
                pass
            def __exit__(self, *args):
                pass

        @no_grad()
        def f(x):
            if x: return 1
            return 2
        """,
}


@pytest.mark.parametrize("kind", HELPERS)
def test_helpers_of_the_same_file_belong_to_the_replacement(tmp_path: Path, kind: str) -> None:
    patched = Patched(tmp_path, HELPERS[kind], "f")
    record = patched.run(lambda f: f(1))["f"]
    assert (record.calls, record.branches, record.branches_run) == (1, 2, 1)


def test_a_helper_that_was_never_entered_does_not_count(tmp_path: Path) -> None:
    source = """
        def later(x):
            if x:
                x += 1
            return x

        def f(register):
            register(later)
    """
    patched = Patched(tmp_path, source, "f")
    kept: list[Callable[[int], int]] = []
    assert patched.run(lambda f: f(kept.append))["f"].branches == 0
    assert patched.run(lambda f: None, "uncalled")["f"].branches == 1


def test_a_wrapper_around_the_original_is_measured_and_not_the_original(tmp_path: Path) -> None:
    source = """
        import functools
        from fractions import Fraction

        @functools.wraps(Fraction.limit_denominator)
        def f(x):
            if x < 0:
                return 0
            return Fraction.limit_denominator(Fraction(x))
    """
    patched = Patched(tmp_path, source, "f")
    record = patched.run(lambda f: f(1))["f"]
    assert (record.branches, record.branches_run) == (2, 1)
    assert record.lines_run == (f"{patched.module.__name__}.py:9",)


def test_statements_that_the_compiler_left_out_do_not_count(tmp_path: Path) -> None:
    source = "def f(x):\n    if False:\n        x = 1\n    if x:\n        x = 2\n    return x\n"
    assert Patched(tmp_path, source, "f").run(lambda f: f(0))["f"].branches == 1


def test_code_without_source_is_counted(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    if x:\n        x = 2\n    return x\n", namespace)
    patched = Patched(tmp_path, "")
    f = patched.wrap("f", namespace["f"])
    record = patched.run(lambda: f(1))["f"]
    assert (record.calls, record.branches) == (1, 0)


# ------------------------------------------------------------------------------------------ threads
def in_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


BRANCH = "def f(x):\n    if x:\n        x = x + 1\n    return x\n"


def test_workers_and_main_are_told_apart(tmp_path: Path) -> None:
    patched = Patched(tmp_path, BRANCH, "f")
    record = patched.run(lambda f: [f(0), in_thread(lambda: f(1))])["f"]
    assert (record.calls, record.threads, record.branches_run) == (2, ("main", "worker"), 1)


def test_threads_that_the_replacement_starts_are_traced(tmp_path: Path) -> None:
    source = """
        import threading

        def f(x):
            def worker(n):
                if n == x:
                    hits.append(n)
            hits = []
            threads = [threading.Thread(target=worker, args=(n,)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return hits
    """
    patched = Patched(tmp_path, source, "f")
    assert f"{patched.module.__name__}.py:7" not in patched.run(lambda f: f(7), "missed")["f"].lines_run
    assert f"{patched.module.__name__}.py:7" in patched.run(lambda f: f(1), "hit")["f"].lines_run
    assert threading.gettrace() is None


class Backward(torch.autograd.Function):
    """Calls `work` in the backward, after autograd has gone on to a thread of its own (it does so below some depth)."""

    @staticmethod
    def forward(ctx, x, depth, work):  # type: ignore[no-untyped-def]
        ctx.depth, ctx.work = depth, work
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.depth:
            with torch.enable_grad():
                Backward.apply(torch.ones(1, requires_grad=True), ctx.depth - 1, ctx.work).backward()
        else:
            ctx.work()
        return gradient, None, None


@pytest.mark.parametrize(("depth", "role"), [(0, "main"), (70, "backward")])
def test_autograd(tmp_path: Path, depth: int, role: str) -> None:
    patched = Patched(tmp_path, BRANCH, "f")

    def work(f: Callable[[int], int]) -> None:
        Backward.apply(torch.ones(1, requires_grad=True), depth, lambda: f(1)).backward()

    record = patched.run(work)["f"]
    assert (record.calls, record.threads, record.branches_run) == (1, (role,), 1)


def test_no_call_of_many_threads_is_lost(tmp_path: Path) -> None:
    patched = Patched(tmp_path, BRANCH, "f")
    barrier = threading.Barrier(4)

    def many(f: Callable[[int], int]) -> None:
        barrier.wait()
        for n in range(300):
            f(n % 2)

    def work(f: Callable[[int], int]) -> None:
        threads = [threading.Thread(target=many, args=(f,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert patched.run(work)["f"].calls == 1200
    assert threading.gettrace() is None


# ------------------------------------------------------------------------------------------ other tracers
class LineTracer:
    """A debugger's tracer: follows every frame of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[int] = []

    def __call__(self, frame: Any, event: str, arg: object) -> Any:
        return self.local if frame.f_code.co_filename == self.file else None

    def local(self, frame: Any, event: str, arg: object) -> Any:
        if event == "line":
            self.lines.append(frame.f_lineno)
        return self.local


@pytest.mark.parametrize("body", ["if x:\n        x = 1", "if x: x = 1"])
def test_a_tracer_that_was_there_sees_all_and_stays(tmp_path: Path, body: str) -> None:
    patched = Patched(tmp_path, f"def f(x):\n    {body}\n    return x\n", "f")
    theirs = LineTracer(str(patched.module.__file__))
    before = sys.gettrace()
    sys.settrace(theirs)
    try:
        record = patched.run(lambda f: f(1))["f"]
        in_force = sys.gettrace()
    finally:
        sys.settrace(before)
    assert in_force is theirs
    expected = [2, 3, 4] if "\n" in body else [2, 3]
    assert theirs.lines == expected
    assert record.branches_run == 1


def test_a_tracer_for_threads_that_was_there_sees_them_and_stays(tmp_path: Path) -> None:
    source = """
        import threading

        def f(x):
            def worker():
                if x:
                    done.append(x)
            done = []
            thread = threading.Thread(target=worker)
            thread.start()
            thread.join()
    """
    patched = Patched(tmp_path, source, "f")
    theirs = LineTracer(str(patched.module.__file__))
    threading.settrace(theirs)
    try:
        record = patched.run(lambda f: f(1))["f"]
        in_force = threading.gettrace()
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    assert in_force is theirs
    assert theirs.lines == [6, 7]
    assert record.branches_run == 1


def test_a_tracer_that_the_replacement_sets_stays(tmp_path: Path) -> None:
    patched = Patched(tmp_path, "import sys\ndef f(x):\n    sys.settrace(x)\n", "f")
    before = sys.gettrace()
    theirs = LineTracer("none")
    try:
        patched.run(lambda f: f(theirs))
        assert sys.gettrace() is theirs
    finally:
        sys.settrace(before)


def test_coverage_goes_on_measuring(tmp_path: Path) -> None:
    coverage = pytest.importorskip("coverage")
    patched = Patched(tmp_path, BRANCH, "f")
    file = str(patched.module.__file__)
    before = sys.gettrace()
    measured = coverage.Coverage(data_file=None, include=[f"{tmp_path}/*"], config_file=False)
    measured.start()
    try:
        record = patched.run(lambda f: f(1))["f"]
        patched.module.f(0)
    finally:
        measured.stop()
        sys.settrace(before)
    assert record.branches_run == 1
    assert measured.get_data().lines(file) == [2, 3, 4]


# ------------------------------------------------------------------------------------------ compiled regions
def test_inside_a_compiled_region_it_is_traced(tmp_path: Path) -> None:
    torch._dynamo.reset()
    patched = Patched(tmp_path, "def f(x):\n    if x.dim():\n        return x.sin()\n    return x\n", "f")

    def work(f: Callable[[torch.Tensor], torch.Tensor]) -> None:
        compiled = torch.compile(lambda x: f(x) + 1, fullgraph=True, backend="eager")
        x = torch.ones(3)
        assert torch.equal(compiled(x), x.sin() + 1)

    record = patched.run(work)["f"]
    assert (record.calls, record.compiled) == (0, "traced")


def test_traced_counts_although_compiling_failed(tmp_path: Path) -> None:
    torch._dynamo.reset()
    patched = Patched(tmp_path, "def f(x):\n    print(x)\n    return x\n\ndef g(x):\n    return x\n", "f", "g")

    def work(f: Callable[[torch.Tensor], torch.Tensor], g: object) -> None:
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda x: f(x) + 1, fullgraph=True, backend="eager")(torch.ones(3))

    records = patched.run(work)
    assert records["f"].compiled == "traced"
    assert records["g"].compiled == "unknown"


def test_where_frames_were_compiled_nothing_is_called_unreached(tmp_path: Path) -> None:
    torch._dynamo.reset()
    patched = Patched(tmp_path, BRANCH, "f")

    def work(f: object) -> None:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
        torch._dynamo.reset()

    record = patched.run(work)["f"]
    assert (record.calls, record.compiled) == (0, "unknown")
    assert patched.run(lambda f: None, "eager")["f"].compiled == "no"


def test_calls_from_frames_that_dynamo_skips_are_counted(tmp_path: Path) -> None:
    torch._dynamo.reset()
    patched = Patched(tmp_path, BRANCH, "f")

    def work(f: Callable[[int], int]) -> None:
        outside = torch._dynamo.disable(f)

        def g(x: torch.Tensor) -> torch.Tensor:
            return x.sin() + outside(1)

        assert torch.equal(torch.compile(g, backend="eager")(torch.ones(3)), torch.ones(3).sin() + 2)

    record = patched.run(work)["f"]
    assert (record.calls, record.branches_run, record.compiled) == (1, 1, "no")
