"""Whether the installed versions are those that a patch is for, and whether the condition under which it goes holds.

A requirement is a distribution with a PEP 440 specifier, `torch>=2.1,<2.14`; `python` is the interpreter. packaging is
imported when the first one is read, which costs about 10 ms.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from unpatch.errors import said
from unpatch.patches.declare import RemoveWhen
from unpatch.patches.errors import InvalidConditionError

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*?)\s*((?:[<>=~!]=?|===).*)", re.DOTALL)


class Removal(NamedTuple):
    """Whether a patch is due to go; None: nobody can say, because the condition is prose or there is none."""

    due: bool | None
    why: str


def told(condition: RemoveWhen) -> str:
    """A removal condition in words: the text, or the first line of the probe's docstring, or the probe's name."""
    if isinstance(condition, str):
        return condition
    lines = (getattr(condition, "__doc__", None) or "").strip().splitlines()
    return lines[0] if lines else f"{getattr(condition, '__qualname__', repr(condition))}() is true"


def misfit(versions: str) -> str:
    """Why the installed version is not one that `versions` names; empty if it is, or if no version is named.

    Raises InvalidConditionError.
    """
    if not versions:
        return ""
    match = _REQUIREMENT.fullmatch(versions)
    if match is None:
        raise InvalidConditionError(
            f"the versions {versions!r} are no requirement: write a distribution and a specifier, as 'torch>=2.1,<2.14'"
        )
    fits, installed = _holds(versions, *match.groups())
    return "" if fits else f"it is for {versions}, and {installed}"


def removal(condition: RemoveWhen) -> Removal:
    """Whether the condition under which a patch goes holds. Raises InvalidConditionError, also when the probe raised."""
    if callable(condition):
        try:
            holds = condition()
        except Exception as error:
            raise InvalidConditionError(
                f"the probe of the removal condition ({told(condition)}) raised {said(error)}"
            ) from error
        return Removal(bool(holds), f"{told(condition)}: {'yes' if holds else 'not yet'}")
    match = _REQUIREMENT.fullmatch(condition)
    if match is None:
        return Removal(None, "it has no removal condition" if not condition else "its removal condition is prose")
    holds, installed = _holds(condition, *match.groups())
    return Removal(holds, f"it goes with {condition}, and {installed}")


def _holds(requirement: str, name: str, specifier: str) -> tuple[bool, str]:
    """Whether a requirement holds, and what is installed, in words."""
    try:
        wanted = _specifiers(specifier)
    except ValueError as error:
        raise InvalidConditionError(
            f"{requirement!r} cannot be read as a requirement: {error}; write it as 'torch>=2.1,<2.14'"
        ) from error
    version = _installed(name)
    if version is None:
        return False, f"{name} is not installed"
    from packaging.version import InvalidVersion, Version

    try:
        return wanted.contains(Version(version), prereleases=True), f"{name} {version} is installed"
    except InvalidVersion:
        return False, f"{name} has the version {version!r}, which PEP 440 does not know"


@functools.lru_cache
def _specifiers(text: str) -> SpecifierSet:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


def _installed(name: str) -> str | None:
    if name == "python":
        return ".".join(map(str, sys.version_info[:3]))
    # What runs, if it says so; asking the metadata of the installation costs tens of milliseconds more.
    version = getattr(sys.modules.get(name.replace("-", "_")), "__version__", None)
    if isinstance(version, str):
        return str(version)
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
