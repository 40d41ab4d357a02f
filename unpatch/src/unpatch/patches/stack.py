"""The writes that lie on each attribute, one upon the other, and what lies beneath each of them.

There is one stack per attribute for the whole process, because two managers may write the same one. A write can be
taken out from any height: the visible value is always that of the topmost, and the last to go uncovers the very object
that was there first, or nothing if the attribute was inherited or did not exist.

Known limit: after `Tensor.__getitem__ = f` the C slot of the type does not come back when the attribute is restored.
Whether a dunder of a C type may be reverted in place is decided in issue 4; here it is written back like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import RLock
from types import ModuleType
from typing import Any, Final

from unpatch.patches.errors import (
    ForeignWriteError,
    NoOriginalError,
    NotAppliedError,
    TargetExistsError,
    TargetNotFoundError,
    WriteRefusedError,
)
from unpatch.patches.targets import Location

#: In the place of a value: the parent's own `__dict__` has no such attribute.
ABSENT: Final[Any] = type("Absent", (), {"__repr__": lambda self: "<absent>"})()

#: Where a write would take effect, but not where it is seen and undone.
_COMPUTED = frozenset({"__class__", "__dict__"})
_COMPUTED_OF_CLASSES = frozenset({"__name__", "__qualname__", "__bases__", "__mro__"})

_lock = RLock()
_stacks: dict[str, list[_Stack]] = {}  # by attribute name: related classes are refreshed together
_layers_of: dict[object, list[Layer]] = {}  # by replacement
_originals: dict[object, object] = {}  # by replacement, where exactly one object lies beneath


class Layer:
    """One write that is in force: by whom, what was written (or ABSENT), and the replacement as it was declared."""

    __slots__ = ("owner", "replacement", "stack", "value")

    def __init__(self, stack: _Stack, owner: str, value: object, replacement: object) -> None:
        self.stack = stack
        self.owner = owner  # empty: a foreign value that a layer of ours was put upon
        self.value = value
        self.replacement = replacement


class _Stack:
    """The layers of one attribute, the lowest first."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.base = _own(location)
        #: What plain access gave where neither the parent nor a base has it: a module's `__getattr__`, a metaclass.
        self.computed: object = ABSENT
        self.layers: list[Layer] = []

    @property
    def top(self) -> object:
        return self.layers[-1].value if self.layers else self.base

    def beneath(self, height: int) -> object:
        """What plain access on the parent gives if only the layers below `height` are there."""
        value = self.layers[height - 1].value if height else self.base
        if value is ABSENT:
            value = _inherited(self.location)
        if value is ABSENT:
            return self.computed
        if isinstance(self.location.parent, type) and isinstance(value, staticmethod | classmethod):
            return value.__func__
        return value


def push(location: Location, kind: str, owner: str, value: object, replacement: object) -> Layer:
    """Write `value` (ABSENT: delete) upon whatever is there, and return the handle that takes it away again.

    `kind` is that of a `Write`; `original(replacement)` is answered from then on. Raises, with nothing changed,
    TargetNotFoundError where there is nothing to replace or delete, TargetExistsError where adding would replace,
    WriteRefusedError.
    """
    with _lock:
        _require(location, kind)
        stack = _stack_at(location)
        current = _own(location)
        grown = len(stack.layers)
        if current is not stack.top:
            stack.layers.append(Layer(stack, "", current, ABSENT))
        layer = Layer(stack, owner, value, replacement)
        stack.layers.append(layer)
        for key in _keys(layer):
            _layers_of.setdefault(key, []).append(layer)
        # Before the write, because from then on any thread may call the replacement, which asks for its original.
        _refresh(location.name)
        try:
            _write(location, value)
        except BaseException:
            del stack.layers[grown:]
            _forget(layer)
            raise
        # And after it, for the overrides in derived classes, whose original this is now.
        _refresh(location.name)
        return layer


def remove(layers: Sequence[Layer]) -> None:
    """Take layers away, all or none; those of others upon or beneath them stay in force.

    Raises, with nothing changed, ForeignWriteError when a value that is not ours lies upon one of them,
    WriteRefusedError.
    """
    with _lock:
        for layer in layers:
            _refuse_foreign(layer)
        taken: list[tuple[Layer, int]] = []
        try:
            for layer in reversed(layers):
                taken.append((layer, layer.stack.layers.index(layer)))
                layer.stack.layers.remove(layer)
                _write(layer.stack.location, layer.stack.top)
        except BaseException:
            for layer, height in reversed(taken):
                layer.stack.layers.insert(height, layer)
                _write(layer.stack.location, layer.stack.top)
            raise
        for layer in layers:
            _forget(layer)


def original(replacement: object) -> Any:
    """What `replacement` replaced: the object that plain access gave before, callable the way the target is called.

    A static or class method comes as its bare function, a property as the property. Costs a dictionary look-up. Raises
    NotAppliedError while the replacement is not applied, NoOriginalError when it was added or has several targets.
    """
    try:
        return _originals[replacement]
    except (KeyError, TypeError):
        raise _no_original(replacement) from None


def who(value: object) -> str:
    """Name a value for an error message: `module.qualname` for functions and classes, else its type."""
    if value is ABSENT:
        return "nothing (it was deleted)"
    value = getattr(value, "__func__", value) if isinstance(value, staticmethod | classmethod) else value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return (
        f"{module}.{name}"
        if module and name
        else f"an object of type {type(value).__module__}.{type(value).__qualname__}"
    )


