"""One run of the stream check: a detector, what feeds it, and what is done with each finding."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from torch_vnpu import _C
from torch_vnpu.distributed import told
from torch_vnpu.sanitizer import render, suppressions
from torch_vnpu.sanitizer.findings import Finding, tell_each
from torch_vnpu.sanitizer.suppressions import Rule

Mode = Literal["raise", "warn", "collect"]
Capture = Literal["native", "dispatch"]
MODES: tuple[str, ...] = get_args(Mode)
CAPTURES: tuple[str, ...] = get_args(Capture)


class SanitizerWarning(UserWarning):
    """A finding, in mode `warn`."""


class SanitizerError(RuntimeError):
    """A finding, in mode `raise`."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(render.as_text(finding))
        self.finding = finding


class Sanitizer:
    """The stream check, from `start` to `stop`; also as a context.

    `mode`: `raise` a SanitizerError in the call that completes a finding, `warn` of it, or `collect` it silently; `findings`
    has them in every mode. `stack_depth`: how many frames of each Python stack are kept (at most 128). `suppress`: a file of
    suppressions, or rules that were read. `capture`: `native` sees every kernel of every thread; `dispatch` sees the operators
    of the calling thread through a TorchDispatchMode (and of its backward passes), for comparison and for other backends.

    Raises ValueError for an unknown mode or capture, or a bad suppression file.
    """

    def __init__(
        self,
        mode: Mode = "warn",
        *,
        stack_depth: int = 32,
        suppress: str | Path | Sequence[Rule] | None = None,
        capture: Capture = "native",
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"{mode!r} is no mode of the sanitizer; it is one of {', '.join(MODES)}")
        if capture not in CAPTURES:
            raise ValueError(f"{capture!r} is no capture of the sanitizer; it is one of {', '.join(CAPTURES)}")
        if not 0 <= stack_depth <= 128:
            raise ValueError(f"the stack depth is 0 to 128 frames, not {stack_depth}")
        self.mode = mode
        self.findings: list[Finding] = []
        self.suppressed = 0
        self.rules = suppressions.load(suppress) if isinstance(suppress, str | Path) else list(suppress or ())
        self._detector = _C.Detector(stack_depth)
        self._dispatch: Any = None
        if capture == "dispatch":
            from torch_vnpu.sanitizer.dispatch_capture import NpuDispatchCapture

            self._dispatch = NpuDispatchCapture(self._detector, self._report)

    def start(self) -> "Sanitizer":
        if self._dispatch is not None:
            self._dispatch.start()
        else:
            self._detector.attach(self._report)
            told.watch()
        return self

    def stop(self) -> None:
        """Listen no more. Idempotent."""
        if not self.active:
            return
        if self._dispatch is not None:
            self._dispatch.stop()
        else:
            self._detector.detach()
            told.unwatch()

    def finish(self) -> None:
        """The program ends: what was freed, and is ordered with its memory's stream by nothing, is judged now."""
        self._detector.finish()
        tell_each(self._detector.take(), self._report)

    @property
    def active(self) -> bool:
        return bool(self._detector.attached or (self._dispatch is not None and self._dispatch.active))

    @property
    def statistics(self) -> dict[str, int]:
        """Counts: events seen, blocks and records in memory, findings, those repeated, records dropped by the bounds."""
        return self._detector.statistics()

    def text(self) -> str:
        """All findings, and a line that counts them, and those that were suppressed."""
        return render.report(self.findings, self.suppressed)

    def json(self) -> str:
        return render.as_json(self.findings, self.statistics, suppressed=self.suppressed)

    def html(self) -> str:
        return render.as_html(self.findings, self.suppressed)

    def _report(self, raw: tuple[Any, ...]) -> None:
        finding = Finding.of(raw, self._detector.frames)
        if any(rule.fits(finding) for rule in self.rules):
            self.suppressed += 1
            return
        self.findings.append(finding)
        if self.mode == "raise":
            raise SanitizerError(finding)
        if self.mode == "warn":
            warnings.warn(render.as_text(finding), SanitizerWarning, stacklevel=2)

    def __enter__(self) -> "Sanitizer":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
