"""The writes that lie on each place, one upon the other, and what lies beneath each of them.

There is one stack per place for the whole process, because two managers may write the same one. A write can be
taken out from any height: the visible value is always that of the topmost, and the last to go uncovers the very object
that was there first, or nothing if it was inherited or did not exist.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from threading import RLock
from typing import Any, NamedTuple

from unpatch.patches.errors import (
    ForeignWriteError,
    NoOriginalError,
    NotAppliedError,
    NotRevertibleError,
    TargetExistsError,
    TargetNotFoundError,
    WriteRefusedError,
)
from unpatch.patches.places import ABSENT, Place, who

_lock = RLock()
_stacks: dict[Hashable, list[_Stack]] = {}  # by family: what may rest on each other is refreshed together
_layers_of: dict[object, list[Layer]] = {}  # by replacement
_originals: dict[object, object] = {}  # by replacement, where exactly one object lies beneath


class Layer:
    """One write that is in force: by whom, what was written (or ABSENT), and the replacement as it was declared."""

    __slots__ = ("lasting", "owner", "replacement", "stack", "value")

    def __init__(self, stack: _Stack, owner: str, value: object, replacement: object, lasting: str = "") -> None:
        self.stack = stack
        self.owner = owner  # empty: a foreign value that a layer of ours was put upon
        self.value = value
        self.replacement = replacement
        self.lasting = lasting  # why it cannot be undone, or empty


class _Stack:
    """The layers of one place, the lowest first."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.base = place.read()
        #: What plain access gave where nothing lay here and nothing was inherited.
        self.computed: object = ABSENT
        self.layers: list[Layer] = []

    @property
    def top(self) -> object:
        return self.layers[-1].value if self.layers else self.base

    def beneath(self, height: int) -> object:
        """What plain access gives if only the layers below `height` are there."""
        value = self.layers[height - 1].value if height else self.base
        if value is ABSENT:
            value = self.place.inherited()
        return self.computed if value is ABSENT else self.place.shown(value)


class Standing(NamedTuple):
    """How a place stands at the moment."""

    place: Place
    base: object  #: what lies beneath all layers, as it is stored; the inherited or computed value where nothing does
    layers: tuple[tuple[str, object], ...]  #: owner (empty: somebody else) and value, the lowest first


def push(place: Place, kind: str, owner: str, value: object, replacement: object, permanent: bool = False) -> Layer:
    """Write `value` (ABSENT: delete) upon whatever is there, and return the handle that takes it away again.

    `kind` is that of a `Write`; `original(replacement)` is answered from then on. Raises, with nothing changed,
    TargetNotFoundError where there is nothing to replace or delete, TargetExistsError where adding would replace,
    WriteRefusedError, also for what could not be undone unless it is `permanent`.
    """
    with _lock:
        stack = _stack_at(place)
        place = stack.place
        try:
            current = place.read()
            lasting = _require(place, kind, permanent)
            grown = len(stack.layers)
            if current is not stack.top:
                stack.layers.append(Layer(stack, "", current, ABSENT))
            layer = Layer(stack, owner, value, replacement, lasting)
            stack.layers.append(layer)
            for key in _keys(layer):
                _layers_of.setdefault(key, []).append(layer)
            # Before the write, because from then on any thread may call the replacement, which asks for its original.
            _refresh(place.family)
            try:
                _write(place, value)
            except BaseException:
                del stack.layers[grown:]
                _forget(layer)
                raise
        finally:
            _drop_if_empty(stack)
        # And after it, for the overrides in derived classes, whose original this is now.
        _refresh(place.family)
        return layer


def remove(layers: Sequence[Layer]) -> None:
    """Take layers away, all or none; those of others upon or beneath them stay in force.

    Raises, with nothing changed, ForeignWriteError when a value that is not ours lies upon one of them,
    NotRevertibleError when one of them lasts, WriteRefusedError.
    """
    with _lock:
        for layer in layers:
            if layer.lasting:
                raise NotRevertibleError(
                    f"{layer.owner!r} cannot be reverted in this process: {layer.lasting}; "
                    "disable it in a fresh process instead"
                )
        withdraw(layers)


def withdraw(layers: Sequence[Layer]) -> None:
    """As `remove`, but what lasts is put back as far as it can be: for a patch that could not be applied as a whole."""
    with _lock:
        for layer in layers:
            _refuse_foreign(layer)
        taken: list[tuple[Layer, int]] = []
        try:
            for layer in reversed(layers):
                taken.append((layer, layer.stack.layers.index(layer)))
                layer.stack.layers.remove(layer)
                _write(layer.stack.place, layer.stack.top)
        except BaseException:
            for layer, height in reversed(taken):
                layer.stack.layers.insert(height, layer)
                _write(layer.stack.place, layer.stack.top)
            raise
        for layer in layers:
            _forget(layer)