def _require(location: Location, kind: str) -> None:
    parent, name = _name_of(location.parent), location.name
    if kind == "add":
        if _visible(location):
            raise TargetExistsError(f"cannot add {name!r}: {parent} has it already; replace it instead")
    elif not _visible(location):
        raise TargetNotFoundError(f"cannot {kind} {name!r}: {parent} has no such attribute")
    elif kind == "delete" and _own(location) is ABSENT:
        raise TargetNotFoundError(f"cannot delete {name!r}: {parent} only inherits it; name the class that defines it")


def _refuse_foreign(layer: Layer) -> None:
    stack = layer.stack
    current = _own(stack.location)
    above = stack.layers[stack.layers.index(layer) + 1 :]
    foreign = [current] if current is not stack.top else [other.value for other in above if not other.owner]
    if foreign:
        raise ForeignWriteError(
            f"{layer.owner!r} cannot be reverted: {_path(stack.location)} has since been "
            f"written by somebody else and is, or rests on, {who(foreign[-1])}; undo that first"
        )


def _stack_at(location: Location) -> _Stack:
    stacks = _stacks.setdefault(location.name, [])
    for stack in stacks:
        if stack.location.parent is location.parent:
            return stack
    stack = _Stack(location)
    if stack.base is ABSENT and _inherited(location) is ABSENT:
        stack.computed = getattr(location.parent, location.name, ABSENT)
    stacks.append(stack)
    return stack


def _own(location: Location) -> object:
    return location.parent.__dict__.get(location.name, ABSENT)


def _inherited(location: Location) -> object:
    if isinstance(location.parent, type):
        for base in location.parent.__mro__[1:]:
            if location.name in base.__dict__:
                return base.__dict__[location.name]
    return ABSENT


def _visible(location: Location) -> bool:
    return (
        _own(location) is not ABSENT
        or _inherited(location) is not ABSENT
        or getattr(location.parent, location.name, ABSENT) is not ABSENT
    )


def _write(location: Location, value: object) -> None:
    if _own(location) is value:
        return
    _refuse_descriptor(location)
    try:
        if value is ABSENT:
            delattr(location.parent, location.name)
        else:
            setattr(location.parent, location.name, value)
    except Exception as error:
        raise WriteRefusedError(f"{_path(location)} cannot be written: {error}") from error
    if _own(location) is not value:
        raise WriteRefusedError(f"{_path(location)} cannot be written: {who(type(location.parent))} intercepts it")


def _refuse_descriptor(location: Location) -> None:
    """A property of a module's type or of a metaclass would take the value itself and act on it: do not even try."""
    parent, name = location
    if name in _COMPUTED or (isinstance(parent, type) and name in _COMPUTED_OF_CLASSES):
        raise WriteRefusedError(f"{_path(location)} cannot be written: the interpreter keeps it outside of `__dict__`")
    for kind in type.mro(type(location.parent)):
        if kind not in (type, ModuleType, object) and hasattr(kind.__dict__.get(location.name), "__set__"):
            raise WriteRefusedError(f"{_path(location)} cannot be written: it is computed by a property of {who(kind)}")


def _name_of(parent: object) -> str:
    return who(parent) if isinstance(parent, type) else str(getattr(parent, "__name__", parent))


def _path(location: Location) -> str:
    return f"{_name_of(location.parent)}.{location.name}"


def _keys(layer: Layer) -> Iterator[object]:
    """What `original` may be asked for: the replacement, and the function inside a static or class method."""
    candidates = [layer.replacement]
    if isinstance(layer.replacement, staticmethod | classmethod):
        candidates.append(layer.replacement.__func__)
    for candidate in candidates:
        if candidate is not ABSENT and _hashable(candidate):
            yield candidate


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _refresh(name: str) -> None:
    """Answer `original` anew for every layer on an attribute of that name.

    All of them, because an override's original is the method of a base class, which may itself have just been written.
    """
    for stack in _stacks.get(name, ()):
        for height, layer in enumerate(stack.layers):
            beneath = stack.beneath(height)
            for key in _keys(layer):
                if len(_layers_of[key]) == 1 and beneath is not ABSENT:
                    _originals[key] = beneath
                else:
                    _originals.pop(key, None)


def _forget(layer: Layer) -> None:
    """Drop what is known of a layer that has left its stack."""
    stack = layer.stack
    name = stack.location.name
    changed = {name}
    for key in _keys(layer):
        _originals.pop(key, None)
        others = _layers_of[key]
        others.remove(layer)
        changed.update(other.stack.location.name for other in others)
        if not others:
            del _layers_of[key]
    # A foreign value at the top is no layer of ours: it is seen, as ever, by comparing.
    while stack.layers and not stack.layers[-1].owner:
        stack.layers.pop()
    if not stack.layers and stack in _stacks.get(name, ()):
        _stacks[name].remove(stack)
        if not _stacks[name]:
            del _stacks[name]
    for attribute in changed:
        _refresh(attribute)


def _no_original(replacement: object) -> NotAppliedError | NoOriginalError:
    layers = _layers_of.get(replacement, []) if _hashable(replacement) else []
    if not layers:
        return NotAppliedError(f"{who(replacement)} is not applied, so there is no original")
    places = ", ".join(_path(layer.stack.location) for layer in layers)
    if len(layers) > 1:
        return NoOriginalError(f"{who(replacement)} replaces several targets ({places}); give each its own function")
    return NoOriginalError(f"{who(replacement)} was written to {places}, where nothing was before")
