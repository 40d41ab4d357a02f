"""The law of the stack, for any sequence of operations on any patches that share targets.

At every moment the visible value is that of the topmost applied patch, or of whoever has written upon it; when all is
reverted and taken back everything is as it was.
A list per attribute is model enough.
"""

from __future__ import annotations

import sys
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from unpatch.patches import ForeignWriteError, PatchError, PatchManager, original

NAME = "toy_of_the_laws"
#: Own and inherited attributes, descriptors, entries of a mapping, and names that nobody has.
TARGETS = (
    "f",
    "missing",
    "Thing.method",
    "Thing.static",
    "Thing.size",
    "Thing.inherited",
    "Base.inherited",
    "Thing.new",
    "TABLE['entry']",
    "TABLE['no entry']",
)
#: Where somebody else writes too; not what is inherited, of which nobody tells us.
FOREIGN_TARGETS = ("f", "Thing.method", "TABLE['entry']")
FOREIGN = -1  #: in the place of a patch's number
# Those where somebody else writes too come up more often, so that they meet.
WRITES = st.tuples(
    st.sampled_from(TARGETS + FOREIGN_TARGETS * 3), st.sampled_from(["replace", "replace", "replace", "add", "delete"])
)
PATCHES = st.lists(st.lists(WRITES, min_size=1, max_size=4), min_size=2, max_size=6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["apply", "apply", "apply", "revert", "revert", "disable", "apply_all", "disable group", "foreign"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


class World:
    """A fresh library, and what we expect of it: for each target the applied (patch, value) pairs, lowest first."""

    def __init__(self) -> None:
        class Base:
            def inherited(self): ...

        class Thing(Base):
            def method(self): ...

            @staticmethod
            def static(): ...

            @property
            def size(self): ...

        self.module = ModuleType(NAME)
        self.module.f = lambda: None
        self.module.Base, self.module.Thing = Base, Thing
        self.module.TABLE = {"entry": lambda: None}
        sys.modules[NAME] = self.module
        self.spaces = {"": self.module, "Base": Base, "Thing": Thing, "TABLE": self.module.TABLE}
        self.before = {name: dict(_contents(space)) for name, space in self.spaces.items()}
        self.layers: dict[str, list[tuple[int, object]]] = {target: [] for target in TARGETS}

    def base(self, target: str) -> object:
        space, name = _split(target)
        return self.before[space].get(name, ABSENT)

    def expected(self, target: str) -> object:
        return self.layers[target][-1][1] if self.layers[target] else self.base(target)

    def visible(self, target: str) -> bool:
        inherits = target == "Thing.inherited" and self.expected("Base.inherited") is not ABSENT
        return inherits or self.expected(target) is not ABSENT

    def fits(self, target: str, kind: str) -> bool:
        if kind == "delete":
            return self.expected(target) is not ABSENT
        return self.visible(target) == (kind == "replace")

    def apply(self, number: int, writes) -> bool:
        """Whether the patch can be applied; if not, nothing is."""
        done = []
        for target, kind, value in writes:
            if not self.fits(target, kind):
                for target in reversed(done):
                    self.layers[target].pop()
                return False
            self.layers[target].append((number, value))
            done.append(target)
        return True

    def blocked(self, number: int) -> bool:
        """Whether somebody else has written upon a write of that patch."""
        for layers in self.layers.values():
            owners = [owner for owner, _ in layers]
            if number in owners and FOREIGN in owners[owners.index(number) :]:
                return True
        return False

    def write_as_somebody_else(self, target: str) -> None:
        """Write upon what is ours, or take that back if it is on top."""
        layers = self.layers[target]
        if layers and layers[-1][0] == FOREIGN:
            layers.pop()
        else:
            layers.append((FOREIGN, lambda *args: None))
        space, name = _split(target)
        value = self.expected(target)
        if isinstance(self.spaces[space], dict):
            self.module.TABLE.pop(name) if value is ABSENT else self.module.TABLE.__setitem__(name, value)
        else:
            delattr(self.spaces[space], name) if value is ABSENT else setattr(self.spaces[space], name, value)

    def revert(self, number: int) -> None:
        for target in TARGETS:
            self.layers[target] = [layer for layer in self.layers[target] if layer[0] != number]

    def check(self) -> None:
        for target in TARGETS:
            space, name = _split(target)
            assert _contents(self.spaces[space]).get(name, ABSENT) is self.expected(target), target
            self._check_originals(target)

    def _check_originals(self, target: str) -> None:
        beneath = self.base(target)
        for owner, value in self.layers[target]:
            if owner == FOREIGN:
                pass
            elif value is not ABSENT and beneath is not ABSENT:
                assert original(value) is getattr(beneath, "__func__", beneath)
            elif value is not ABSENT and target == "Thing.inherited" and self.expected("Base.inherited") is not ABSENT:
                assert original(value) is self.expected("Base.inherited")
            beneath = value

    def check_restored(self) -> None:
        for name, space in self.spaces.items():
            after = dict(_contents(space))
            assert after.keys() == self.before[name].keys()
            assert all(after[key] is value for key, value in self.before[name].items())


ABSENT = object()


def _split(target: str) -> tuple[str, str]:
    if target.endswith("']"):
        return tuple(target.removesuffix("']").split("['"))
    space, _, name = target.rpartition(".")
    return space, name


def _contents(space: object) -> dict[str, object]:
    return space if isinstance(space, dict) else vars(space)


def _declare(managers, patches):
    """Declare each patch with the manager whose turn it is; returns the writes with the values that they will show."""
    declared = []
    for number, writes in enumerate(patches):
        patch = managers[number % 2].declare(id=f"p{number}", group=_group(number), reason="r")
        done = []
        for target, kind in writes:
            value = ABSENT if kind == "delete" else (lambda *args: None)
            if kind == "delete":
                patch.delete(f"{NAME}.{target}")
            else:
                getattr(patch, kind)(f"{NAME}:{target}", value)
            done.append((target, kind, value))
        declared.append(done)
    return declared


def _group(number):
    return f"g{number // 4}"


@settings(max_examples=300, deadline=None)
@given(PATCHES, STEPS)
def test_the_topmost_write_shows_and_reverting_restores(patches, steps):
    world = World()
    managers = (PatchManager("even"), PatchManager("odd"))
    declared = _declare(managers, patches)
    applied, disabled = set(), set()

    def expect_apply(number, call):
        """Apply one patch in the model, then really, and compare whether it succeeded."""
        due = number not in applied | disabled
        possible = due and world.apply(number, declared[number])
        try:
            result = call()
        except PatchError:
            assert due
            assert not possible
        else:
            assert result is possible
        if possible:
            applied.add(number)

    for action, choice in steps:
        number = choice % len(patches)
        manager, id = managers[number % 2], f"p{number}"
        if action == "apply":
            expect_apply(number, lambda manager=manager, id=id: manager.apply(id))
        elif action == "disable":
            manager.disable(id)
            disabled.add(number)
        elif action == "disable group":
            manager.disable(_group(number))
            disabled |= {n for n in range(number % 2, len(patches), 2) if _group(n) == _group(number)}
        elif action == "foreign":
            if written := [target for target in FOREIGN_TARGETS if world.layers[target]]:
                world.write_as_somebody_else(written[choice % len(written)])
        elif action == "revert" and number in applied:
            _revert(world, manager, number, applied)
        elif action == "apply_all":
            _apply_all(world, manager, range(number % 2, len(patches), 2), declared, applied, disabled)
        world.check()
        assert {int(patch.id[1:]) for manager in managers for patch in manager.applied} == applied
    while applied:
        for number in tuple(applied):
            _revert(world, managers[number % 2], number, applied)
        for target in FOREIGN_TARGETS:
            if world.layers[target] and world.layers[target][-1][0] == FOREIGN:
                world.write_as_somebody_else(target)
    world.check_restored()


def _revert(world, manager, number, applied):
    """A revert is refused, and changes nothing, exactly while somebody else's value lies upon the patch."""
    try:
        manager.revert(f"p{number}")
    except ForeignWriteError:
        assert world.blocked(number)
    else:
        assert not world.blocked(number)
        world.revert(number)
        applied.discard(number)
    world.check()


def _apply_all(world, manager, numbers, declared, applied, disabled):
    """`apply_all` applies in order and stops at the first patch that cannot be applied."""
    stops = False
    for number in numbers:
        if number in applied | disabled:
            continue
        if not world.apply(number, declared[number]):
            stops = True
            break
        applied.add(number)
    try:
        manager.apply_all()
    except PatchError:
        assert stops
    else:
        assert not stops