def require(place: Place, kind: str, permanent: bool = False) -> None:
    """Raise what `push` would raise before it writes."""
    with _lock:
        stack = _stack_at(place)
        try:
            _require(stack.place, kind, permanent)
        finally:
            _drop_if_empty(stack)


def standing(place: Place) -> Standing:
    """How a place stands: what was there first, and who has written it since."""
    with _lock:
        stack = _stack_at(place)
        try:
            base = stack.base if stack.base is not ABSENT else stack.place.inherited()
            layers = [(layer.owner, layer.value) for layer in stack.layers]
            if layers and (current := stack.place.read()) is not stack.top:
                layers.append(("", current))
            return Standing(stack.place, stack.computed if base is ABSENT else base, tuple(layers))
        finally:
            _drop_if_empty(stack)


def original(replacement: object) -> Any:
    """What `replacement` replaced: the object that plain access gave before, callable the way the target is called.

    A static or class method comes as its bare function, a property as the property. Costs a dictionary look-up. Raises
    NotAppliedError while the replacement is not applied, NoOriginalError when it was added or has several targets.
    """
    try:
        return _originals[replacement]
    except (KeyError, TypeError):
        raise _no_original(replacement) from None


def _require(place: Place, kind: str, permanent: bool) -> str:
    """Refuse a write that does not fit; returns why it lasts, if it does."""
    holder, name, noun = place.words()
    if kind == "add":
        if _visible(place):
            raise TargetExistsError(f"cannot add {name!r}: {holder} has it already; replace it instead")
    elif not _visible(place):
        raise TargetNotFoundError(f"cannot {kind} {name!r}: {holder} has no such {noun}")
    elif kind == "delete" and place.read() is ABSENT:
        raise TargetNotFoundError(f"cannot delete {name!r}: {holder} only inherits it; name the class that defines it")
    if kind == "delete" and not place.deletable:
        raise WriteRefusedError(f"{place} cannot be deleted: the kernel of somebody else can only be covered")
    place.refuse()
    lasting = place.lasting()
    if lasting and not permanent:
        raise WriteRefusedError(
            f"{lasting}. Declare the patch as permanent=True to accept that only a fresh process is without it"
        )
    return lasting


def _refuse_foreign(layer: Layer) -> None:
    stack = layer.stack
    current = stack.place.read()
    above = stack.layers[stack.layers.index(layer) + 1 :]
    foreign = [current] if current is not stack.top else [other.value for other in above if not other.owner]
    if foreign:
        raise ForeignWriteError(
            f"{layer.owner!r} cannot be reverted: {stack.place} has since been "
            f"written by somebody else and is, or rests on, {who(foreign[-1])}; undo that first"
        )


def _stack_at(place: Place) -> _Stack:
    stacks = _stacks.setdefault(place.family, [])
    for stack in stacks:
        if stack.place == place:
            return stack
    stack = _Stack(place)
    if stack.base is ABSENT and place.inherited() is ABSENT:
        stack.computed = place.computed()
    stacks.append(stack)
    return stack


def _drop_if_empty(stack: _Stack) -> None:
    stacks = _stacks.get(stack.place.family, [])
    if not stack.layers and stack in stacks:
        stacks.remove(stack)
        if not stacks:
            del _stacks[stack.place.family]


def _visible(place: Place) -> bool:
    return place.read() is not ABSENT or place.inherited() is not ABSENT or place.computed() is not ABSENT


def _write(place: Place, value: object) -> None:
    before = place.read()
    if before is value:
        return
    try:
        place.put(value)
    except Exception as error:
        raise WriteRefusedError(f"{place} cannot be written: {error}") from error
    if place.read() is not value:
        with suppress(Exception):
            place.put(before)
        raise WriteRefusedError(f"{place} cannot be written: {place.writer()} intercepts it")


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


def _refresh(family: Hashable) -> None:
    """Answer `original` anew for every layer of a family.

    All of them, because an override's original is the method of a base class, which may itself have just been written.
    """
    for stack in _stacks.get(family, ()):
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
    changed = {stack.place.family}
    for key in _keys(layer):
        _originals.pop(key, None)
        others = _layers_of[key]
        others.remove(layer)
        changed.update(other.stack.place.family for other in others)
        if not others:
            del _layers_of[key]
    # A foreign value at the top is no layer of ours: it is seen, as ever, by comparing.
    while stack.layers and not stack.layers[-1].owner:
        stack.layers.pop()
    _drop_if_empty(stack)
    for family in changed:
        _refresh(family)


def _no_original(replacement: object) -> NotAppliedError | NoOriginalError:
    layers = _layers_of.get(replacement, []) if _hashable(replacement) else []
    if not layers:
        return NotAppliedError(f"{who(replacement)} is not applied, so there is no original")
    places = ", ".join(str(layer.stack.place) for layer in layers)
    if len(layers) > 1:
        return NoOriginalError(f"{who(replacement)} replaces several targets ({places}); give each its own function")
    return NoOriginalError(f"{who(replacement)} was written to {places}, where nothing was before")
