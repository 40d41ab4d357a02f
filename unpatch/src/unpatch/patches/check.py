"""What has become of the patches of a manager: whether what each was written for is still there, and whether it can go.

Nothing is changed, whether a patch is applied or not. It reads sources and asks probes, so it is imported apart, for
`unpatch check` and for a strict apply.
"""

from __future__ import annotations

import ast
import inspect
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Literal

from unpatch.patches import conditions, signatures, stack, targets
from unpatch.patches.declare import Patch, Write
from unpatch.patches.decorated import decorated_from
from unpatch.patches.errors import InvalidConditionError, PatchError, TargetExistsError, WriteRefusedError
from unpatch.patches.fingerprints import fingerprint, parts
from unpatch.patches.manager import PatchManager, State
from unpatch.patches.places import ABSENT, Attribute, Place, who

#: What `unpatch check` fails for, and then what it only tells.
Kind = Literal[
    "gone", "exists", "refused", "foreign", "changed", "signature", "pair", "due", "invalid", "undeclared", "note"
]
_KINDS: dict[type, Kind] = {TargetExistsError: "exists", WriteRefusedError: "refused"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found out about a patch. `target` is empty where it is about the patch as a whole."""

    kind: Kind
    target: str
    message: str

    @property
    def failing(self) -> bool:
        """Whether somebody has to do something."""
        return self.kind not in ("undeclared", "note")

    def __str__(self) -> str:
        return f"{self.target}: {self.message}" if self.target else self.message


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found out about one patch."""

    manager: str
    id: str
    state: State
    due: bool | None  #: None: nobody can say
    findings: tuple[Finding, ...]
    fingerprints: dict[str, str] = field(default_factory=dict)  #: target: the present one of the original

    @property
    def failing(self) -> bool:
        """Whether somebody has to do something."""
        return any(finding.failing for finding in self.findings)


def check(manager: PatchManager) -> tuple[Checked, ...]:
    """Check every declared patch, in the order of application. Imports the registered patch modules and the targets."""
    manager.import_modules()
    return tuple(_checked(manager, patch) for patch in manager.patches)


def findings(manager: PatchManager, patch: Patch) -> tuple[Finding, ...]:
    """What is found out about one patch."""
    return _checked(manager, patch).findings


def _checked(manager: PatchManager, patch: Patch) -> Checked:
    present: dict[str, str] = {}
    due = None
    try:
        state = manager.state(patch)
        misfit = conditions.misfit(patch.versions)
    except InvalidConditionError as error:
        invalid = Finding("invalid", "", str(error))
        return Checked(manager.name, patch.id, State.NOT_APPLIED, None, (invalid,))
    if misfit:
        # Nothing else is of interest: its targets may be gone, and what is due with another version stays for this one.
        return Checked(manager.name, patch.id, state, None, (Finding("note", "", f"not for this version: {misfit}"),))
    found = list(_of_pairs(manager, patch))
    try:
        removal = conditions.removal(patch.remove_when)
        due = removal.due
        if due:
            found.append(Finding("due", "", f"the patch can be deleted: {removal.why}"))
        elif due is None:
            found.append(Finding("note", "", f"nobody can check when it goes: {removal.why}"))
    except InvalidConditionError as error:
        found.append(Finding("invalid", "", str(error)))
    if patch.function is not None:
        found.append(Finding("note", "", "an opaque function: nobody knows what it writes"))
    for target in patch.fingerprints:
        if not any(write.target == target and write.kind != "add" for write in patch.writes):
            found.append(Finding("invalid", target, "there is a fingerprint, and the patch replaces no such target"))
    for write in patch.writes:
        found.extend(_of_write(manager, patch, write, present))
    return Checked(manager.name, patch.id, state, due, tuple(found), present)


def _of_pairs(manager: PatchManager, patch: Patch) -> Iterator[Finding]:
    for pair in manager.pairs:
        for one, other in ((pair.one, pair.other), (pair.other, pair.one)):
            if not patch.writes_to(one):
                continue
            writers = [writer for writer in manager.patches if writer.writes_to(other)]
            if not writers or (patch.applied and not any(writer.applied for writer in writers)):
                how = "no patch writes that" if not writers else "that is not patched at the moment"
                yield Finding("pair", one, f"it belongs together with {other} ({pair.reason}), and {how}")


def _of_write(manager: PatchManager, patch: Patch, write: Write, present: dict[str, str]) -> Iterator[Finding]:
    if not patch.applied and _rests_on_addition(manager, write):
        return
    try:
        place = targets.locate(write.target)
        if not patch.applied:
            stack.require(place, write.kind, patch.permanent)
    except PatchError as error:
        yield Finding(_KINDS.get(type(error), "gone"), write.target, str(error))
        return
    standing = stack.standing(place)
    yield from _others(manager, patch, write.target, standing)
    if write.kind == "add" or standing.base is ABSENT:
        return
    now = present[write.target] = fingerprint(standing.base, standing.place)
    declared = patch.fingerprints.get(write.target, ())
    known = (declared,) if isinstance(declared, str) else tuple(declared)
    whose = "" if now in known else _stranger(standing.place, standing.base)
    if whose:
        yield Finding("foreign", write.target, f"somebody else has patched it before: it is {whose}")
    elif known and now not in known:
        told = " or ".join(known)
        yield Finding(
            "changed", write.target, f"the original has changed since the patch was written: {told} is now {now}"
        )
    elif not known:
        yield Finding("undeclared", write.target, f"no fingerprint is declared; the original's is {now}")
    if write.kind == "replace":
        of_class = isinstance(place, Attribute) and isinstance(place.parent, type)
        if why := signatures.incompatibility(standing.base, write.replacement, of_class):
            yield Finding("signature", write.target, why)


def _others(manager: PatchManager, patch: Patch, target: str, standing: stack.Standing) -> Iterator[Finding]:
    """Who else has written a target upon what was there first."""
    own = f"{manager.name}/{patch.id}"
    others = [(owner, value) for owner, value in standing.layers if owner != own]
    for value in [value for owner, value in others if not owner]:
        yield Finding("foreign", target, f"somebody else has patched it too, with {_origin(value)}")
    if names := list(dict.fromkeys(owner for owner, _ in others if owner)):
        yield Finding("note", target, f"also patched by {', '.join(names)}")


def _rests_on_addition(manager: PatchManager, write: Write) -> bool:
    """Whether another write of the same manager adds the target or what holds it."""
    path = targets.dotted(write.target)
    for other in [other for patch in manager.patches for other in patch.writes]:
        made = targets.dotted(other.target)
        if other.kind == "add" and other is not write and (path == made or path.startswith((f"{made}.", f"{made}["))):
            return True
    return False


# ------------------------------------------------------------------------------------------ whose code it is
def _stranger(place: Place, value: object) -> str:
    """Whose code lies at an attribute where only the library itself should have written; empty if it is the library's.

    Code that the module imports from elsewhere is its own choice, and so is a wrapper of each decorator that the source of
    the definition names. Wrappers of the standard library are nobody's; what they wrap is somebody's.
    """
    if not isinstance(place, Attribute):
        return ""
    parent = place.parent
    home = parent.__module__ if isinstance(parent, type) else parent.__name__
    roots = _folders(home.partition(".")[0])
    layers = [part for part in parts(value) if isinstance(part, CodeType)]
    if not roots or not layers:
        return ""
    inner = next((layer for layer in layers if _lies_in(layer, roots)), None)
    decorators: list[str] = []
    if inner is not None:
        module = sys.modules.get(getattr(value, "__module__", None) or home)
        decorators = decorated_from(inner, vars(module) if module is not None else {})
    for layer in layers:
        if layer is inner or layer.co_filename.startswith("<"):
            return ""
        if _in_standard_library(Path(layer.co_filename)) and layer is not layers[-1]:
            continue
        known = next((at for at, package in enumerate(decorators) if _lies_in(layer, _folders(package))), None)
        if known is None:
            break
        decorators = decorators[known + 1 :]  # one decorator makes one wrapper
    if isinstance(parent, ModuleType) and _imports(parent, place.name):
        return ""
    return _origin(value)


def _lies_in(code: CodeType, folders: list[Path]) -> bool:
    return any(Path(code.co_filename).is_relative_to(folder) for folder in folders)


def _origin(value: object) -> str:
    code = next((part for part in parts(value) if isinstance(part, CodeType)), None)
    return who(value) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _folders(package: str) -> list[Path]:
    module = sys.modules.get(package)
    if package in sys.stdlib_module_names:
        return [Path(sysconfig.get_path("stdlib"))]
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    return folders or ([Path(file)] if (file := getattr(module, "__file__", None)) else [])


def _in_standard_library(file: Path) -> bool:
    return file.is_relative_to(sysconfig.get_path("stdlib")) and "site-packages" not in file.parts


def _imports(module: ModuleType, name: str) -> bool:
    """Whether the text of a module imports a name, or everything, from elsewhere."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return False
    return any(
        (alias.asname or alias.name.partition(".")[0]) in (name, "*")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )
