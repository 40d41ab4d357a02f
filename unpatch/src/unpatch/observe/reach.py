"""The channel *reach*: how often a case entered each patch's replacements, and which of their own branches ran.

Measured in a trial of its own, because it wraps every replacement. What runs after the call of a replacement has
returned (a hook it registered, a generator it returned) is not seen, and counts neither for nor against its branches.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal, Protocol

import wrapt

from unpatch.model import ReachRecord
from unpatch.observe import ObservationError
from unpatch.observe.branches import Span
from unpatch.observe.frames import FrameCounter
from unpatch.observe.own_code import OwnCode, own_code
from unpatch.observe.roles import current_role
from unpatch.observe.text import short_path
from unpatch.observe.tracing import Inside, Watch


class _Patch(Protocol):
    @property
    def id(self) -> str: ...


@dataclass
class _Replacements:
    """The writes of one patch."""

    own: dict[int, OwnCode] = field(default_factory=dict)  #: by identity of the code object
    unwatched: bool = False  #: one of them is no function, so that calls of it cannot be counted


@dataclass
class _Seen:
    """What one case did with one patch."""

    calls: int = 0
    roles: set[str] = field(default_factory=set)
    ran: dict[int, set[int]] = field(default_factory=dict)  #: by identity of the code object
    traced: bool = False  #: Dynamo traced a replacement


@dataclass
class _Case:
    main: int  #: identifier of the thread that runs it
    patches: dict[str, _Seen]
    tried_compiling: bool = False


class Reach:
    """Counts calls of replacements per case and thread role, and the branches of each that ran.

    `root`: files in `ReachRecord.lines_run` are named relative to it.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root
        self._patches: dict[str, _Replacements] = {}
        self._cases: dict[str, _Case] = {}
        self._current: _Case | None = None
        self._lock = threading.Lock()
        self._watch = Watch(self._entered)
        wrapt.register_post_import_hook(self._keep_out, "torch._dynamo")

    # -------------------------------------------------------------------------------------- wrapping
    def transform(self, patch: _Patch, target: str, replacement: Any) -> Any:
        """What to write to `target` instead of `replacement`; for `PatchManager.apply_all(transform=…)`.

        Functions are wrapped, also inside staticmethod, classmethod, property and functools.partial. Anything else (a
        constant, a class) is returned as it is: there is no call to count, so the record says `unknown`.
        """
        known = self._patches.setdefault(patch.id, _Replacements())
        kind = type(replacement)
        if kind is FunctionType:
            return self._wrap(patch.id, known, replacement)
        if kind in (staticmethod, classmethod):
            return kind(self.transform(patch, target, replacement.__func__))
        if kind is property:
            accessors = (replacement.fget, replacement.fset, replacement.fdel)
            fget, fset, fdel = (one and self.transform(patch, target, one) for one in accessors)
            return property(fget, fset, fdel, replacement.__doc__)
        if kind is functools.partial:
            inner = self.transform(patch, target, replacement.func)
            return functools.partial(inner, *replacement.args, **replacement.keywords)
        known.unwatched = True
        return replacement

    def _wrap(self, patch: str, known: _Replacements, replacement: FunctionType) -> FunctionType:
        for own in own_code(replacement):
            known.own[id(own.code)] = own
            self._watch.add(patch, own.code, own.branches.crowded)

        def traced(context: Any) -> None:
            """Run by Dynamo at the moment when it traces the wrapper."""
            current = self._current
            if current is not None:
                current.patches[patch].traced = True

        torch = sys.modules.get("torch")
        compiling: Callable[[], bool] = torch.compiler.is_dynamo_compiling if torch is not None else bool

        @functools.wraps(replacement)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if compiling():  # Dynamo knows the answer, so the compiled code holds neither the question nor what follows
                from torch._dynamo.comptime import comptime

                comptime(traced)
                return replacement(*args, **kwargs)
            inside = self._enter(patch)
            try:
                return replacement(*args, **kwargs)
            finally:
                self._leave(inside)

        return watched  # type: ignore[return-value]

    # -------------------------------------------------------------------------------------- recording
    @contextmanager
    def case(self, case_id: str) -> Iterator[None]:
        """What is called meanwhile counts for `case_id`. Raises ObservationError inside another case."""
        if self._current is not None:
            raise ObservationError(f"Case {case_id!r} starts inside another: reach is measured one case at a time.")
        case = self._cases.setdefault(case_id, _Case(0, {}))
        case.main = threading.get_ident()
        case.patches.update({patch: _Seen() for patch in self._patches if patch not in case.patches})
        frames = FrameCounter()
        self._current = case
        try:
            with frames:
                yield
        finally:
            self._current = None
            case.tried_compiling |= frames.attempted

    def _enter(self, patch: str) -> Inside | None:
        """Count a call and trace it; None outside of a case."""
        current = self._current
        if current is None or patch not in current.patches:
            return None
        role = current_role(current.main)
        with self._lock:
            seen = current.patches[patch]
            seen.calls += 1
            seen.roles.add(role)
        return self._watch.enter(patch)

    def _leave(self, inside: Inside | None) -> None:
        if inside is not None:
            self._watch.leave(inside)

    def _keep_out(self, dynamo: Any) -> None:
        """Dynamo, once loaded, must not take our own frames for the workload's."""
        self._enter = dynamo.disable(self._enter)  # type: ignore[method-assign]
        self._leave = dynamo.disable(self._leave)  # type: ignore[method-assign]

    def _entered(self, patch: str, code: CodeType) -> set[int] | None:
        current = self._current
        if current is None or patch not in current.patches:
            return None
        with self._lock:
            return current.patches[patch].ran.setdefault(id(code), set())

    # -------------------------------------------------------------------------------------- results
    def records(self, case_id: str | None = None) -> tuple[ReachRecord, ...]:
        """One record per case and patch, in the order in which cases ran and patches were applied; or of one case."""
        cases = self._cases if case_id is None else {case_id: self._cases[case_id]}
        return tuple(
            self._record(patch, id, case.patches.get(patch, _Seen()), case.tried_compiling)
            for id, case in cases.items()
            for patch in self._patches
        )

    def _record(self, patch: str, case: str, seen: _Seen, tried_compiling: bool) -> ReachRecord:
        known = self._patches[patch]
        # A function that was never entered is reached by a statement that did not run either, which counts, or outside
        # of calls, where nothing is seen.
        entered = [own for key, own in known.own.items() if key in seen.ran] if seen.calls else [*known.own.values()]
        branches, ran = 0, []
        for own in entered:
            branches += len(own.branches.spans)
            ran += [
                (own.code.co_filename, span.start[0]) for span in _spans_run(own, seen.ran.get(id(own.code), set()))
            ]
        compiled: Literal["no", "traced", "unknown"] = "no"
        if seen.traced:
            compiled = "traced"
        elif not seen.calls and (tried_compiling or known.unwatched):
            compiled = "unknown"
        lines = sorted((short_path(file, self._root), line) for file, line in set(ran))
        return ReachRecord(
            patch=patch,
            case=case,
            calls=seen.calls,
            threads=tuple(sorted(seen.roles)),
            branches=branches,
            branches_run=len(ran),
            lines_run=tuple(f"{file}:{line}" for file, line in lines),
            compiled=compiled,
        )


def _spans_run(own: OwnCode, ran: set[int]) -> list[Span]:
    """The conditional statements of which a line (in crowded code: an instruction) ran."""
    if not own.branches.crowded:
        return [span for span in own.branches.spans if any(span.start[0] <= line <= span.end[0] for line in ran)]
    instructions = list(own.code.co_positions())
    places = {(line, column or 0) for line, _, column, _ in (instructions[at // 2] for at in ran) if line is not None}
    return [span for span in own.branches.spans if any(map(span.holds, places))]
