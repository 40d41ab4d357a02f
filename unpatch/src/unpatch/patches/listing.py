"""The declared patches of a module as plain data: what each is, what it replaced, and what has become of it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from unpatch.errors import UnpatchError, meant, said
from unpatch.patches import conditions, stack, targets
from unpatch.patches.declare import Origin, Patch, Write
from unpatch.patches.errors import PatchError
from unpatch.patches.manager import DISABLE_VARIABLE, PatchManager, State, managers
from unpatch.patches.places import who


@dataclass(frozen=True, slots=True)
class ListedWrite:
    """One write of a patch. `original` says what lies, or lay, beneath; empty where nothing does or nobody can say."""

    kind: str
    target: str
    original: str
    replacement: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A declared patch."""

    manager: str
    id: str
    group: str
    title: str
    state: State
    why: str  #: why the state, where that needs a reason
    reason: str
    origin: Origin
    versions: str
    remove_when: str
    due: bool | None  #: None: nobody can say
    risk: str
    rollback: str
    revertible: bool  #: false for an opaque function
    permanent: bool
    declared_at: str
    writes: tuple[ListedWrite, ...]


def managers_of(module: str, without: Iterable[str] = ()) -> tuple[PatchManager, ...]:
    """Import a module and find the managers that were made in it or below it, or are attributes of it.

    `without` names patches or groups that are disabled before the import, as by `UNPATCH_DISABLE`. Raises UnpatchError
    when there is no such module, when it cannot be imported, when it declares no patches, and for an unknown name.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise UnpatchError(f"{module!r} is no name of a module; a name is written as in an import: package.module")
    names = list(without)
    if names:
        before = os.environ.get(DISABLE_VARIABLE, "")
        os.environ[DISABLE_VARIABLE] = ",".join(filter(None, [before, *names]))
    try:
        imported = importlib.import_module(module)
        found = [
            manager
            for manager in managers()
            if f"{manager.home}.".startswith(f"{module}.") or any(manager is value for value in vars(imported).values())
        ]
        for manager in found:
            manager.import_modules()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise UnpatchError(f"There is no module {error.name!r} here; is it installed?") from error
        raise UnpatchError(f"Importing {module!r} failed with {said(error)}") from error
    if not found:
        raise UnpatchError(f"{module!r} declares no patches: importing it makes no PatchManager")
    _refuse_unknown(names, found)
    return tuple(found)


def listed(manager: PatchManager) -> tuple[Listed, ...]:
    """Every declared patch of a manager, in the order of application."""
    return tuple(_listed(manager, patch) for patch in manager.patches)


def _refuse_unknown(names: Iterable[str], found: Iterable[PatchManager]) -> None:
    known = {
        name
        for manager in found
        for patch in manager.patches
        for own in (patch.id, patch.group)
        for name in (own, f"{manager.name}/{own}")
    }
    for name in names:
        if name not in known:
            raise UnpatchError(f"No patch and no group is named {name!r}{meant(name, known)}")


def _listed(manager: PatchManager, patch: Patch) -> Listed:
    why, due = "", None
    try:
        state = manager.state(patch)
        if state is State.OTHER_VERSION:
            why = conditions.misfit(patch.versions)
        due = conditions.removal(patch.remove_when).due
    except PatchError as error:
        state, why = (State.APPLIED if patch.applied else State.NOT_APPLIED), str(error)
    return Listed(
        manager=manager.name,
        id=patch.id,
        group=patch.group,
        title=patch.title,
        state=state,
        why=why,
        reason=patch.reason,
        origin=patch.origin,
        versions=patch.versions,
        remove_when=conditions.told(patch.remove_when),
        due=due,
        risk=patch.risk,
        rollback=patch.rollback,
        revertible=patch.function is None,
        permanent=patch.permanent,
        declared_at=f"{patch.declared_at.file}:{patch.declared_at.line}",
        writes=tuple(_write(write) for write in patch.writes),
    )


def _write(write: Write) -> ListedWrite:
    try:
        base = stack.standing(targets.locate(write.target)).base
        original = "" if write.kind == "add" else who(base)
    except PatchError:
        original = ""
    return ListedWrite(write.kind, write.target, original, "" if write.kind == "delete" else who(write.replacement))
