"""The synthetic catalogue: every kind of write that an audit must find, with the class that it must get.

Each entry is a statement (or several) of the package `patcher`, and the target that it changes. `target` is the package that is
written to; `helper` is a dependency of `patcher`. Read by the tests and by benchmarks/audit.py.
"""

# ruff: noqa: E501  # a row is a line
from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

from unpatch.audit.records import SHOWN, AuditResult, Class, Finding, Kind


class Case(NamedTuple):
    """A kind of write."""

    name: str
    code: str
    target: str
    classed: Class
    kind: Kind
    traced: bool = True  #: its line is known


TARGET = '''
"""What is patched."""
import functools

NAMES = {"old": 1, "gone": 2}
ORDER = [print]
MEMBERS = {len}
HOOKS = {}
state = 0
handler = None
_cache = {}

def plain(x): return x
def own(x): return x
def aliased(x): return x
def coded(x): return x
def defaulted(x, y=1): return x, y
def keyword(x, *, y=1): return x, y
def deleted(x): return x
def looped(x): return x
def managed(x): return x
def unpacked(x): return x
def chained(x): return x
def chained_too(x): return x
def executed(x): return x
def mocked(x): return x
def by_dict(x): return x
def by_update(x): return x
def by_setattr(x): return x
def by_object_setattr(x): return x
def annotated(x): return x
def restored(x): return x
def in_function(x): return x
def wrapped(x): return x
def by_helper(x): return x
def marked(x): return x

def outer():
    inner = plain
    def closing(x): return inner(x)
    return closing
closing = outer()

@functools.singledispatch
def dispatched(x): return "any"

def register(key):
    def add(function):
        HOOKS[key] = function
        return function
    return add

def set_handler(function):
    global handler
    handler = function

def remember(key):
    _cache[key] = object()

def patch_yourself():
    global plain_too
    plain_too = own

class Meta(type):
    pass

class Base:
    def inherited(self): return 1

class Other:
    def inherited(self): return 2

class Thing(Base):
    attribute = 1
    TABLE = {}
    def method(self): return 1
    def replaced(self): return 1
    @classmethod
    def class_method(cls): return 1
    @staticmethod
    def static_method(): return 1
    @property
    def value(self): return 1
    def __len__(self): return 1

class Operator:
    def __init__(self): self.implementation = plain
    def __call__(self, x): return self.implementation(x)

operator = Operator()
plain_too = None
'''
EXTRA = "def extra(x): return x\n"
HELPER = "import target\ntarget.by_helper = lambda x: x\n"
NEEDED = """
import builtins, copyreg, functools, signal, sys, threading, types, unittest.mock
import helper, target, target.extra
from target import HOOKS, Thing, register
def new(x): return "new", x
class New: pass
"""

