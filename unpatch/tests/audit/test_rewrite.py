"""Rewritten source does what the source does, at the same lines: order of evaluation, names, errors, nothing left behind."""

# ruff: noqa: E501  # a snippet is a line
from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unpatch.audit.rewrite import TRACER, rewrite
from unpatch.audit.trace import Tracer

PRELUDE = """
log = []
class Thing:
    def __init__(self, name): object.__setattr__(self, "name", name)
    def __setattr__(self, key, value): log.append((self.name, key, value)); object.__setattr__(self, key, value)
    def __delattr__(self, key): log.append((self.name, "del", key)); object.__delattr__(self, key)
def get(name):
    log.append(name)
    return things[name]
def value(x):
    log.append(("value", x))
    return x
things = {name: Thing(name) for name in "abc"}
table = {"k": 1, "l": 2}
items = [1, 2, 3]
"""
SNIPPETS = {
    "attribute": "get('a').x = value(1)",
    "entry": "table[value('k')] = value(2)",
    "slice": "items[0:2] = [9]",
    "chained": "get('a').x = get('b').x = table['m'] = y = value(1)",
    "unpacked": "get('a').x, y, table['z'] = value((1, 2, 3))",
    "nested": "[get('a').x, (y, *things['b'].rest)], z = [1, (2, 3, 4)], 5",
    "old owner": "i = 0\nitems[i], i = 7, 2\nnode = things['a']\nnode.next, node = 5, things['b']\nlast = node.name",
    "swap": "items[0], items[2] = items[2], items[0]",
    "annotated": "get('a').x: value(int) = value(1)\ntable['q']: int\n",
    "augmented": "things['a'].x = 1\nget('a').x += value(2)\ntable['k'] *= 3\nitems[-1] -= 1",
    "augmented in place": "things['a'].x = [1]\nsame = things['a'].x\nget('a').x += [2]",
    "deleted": "things['a'].x = 1\ny = 2\ndel get('a').x, y, table['l']",
    "loop": "for get('a').x in range(3):\n    if things['a'].x == 1: continue\nelse:\n    done = True",
    "loop over pairs": "for table['i'], get('a').x in [(1, 2), (3, 4)]: pass",
    "with": "import contextlib\nwith contextlib.nullcontext(3) as get('a').x, contextlib.nullcontext(4) as y: z = y",
    "setattr": "setattr(get('a'), 'x', value(1))\ndelattr(things['a'], 'x')\nobject.__setattr__(get('b'), 'y', 2)",
    "mutators": "table.update(a=1, **{'b': 2})\nitems.append(4)\nitems.insert(0, 5)\nlast = items.pop()\ntable.setdefault('n', 7)",
    "own setattr": "def setattr(*a): log.append(a)\nsetattr(1, 2)",
    "private": (
        "class Mine:\n    def set(me, other):\n        other.__secret = 1\n        other.__secret += 1\n        return other.__secret\n"
        "result = Mine().set(things['a'])\nkeys = sorted(vars(things['a']))"
    ),
    "class body": "class Body:\n    things['a'].x, y = 1, 2\n    for things['a'].z in [3]: pass\nkeys = sorted(k for k in vars(Body) if not k.startswith('__'))",
    "super": (
        "class Base:\n    def __setattr__(self, n, v): super().__setattr__(n, v + 1)\n"
        "b = Base()\nb.x = 1\nresult = b.x\nclass D(dict):\n    def update(self, *a): super().update(*a)\nd = D()\nd.update({1: 2})"
    ),
    "register": "def register(f, *a, key=None): log.append((key, a)); return f\n@register\ndef f(): pass\nregister(f, *[1, 2], key='k')",
    "docstring and future": '"""Doc."""\nfrom __future__ import annotations\nthings["a"].x = 1\nresult = __doc__',
    "generator": "def g(o):\n    o.x = yield 1\n    o.y = yield o.x\nit = g(things['a'])\nresult = [next(it), it.send(5)]",
    "coroutine": (
        "import asyncio\nasync def c(o):\n    o.x = await asyncio.sleep(0, 3)\nasyncio.run(c(things['a']))\nresult = things['a'].x"
    ),
    "global": "def f():\n    global y\n    y, things['a'].x = 1, 2\nf()",
    "nonlocal": "def f():\n    y = 0\n    def g():\n        nonlocal y\n        y, things['a'].x = 1, 2\n    g()\n    return y\nresult = f()",
}


def run(source: str, rewritten: bool) -> dict[str, object]:
    # A docstring and `from __future__` come first, so the prelude is run on its own.
    scope: dict[str, object] = {"__name__": "snippet", TRACER: Tracer()}
    exec(PRELUDE, scope)
    tree = rewrite(source, "<snippet>") if rewritten else None
    exec(compile(source if tree is None else tree, "<snippet>", "exec", dont_inherit=True), scope)
    return {
        name: repr(value) for name, value in scope.items() if _is_data(value) and name not in ("__builtins__", TRACER)
    } | {
        "names": sorted(scope),
        "state": {name: vars(thing) for name, thing in scope["things"].items()},  # type: ignore[attr-defined]
    }


def _is_data(value: object) -> bool:
    return type(value) in (int, str, list, dict, tuple, bool) and " at 0x" not in repr(value)


@pytest.mark.parametrize("source", SNIPPETS.values(), ids=SNIPPETS.keys())
def test_the_same_happens(source):
    assert run(source, rewritten=True) == run(source, rewritten=False)


@pytest.mark.parametrize("source", [text for name, text in SNIPPETS.items() if name not in ("slice",)])
def test_the_snippets_are_rewritten(source):
    assert rewrite(source, "<snippet>") is not None


@pytest.mark.parametrize(
    "source", ["self.x = 1", "x = 1", "x[1:2] = y", "def f(self):\n    self.x = self.y = 2", "del x", "f(1)"]
)
def test_what_writes_to_nobody_else_is_left_alone(source):
    assert rewrite(source, "<snippet>") is None


def test_errors_are_in_the_same_lines():
    source = "\n\nthings['a'].x = (\n    1 /\n    0)\n"
    lines = []
    for rewritten in (True, False):
        with pytest.raises(ZeroDivisionError) as caught:
            run(source, rewritten)
        lines.append(traceback.extract_tb(caught.value.__traceback__)[-1].lineno)
    assert lines[0] == lines[1]


_targets = st.sampled_from(
    ["things['a'].x", "things['b'].y", "table['k']", "items[0]", "n", "node", "node.next", "table[n]"]
)


@given(st.lists(st.lists(_targets, min_size=2, max_size=4).map(", ".join), min_size=1, max_size=3))
def test_any_unpacking_stores_in_pythons_order(targets):
    length = min(text.count(",") for text in targets) + 1
    texts = [", ".join(text.split(", ")[:length]) for text in targets]
    source = f"n, node = 'k', things['c']\n{' = '.join(texts)} = {[*('k', 'l', 'm', 'o')[:length]]!r}\n"
    outcomes = []
    for rewritten in (True, False):
        try:
            outcomes.append(run(source, rewritten))
        except AttributeError as error:  # of what has become a string
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
