"""Which statements count as a patch's own branches: one shape of code per row."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpatch.observe.branches import conditional_statements, functions_by_position

# In each shape, the lines with `#!` at their end are the conditional ones.
SHAPES = {
    "straight line": """
        def f(x):
            y = x + 1
            return y
        """,
    "if": """
        def f(x):
            if x:
                act()  #!
            return x
        """,
    "if, elif, else": """
        def f(x):
            if x == 1:
                a()  #!
            elif x == 2:  #!
                b()  #!
            else:
                c()  #!
        """,
    "after a guard that returns": """
        def f(x):
            if x is None:
                return 0  #!
            return x.to(1)  #!
        """,
    "after a guard that raises": """
        def f(x):
            if x is None:
                raise ValueError("x")  #!
            return x.to(1)
        """,
    "an else whose other arm raises": """
        def f(x):
            if x is None:
                raise ValueError("x")  #!
            else:
                y = x + 1
            return y
        """,
    "only raises": """
        def f(*args):
            raise RuntimeError("not supported")
        """,
    "raises in both arms": """
        def f(x):
            if x:
                raise RuntimeError("a")  #!
            raise RuntimeError("b")  #!
        """,
    "for loop and its else": """
        def f(xs):
            for x in xs:
                act(x)  #!
            else:
                done()
            return xs
        """,
    "while loop": """
        def f(x):
            while x:
                x = act(x)  #!
            return x
        """,
    "endless loop with a way out": """
        def f(x):
            while True:
                x = act(x)
                if x == 1:
                    break  #!
                if x == 2:  #!
                    break  #!
            return x
        """,
    "endless loop without a way out": """
        def f(x):
            while True:
                yield x  #!
                if x:  #!
                    act()  #!
        """,
    "else of a loop left by break": """
        def f(xs):
            for x in xs:
                if x:  #!
                    break  #!
            else:
                return None  #!
            return x  #!
        """,
    "continue": """
        def f(xs):
            for x in xs:
                if not x:  #!
                    continue
                act(x)  #!
        """,
    "except, else and finally": """
        def f(x):
            try:
                y = act(x)
            except ValueError:
                y = 0  #!
            else:
                y = 1
            finally:
                close()
            return y
        """,
    "raise caught in the same function": """
        def f(x):
            try:
                if x:
                    raise ValueError("x")  #!
                y = act(x)  #!
            except ValueError:
                y = 0  #!
            return y
        """,
    "return inside try with finally": """
        def f(x):
            try:
                if x:
                    return 1  #!
                act(x)  #!
            finally:
                close()
            return 0  #!
        """,
    "bare raise": """
        def f(x):
            try:
                return act(x)
            except ValueError:
                note()  #!
                raise
        """,
    "with": """
        def f(x):
            with lock:
                act(x)
            return x
        """,
    "match with a wildcard": """
        def f(x):
            match x:
                case 1:
                    a()  #!
                case _:
                    b()  #!
            return x
        """,
    "match whose cases all raise but one": """
        def f(x):
            match x:
                case 1:
                    raise ValueError("x")  #!
                case other:
                    b(other)
            return x
        """,
    "nested functions are functions of their own": """
        def f(x):
            if x:
                def g():  #!
                    if x:
                        act()
            return x
        """,
    "conditional expressions are no branches": """
        def f(x):
            y = a() if x else b()
            return y and x
        """,
    "pass, docstrings and declarations": """
        def f(x):
            if x:
                pass
            elif x is None:  #!
                global y
                "text"
                ...
            return x
        """,
    "hands on to the original": """
        def f(self, *args, **kwargs):
            if not args:
                return original(f)(self, *args, **kwargs)
            if kwargs:  #!
                return self.f_raw(*args, **kwargs)
            if self:  #!
                _original_forward(self)
            if len(args):  #!
                return await_it  #!
            return act(self)  #!
        """,
    "calls the original with something else": """
        def f(self, dtype=None):
            if dtype is None:
                return self.f_raw(torch.float32)  #!
            if self:  #!
                return original(f)(self, dtype, True)  #!
            return original(f)(self.to(1), dtype)  #!
        """,
    "awaits the original": """
        async def f(x):
            if x:
                return await original(f)(x)
            async with lock:  #!
                act()  #!
        """,
    "code after a return never runs": """
        def f(x):
            return x
            act()
        """,
    "several lines to a statement": """
        def f(x):
            if (x and
                    x > 1):
                act(  #!
                    x,
                )
            return x
        """,
    "decorated definition under a condition": """
        def f(x):
            if x:
                @decorate  #!
                def g():
                    pass
            return x
        """,
}


def the_function(source: str) -> ast.FunctionDef:
    (function, *_) = functions_by_position(source).values()
    return function


@pytest.mark.parametrize("shape", SHAPES)
def test_conditional_lines(shape: str) -> None:
    source = dedent(SHAPES[shape]).strip()
    expected = [number for number, line in enumerate(source.splitlines(), 1) if line.endswith("#!")]
    found = conditional_statements(the_function(source))
    assert sorted(span.start[0] for span in found.spans) == expected


def test_a_bare_return_acts_in_a_replacement_and_not_in_a_helper() -> None:
    function = the_function("def f(x):\n    if x:\n        return\n    act()\n")
    assert [span.start[0] for span in conditional_statements(function, is_replacement=True).spans] == [3, 4]
    assert [span.start[0] for span in conditional_statements(function, is_replacement=False).spans] == [4]


@pytest.mark.parametrize(
    ("source", "crowded"),
    [
        ("def f(x):\n    if x: return 1\n    return 2\n", True),
        ("def f(x):\n    if x:\n        a(); b()\n", True),
        ("def f(x):\n    a(); b()\n    if x:\n        c()\n", False),
        ("def f(x):\n    if x:\n        return 1\n    return 2\n", False),
    ],
)
def test_lines_that_hold_two_statements_are_noticed(source: str, crowded: bool) -> None:
    assert conditional_statements(the_function(source)).crowded is crowded


def test_a_function_is_found_by_what_its_code_object_knows() -> None:
    source = "import functools\n\n@functools.lru_cache\n@functools.wraps(len)\ndef f():\n    pass\n"
    code = next(c for c in compile(source, "x", "exec").co_consts if hasattr(c, "co_code"))
    assert functions_by_position(source)[code.co_name, code.co_firstlineno].name == "f"


@st.composite
def blocks(draw: st.DrawFn, depth: int = 2) -> str:
    """A statement of a small language in which every run can be tried out: conditions come from a list."""
    simple = ["note(@)", "note(@)", "return", "raise Stop"]
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["simple", "if", "ifelse", "while", "try"] if depth else ["simple"]))
        body = [f"    {line}" for line in draw(blocks(depth - 1)).splitlines()] if kind != "simple" else []
        if kind == "simple":
            lines.append(draw(st.sampled_from(simple)))
        elif kind == "if":
            lines += ["if next(choices):", *body]
        elif kind == "ifelse":
            other = [f"    {line}" for line in draw(blocks(depth - 1)).splitlines()]
            lines += ["if next(choices):", *body, "else:", *other]
        elif kind == "while":
            lines += ["while next(choices):", *body]
        else:
            lines += ["try:", *body, "finally:", "    note(@)"]
    return "\n".join(lines)


@given(blocks(), st.lists(st.booleans(), min_size=0, max_size=12))
def test_what_is_not_conditional_runs_on_every_normal_path(block: str, choices: list[bool]) -> None:
    body = [f"    {line}" for line in block.splitlines()]
    body = [line.replace("@", str(number)) for number, line in enumerate(body, 2)]
    source = "\n".join(["def f(note, choices, Stop):", *body])
    conditional = {span.start[0] for span in conditional_statements(the_function(source)).spans}
    namespace: dict[str, object] = {}
    exec(compile(source, "generated", "exec"), namespace)
    ran: set[int] = set()

    def endless() -> object:
        yield from choices
        while True:
            yield False

    try:
        namespace["f"](ran.add, endless(), KeyError)  # type: ignore[operator]
    except KeyError:
        return
    reachable = {n for n, line in enumerate(source.splitlines(), 1) if "note(" in line and n not in conditional}
    # Code that no run can reach (after a return) is in neither set; what remains must have run.
    dead = {n for n in reachable if not _can_run(source, n)}
    assert reachable - dead <= ran


def _can_run(source: str, line: int) -> bool:
    """Whether the compiler kept `line`, which it does unless it follows a return or raise."""
    code = next(c for c in compile(source, "generated", "exec").co_consts if hasattr(c, "co_code"))
    return line in {number for _, _, number in code.co_lines()}