CASES: tuple[Case, ...] = (
    Case("module attribute", "target.plain = lambda x: x", "target.plain", "patch", "replace"),
    Case("submodule attribute", "target.extra.extra = new", "target.extra.extra", "patch", "replace"),
    Case("setattr", "setattr(target, 'by_setattr', new)", "target.by_setattr", "patch", "replace"),
    Case("object.__setattr__", "types.ModuleType.__setattr__(target, 'by_object_setattr', lambda x: 1)",
         "target.by_object_setattr", "patch", "replace"),
    Case("annotated assignment", "target.annotated: object = lambda x: 2", "target.annotated", "patch", "replace"),
    Case("chained assignment", "target.chained = target.other_name = lambda x: 3", "target.chained", "patch", "replace"),
    Case("unpacked assignment", "_ignored, target.unpacked = 0, lambda x: 4", "target.unpacked", "patch", "replace"),
    Case("loop variable", "for target.looped in [lambda x: 5]: pass", "target.looped", "patch", "replace"),
    Case("with … as", "import contextlib\nwith contextlib.nullcontext(lambda x: 6) as target.managed: pass",
         "target.managed", "patch", "replace"),
    Case("augmented assignment", "target.state += 1", "target.state", "patch", "replace"),
    Case("inside a function", "def apply():\n    target.in_function = new_function\ndef new_function(x): pass\napply()",
         "target.in_function", "patch", "replace"),
    Case("added name", "target.added = lambda x: 7", "target.added", "addition", "add"),
    Case("deleted name", "del target.deleted", "target.deleted", "patch", "delete"),
    Case("entry of __dict__", "target.__dict__['by_dict'] = lambda x: 8", "target.by_dict", "patch", "replace"),
    Case("vars().update", "vars(target).update(by_update=lambda x: 9)", "target.by_update", "patch", "replace"),
    Case("method", "Thing.method = lambda self: 2", "target.Thing.method", "patch", "replace"),
    Case("inherited method", "Thing.inherited = lambda self: 3", "target.Thing.inherited", "patch", "replace"),
    Case("class method", "Thing.class_method = classmethod(lambda cls: 2)", "target.Thing.class_method", "patch", "replace"),
    Case("static method", "Thing.static_method = staticmethod(lambda: 2)", "target.Thing.static_method", "patch", "replace"),
    Case("property", "Thing.value = property(lambda self: 2)", "target.Thing.value", "patch", "replace"),
    Case("special method", "Thing.__len__ = lambda self: 2", "target.Thing.__len__", "patch", "replace"),
    Case("added special method", "type.__setattr__(Thing, '__call__', lambda self: 2)", "target.Thing.__call__", "addition", "add"),
    Case("class constant", "Thing.attribute = 2", "target.Thing.attribute", "patch", "replace"),
    Case("bases", "Thing.__bases__ = (target.Other,)", "target.Thing.__bases__", "patch", "bases"),
    Case("code", "target.coded.__code__ = (lambda x: 10).__code__", "target.coded.__code__", "patch", "code"),
    Case("defaults", "target.defaulted.__defaults__ = (2,)", "target.defaulted.__defaults__", "patch", "code"),
    Case("keyword defaults", "target.keyword.__kwdefaults__ = {'y': 2}", "target.keyword.__kwdefaults__", "patch", "code"),
    Case("cell of a closure", "target.closing.__closure__[0].cell_contents = new", "target.outer.<locals>.closing.closure inner",
         "patch", "code", traced=False),
    Case("attribute of a function", "target.marked.mark = True", "target.marked.mark", "addition", "add"),
    Case("attribute of an operator object", "target.operator.implementation = new", "target.operator.implementation",
         "patch", "replace"),
    Case("entry of a dict", "target.NAMES['new'] = new", "target.NAMES['new']", "registration", "entry"),
    Case("replaced entry", "target.NAMES['old'] = new", "target.NAMES['old']", "registration", "entry"),
    Case("removed entry", "del target.NAMES['gone']", "target.NAMES['gone']", "registration", "entry"),
    Case("dict.update", "Thing.TABLE.update({int: new})", "target.Thing.TABLE[int]", "registration", "entry"),
    Case("list.append", "target.ORDER.append(new)", "target.ORDER[…]", "registration", "entry"),
    Case("set.add", "target.MEMBERS.add(new)", "target.MEMBERS[…]", "registration", "entry"),
    Case("registering decorator", "@register(New)\ndef hook(): pass", "target.HOOKS[patcher.New]", "registration", "entry"),
    Case("singledispatch", "target.dispatched.register(New, new)",
         "target.dispatched.<registry>[patcher.New]", "registration", "entry"),
    Case("copyreg", "copyreg.pickle(New, new)", "copyreg.dispatch_table[patcher.New]", "registration", "entry"),
    Case("setter of the target", "target.set_handler(new)", "target.handler", "registration", "replace", traced=False),
    Case("exec", "exec('target.executed = lambda x: 11')", "target.executed", "patch", "replace", traced=False),
    Case("unittest.mock", "unittest.mock.patch('target.mocked', new).start()", "target.mocked", "patch", "replace", traced=False),
    Case("sys.modules, added", "sys.modules['target.fake'] = types.ModuleType('target.fake')", "sys.modules['target.fake']",
         "addition", "entry"),
    Case("sys.meta_path", "class Finder:\n    def find_spec(self, *a): return None\nsys.meta_path.append(Finder())",
         "sys.meta_path[…]", "registration", "entry"),
    Case("excepthook", "sys.excepthook = lambda *a: None", "sys.excepthook", "patch", "replace"),
    Case("profile function", "sys.setprofile(lambda *a: None)", "sys.getprofile()", "patch", "state"),
    Case("signal handler", "signal.signal(signal.SIGUSR2, lambda *a: None)", "signal.getsignal(SIGUSR2)", "patch", "state"),
    Case("builtins", "builtins.everywhere = new", "builtins.everywhere", "addition", "add"),
    Case("module class", "class Sub(types.ModuleType): pass\ntarget.extra.__class__ = Sub", "target.extra.__class__", "patch",
         "replace"),
    Case("by a dependency", "", "target.by_helper", "dependency", "replace"),
    Case("taken back", "_was = target.restored\ntarget.restored = new\ntarget.restored = _was", "target.restored", "noise", "replace"),
    Case("cache of the target", "target.remember('key')", "target._cache['key']", "noise", "entry", traced=False),
    Case("the target itself", "target.patch_yourself()", "target.plain_too", "self-patch", "replace", traced=False),
)  # fmt: skip


def sources() -> dict[str, str]:
    """The packages: name (`package__module`) -> source. Every case stands behind a comment with its name."""
    body = "".join(f"\n# {case.name}\n{case.code}\n" for case in CASES)
    return {"target": TARGET, "target__extra": EXTRA, "helper": HELPER, "patcher": NEEDED + body}


def write(folder: Path) -> None:
    """Write the packages into a folder that they can be imported from."""
    for name, source in sources().items():
        package, _, module = name.partition("__")
        (folder / package).mkdir(exist_ok=True)
        (folder / package / f"{module or '__init__'}.py").write_text(textwrap.dedent(source))


def found(case: Case, result: AuditResult) -> list[Finding]:
    """The findings of a case; there should be one."""
    return [one for one in result.findings if case.target in (one.target, *one.aliases)]


def is_right(case: Case, finding: Finding) -> bool:
    """Whether class and kind are right, and whether its line is known where it should be."""
    return (finding.classed, finding.kind, finding.site is not None) == (case.classed, case.kind, case.traced)


def surplus(result: AuditResult) -> list[Finding]:
    """What is listed by default and is no case."""
    # A chained assignment writes a second name, which is no alias: nothing was there.
    expected = {case.target for case in CASES} | {"target.other_name"}
    return [one for one in result.of(*SHOWN) if not expected.issuperset((one.target, *one.aliases))]
