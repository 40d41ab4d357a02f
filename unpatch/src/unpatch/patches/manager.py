"""The registry of one package's patches: declared in any order, applied in a fixed one, each at most once.

`PatchManager` knows groups, order, discovery and what is disabled; how a write is done and undone is the business of
`unpatch.patches.stack`.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from threading import RLock
from typing import Any, NamedTuple, TypeVar, Unpack

from unpatch.errors import meant, said
from unpatch.patches import conditions, discover, places, stack, targets
from unpatch.patches.declare import Details, Line, Patch, named
from unpatch.patches.errors import (
    AlreadyDeclaredError,
    ApplyFailedError,
    DriftedError,
    HalfOfPairError,
    NotAppliedError,
    NotRevertibleError,
    PatchError,
    UnknownPatchError,
)

F = TypeVar("F", bound=Callable[..., Any])
#: What is written instead of a replacement: `transform(patch, target, replacement)`.
Transform = Callable[[Patch, str, Any], object]

#: Comma separated names of patches or groups that are never applied, `name` or `manager/name`; read at apply time.
DISABLE_VARIABLE = "UNPATCH_DISABLE"

#: Every manager that is alive, in order of creation.
_managers: list[weakref.ref[PatchManager]] = []
_managers_lock = RLock()


class Pair(NamedTuple):
    """Two targets that belong together, and why."""

    one: str
    other: str
    reason: str


class State(Enum):
    """What has become of a declared patch."""

    APPLIED = "applied"
    DISABLED = "disabled"
    OTHER_VERSION = "other version"
    NOT_APPLIED = "not applied"


_SKIPPED = {State.DISABLED: "disabled", State.OTHER_VERSION: "for another version"}


def managers() -> tuple[PatchManager, ...]:
    """Every manager of the process, in order of creation."""
    with _managers_lock:
        return tuple(manager for reference in _managers if (manager := reference()) is not None)


class PatchManager:
    """Declares, applies and reverts the patches of one package. Every method may be called from any thread.

    `name` tells managers apart, in `UNPATCH_DISABLE` and in messages. `order` lists the groups in order of application;
    groups that it does not name come after them, in order of first registration.
    """

    def __init__(self, name: str, order: Iterable[str] = ()) -> None:
        self.name = named(name, "manager name")
        self._order = _order(order)
        self._lock = RLock()
        self._patches: dict[str, Patch] = {}
        self._layers: dict[str, list[stack.Layer]] = {}  # of what is applied, in order of application
        self._pending: dict[str, None] = {}  # modules to import at the next apply, in order
        self._disabled: set[str] = set()
        self._pairs: list[Pair] = []
        #: The module that made this manager, by which `unpatch list` finds it.
        self.home: str = sys._getframe(1).f_globals.get("__name__", "")
        with _managers_lock:
            _managers[:] = [reference for reference in _managers if reference() is not None]
            _managers.append(weakref.ref(self))

    # ------------------------------------------------------------------------------------------ declaring
    def declare(self, **details: Unpack[Details]) -> Patch:
        """Declare a patch whose writes are added to what is returned. A patch without any is not applied yet.

        Raises ValueError for a blank id or group, AlreadyDeclaredError.
        """
        return self._register(Patch(declared_at=_caller(), **details))

    def patch(self, *names: str, **details: Unpack[Details]) -> Callable[[F], F]:
        """Decorator: the function replaces each of the targets `names`, and is returned unchanged.

        Raises ValueError without a target, for one that is none, for a blank id or group; AlreadyDeclaredError.
        """
        if not names:
            raise ValueError(f"patch {details['id']!r} names no target")
        patch = Patch(declared_at=_caller(), **details)
        writers = [patch.replace(name) for name in names]

        def decorate(function: F) -> F:
            with self._lock:
                self._register(patch)
                for write in writers:
                    write(function)
            return function

        return decorate

    def register_patch(self, group: str) -> Callable[[F], F]:
        """Decorator for a function without arguments that patches something itself; returned unchanged.

        Its id is its qualified name. Nothing is known of what it writes, so it can be disabled but not reverted.
        Raises ValueError for a blank group, AlreadyDeclaredError.
        """
        named(group, "patch group")
        place = _caller()

        def decorate(function: F) -> F:
            id = f"{function.__module__}.{function.__qualname__}"
            reason = (function.__doc__ or "").strip().partition("\n")[0]
            self._register(Patch(id=id, group=group, reason=reason, title=id, declared_at=place, function=function))
            return function

        return decorate

    def pair(self, one: str, other: str, reason: str) -> None:
        """Declare that two targets belong together, as `torch.save` and `torch.load`: to patch one alone is refused.

        Raises ValueError for what is no target, and without a reason.
        """
        targets.parse(one)
        targets.parse(other)
        if not reason.strip():
            raise ValueError(f"say why {one!r} and {other!r} belong together")
        with self._lock:
            self._pairs.append(Pair(one, other, reason))

    def register_patch_module(self, name: str) -> None:
        """Have a module that declares patches imported (once) at the next apply. Raises ValueError for a blank name."""
        with self._lock:
            self._pending[named(name, "module name")] = None

    def discover(self, package: str) -> tuple[str, ...]:
        """Import every module of a package that is named `*_patches`, sorted by name; returns their names.

        Raises ValueError for a blank name, PatchModuleError when one of them cannot be imported.
        """
        return discover.import_patch_modules(named(package, "package name"))

    def _register(self, patch: Patch) -> Patch:
        with self._lock:
            taken = self._patches.get(patch.id)
            if taken is not None:
                raise AlreadyDeclaredError(
                    f"patch {patch.id!r} of {self.name!r} is already declared at "
                    f"{taken.declared_at.file}:{taken.declared_at.line}; give this one another id"
                )
            # One name must not mean both, or disabling the one would silently disable the other.
            both = ({patch.id} & {*self._groups(self._order), patch.group}) | ({patch.group} & self._patches.keys())
            if both:
                raise AlreadyDeclaredError(
                    f"{both.pop()!r} is both a patch id and a group in {self.name!r}; rename one"
                )
            self._patches[patch.id] = patch
            return patch

    # ------------------------------------------------------------------------------------------ looking
    @property
    def patches(self) -> tuple[Patch, ...]:
        """Every declared patch, in the order in which `apply_all` applies them."""
        with self._lock:
            return self._sorted(self._order)

    @property
    def applied(self) -> tuple[Patch, ...]:
        """The patches in force, in the order in which they were applied."""
        with self._lock:
            return tuple(self._patches[id] for id in self._layers)

    @property
    def disabled(self) -> tuple[Patch, ...]:
        """The declared patches that an apply would now skip by name, in order of application."""
        return tuple(patch for patch in self.patches if self._is_disabled(patch))

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The targets that belong together, as declared."""
        with self._lock:
            return tuple(self._pairs)

    def state(self, patch: Patch) -> State:
        """What has become of a patch. Raises InvalidConditionError when its versions cannot be read."""
        with self._lock:
            if patch.applied:
                return State.APPLIED
            if self._is_disabled(patch):
                return State.DISABLED
        return State.OTHER_VERSION if conditions.misfit(patch.versions) else State.NOT_APPLIED

    def get(self, id: str) -> Patch:
        """The patch of that id. Raises UnknownPatchError, which names similar ids."""
        with self._lock:
            if id in self._patches:
                return self._patches[id]
            raise self._unknown("patch", id, self._patches)

    # ------------------------------------------------------------------------------------------ applying
    def apply_all(
        self, order: Iterable[str] | None = None, transform: Transform | None = None, strict: bool = False
    ) -> tuple[Patch, ...]:
        """Apply every patch that is neither applied nor disabled nor for other versions; returns those.

        `order` takes the place of the manager's. With `transform`, `transform(patch, target, replacement)` is written
        instead of each replacement or added value; opaque patches are not affected. A patch that cannot be applied
        raises a PatchError and leaves no trace; those before it stay, and the next call goes on. A `strict` apply first
        checks each patch as `unpatch check` does, and raises DriftedError where that fails.
        """
        groups = self._order if order is None else _order(order)
        self.import_modules()
        with self._lock:
            due = self._sorted(groups)
        return self._apply(due, transform, strict)

    def apply_group(self, group: str, transform: Transform | None = None, strict: bool = False) -> tuple[Patch, ...]:
        """Apply the patches of one group only, otherwise as `apply_all`.

        Raises ValueError for a blank group, UnknownPatchError for one that nobody has named, PatchError.
        """
        named(group, "patch group")
        self.import_modules()
        with self._lock:
            known = self._groups(self._order)
            if group not in known:
                raise self._unknown("group", group, known)
            due = tuple(patch for patch in self._sorted(self._order) if patch.group == group)
        return self._apply(due, transform, strict)

    def apply(self, id: str, strict: bool = False) -> bool:
        """Apply one patch; False if it is applied already, disabled, for other versions, or has nothing to write.

        Raises PatchError.
        """
        self.import_modules()
        return bool(self._apply((self.get(id),), None, strict))

    def disable(self, *names: str) -> None:
        """Never apply these patches or groups, known or not, from now on. What is applied stays until it is reverted.

        They are named as in `UNPATCH_DISABLE`, `name` or `manager/name`. Raises ValueError for a blank name.
        """
        with self._lock:
            self._disabled.update(named(name, "name of a patch or group") for name in names)

    def _apply(self, due: Iterable[Patch], transform: Transform | None, strict: bool) -> tuple[Patch, ...]:
        return tuple(patch for patch in due if self._apply_one(patch, transform, strict))

    def _apply_one(self, patch: Patch, transform: Transform | None, strict: bool) -> bool:
        # Under the lock even here: a function that another thread is running counts as applied, but must have returned
        # before anything that comes after it is applied.
        with self._lock:
            if self._skips(patch):
                return False
        if self._misfit(patch):
            return False
        # Modules are imported before the lock is taken: another thread may hold the lock of such an import and, from a
        # post-import hook, be waiting for ours.
        for target in patch.targets:
            with suppress(PatchError):
                targets.locate(target)
        if strict:
            self._refuse_drift(patch)
        with self._lock:
            if self._skips(patch):
                return False
            self._refuse_half(patch)
            if patch.function is not None:
                self._call(patch, patch.function)
            else:
                self._layers[patch.id] = self._write(patch, transform)
            patch.applied = True
            return True

    def _skips(self, patch: Patch) -> bool:
        nothing_to_do = not patch.writes and patch.function is None
        return nothing_to_do or patch.id in self._layers or self._is_disabled(patch)

    def _misfit(self, patch: Patch) -> str:
        try:
            return conditions.misfit(patch.versions)
        except PatchError as error:
            error.args = (f"patch '{self.name}/{patch.id}' cannot be applied: {error}",)
            raise

    def _refuse_drift(self, patch: Patch) -> None:
        from unpatch.patches import check  # reads sources: only for who asks

        drifted = [str(finding) for finding in check.findings(self, patch) if finding.failing]
        if drifted:
            raise DriftedError(f"patch '{self.name}/{patch.id}' is not applied: {'; '.join(drifted)}")

    def _refuse_half(self, patch: Patch) -> None:
        """Of a pair, the other half must be in force or to come."""
        for pair in self._pairs:
            for one, other in ((pair.one, pair.other), (pair.other, pair.one)):
                if not patch.writes_to(one):
                    continue
                writers = [
                    (writer.id, self.state(writer)) for writer in self._patches.values() if writer.writes_to(other)
                ]
                if any(state in (State.APPLIED, State.NOT_APPLIED) for _, state in writers):
                    continue
                why = ", ".join(f"{id!r} is {_SKIPPED[state]}" for id, state in writers) or "no patch writes that"
                raise HalfOfPairError(
                    f"patch '{self.name}/{patch.id}' writes {one} but not {other}, and {why}. They belong together "
                    f"({pair.reason}): apply both, or disable both"
                )

    def _call(self, patch: Patch, function: Callable[[], object]) -> None:
        # Marked first: the function may import what applies patches again.
        self._layers[patch.id] = []
        try:
            function()
        except BaseException as error:
            del self._layers[patch.id]
            if not isinstance(error, Exception):
                raise
            name = f"{self.name}/{patch.id}"
            raise ApplyFailedError(f"patch {name!r} failed with {said(error)}") from error

    def _write(self, patch: Patch, transform: Transform | None) -> list[stack.Layer]:
        owner = f"{self.name}/{patch.id}"
        layers: list[stack.Layer] = []
        try:
            for write in patch.writes:
                # Only now, because an earlier write may have added what this one is about.
                place = targets.locate(write.target)
                if write.kind == "delete":
                    value = replacement = places.ABSENT
                else:
                    value = replacement = write.replacement
                    if transform is not None:
                        value = transform(patch, write.target, replacement)
                layers.append(stack.push(place, write.kind, owner, value, replacement, patch.permanent))
        except BaseException as error:
            stack.withdraw(layers)
            if isinstance(error, PatchError):
                error.args = (f"patch {owner!r} cannot be applied: {error}",)
            raise
        return layers

    # ------------------------------------------------------------------------------------------ reverting
    def revert(self, id: str) -> None:
        """Undo one patch, whatever was applied after it.

        Raises UnknownPatchError, NotAppliedError, NotRevertibleError for an opaque patch or one that lasts,
        ForeignWriteError when somebody else has written a target since; nothing is changed then.
        """
        with self._lock:
            patch = self.get(id)
            if id not in self._layers:
                raise NotAppliedError(f"patch {id!r} of {self.name!r} is not applied: there is nothing to revert")
            if patch.function is not None:
                raise NotRevertibleError(
                    f"patch {id!r} is an opaque function, so nobody knows what it wrote: "
                    "disable it in a fresh process instead"
                )
            stack.remove(self._layers[id])
            del self._layers[id]
            patch.applied = False

    def revert_all(self) -> None:
        """Undo every applied patch, the last first. Raises NotRevertibleError at the end if any had to be left."""
        left: list[PatchError] = []
        with self._lock:
            for id in reversed(tuple(self._layers)):
                try:
                    self.revert(id)
                except PatchError as error:
                    left.append(error)
        if left:
            count = f"{len(left)} of the patches of {self.name!r}"
            raise NotRevertibleError(f"{count} could not be reverted: " + "; ".join(map(str, left))) from left[0]

    # ------------------------------------------------------------------------------------------ helpers
    def import_modules(self) -> None:
        """Import the registered modules that are not imported yet, as each apply does. Raises PatchModuleError."""
        # Outside the lock, like every import; a module leaves the list only when its import has succeeded.
        while self._pending:
            with self._lock:
                name = next(iter(self._pending), None)
            if name is not None:
                discover.import_module(name)
                with self._lock:
                    self._pending.pop(name, None)

    def _groups(self, order: tuple[str, ...]) -> Mapping[str, int]:
        """Every group with its rank: those of `order`, then the others in order of first registration."""
        groups = dict.fromkeys((*order, *(patch.group for patch in self._patches.values())))
        return {group: rank for rank, group in enumerate(groups)}

    def _sorted(self, order: tuple[str, ...]) -> tuple[Patch, ...]:
        rank = self._groups(order)
        return tuple(sorted(self._patches.values(), key=lambda patch: rank[patch.group]))

    def _is_disabled(self, patch: Patch) -> bool:
        names = self._disabled | {name.strip() for name in os.environ.get(DISABLE_VARIABLE, "").split(",")}
        own = {patch.id, patch.group}
        return not names.isdisjoint(own | {f"{self.name}/{name}" for name in own})

    def _unknown(self, what: str, name: str, known: Iterable[str]) -> UnknownPatchError:
        return UnknownPatchError(f"{self.name!r} has no {what} {name!r}{meant(name, known)}")


def _order(order: Iterable[str]) -> tuple[str, ...]:
    groups = (order,) if isinstance(order, str) else tuple(named(group, "group in the order") for group in order)
    if isinstance(order, str) or len(set(groups)) < len(groups):
        raise ValueError(f"the order must be a sequence of distinct groups, not {order!r}")
    return groups


def _caller() -> Line:
    """Where the caller of the public method that calls this stands."""
    frame = sys._getframe(2)
    return Line(frame.f_code.co_filename, frame.f_lineno)
