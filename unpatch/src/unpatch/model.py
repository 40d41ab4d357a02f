"""The records that cross a border: orders to a trial, observations from it, and the judged study that a report renders.

Everything is plain data (msgspec structs), so that a child process answers with data, a store keeps data, and a
renderer reads data. Nothing here imports torch or computes a verdict.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Outcome = Literal["passed", "failed", "crashed", "timed_out"]
Channel = Literal["operators", "keys", "tensors", "exceptions", "messages", "warnings"]
#: What one channel of one case says. `not_compared`: the case did not pass in both arms, so there is nothing to compare.
ChannelVerdict = Literal["inert", "behavioural", "inconclusive", "harmful", "required", "changed", "not_compared"]
#: What one case says about one patch. `nothing`: it fails alike with and without the patch. `error_changed`: it fails in
#: both arms with another type, place or text.
CaseVerdict = Literal["required", "behavioural", "inconclusive", "harmful", "inert", "error_changed", "nothing"]
PatchVerdict = Literal["required", "behavioural", "inconclusive", "harmful", "inert", "unreached", "branch_unreachable"]
#: Channels that decide a verdict; `messages` and `warnings` are listed beside it and never outrank it.
DECIDING: tuple[Channel, ...] = ("operators", "keys", "tensors", "exceptions")
LISTED: tuple[Channel, ...] = ("messages", "warnings")


# ------------------------------------------------------------------------------------------ what is declared
class OriginInfo(Struct, frozen=True):
    """Where a patch came from; `unknown` where nobody knows."""

    introduced: str = "unknown"
    removed: str = "unknown"
    note: str = ""


class PatchInfo(Struct, frozen=True):
    """A declared patch, as data."""

    id: str
    title: str
    group: str
    targets: tuple[str, ...]
    reason: str
    origin: OriginInfo
    versions: str
    remove_when: str
    source: str  #: file:line of the (first) replacement, relative to the study
    code: str  #: source text of the replacements
    risk: str = ""
    rollback: str = ""


class CaseInfo(Struct, frozen=True):
    """One thing that must keep working: a workload, or one parameter of it."""

    id: str  #: `workload` or `workload[param]`
    workload: str
    covers: tuple[str, ...]  #: patch ids; empty: every patch
    compiled: bool  #: the workload uses torch.compile, operators are recorded through DebugMode
    doc: str


class ProbeInfo(Struct, frozen=True):
    """A direct call of a patch's own branch, to show what it would do if it were reached."""

    id: str
    patch: str
    doc: str


class StudyInfo(Struct, frozen=True):
    """Everything that a study declares."""

    name: str
    title: str
    summary: str
    goals: tuple[str, ...]
    non_goals: tuple[str, ...]
    options: tuple[str, ...]  #: options considered
    not_covered: tuple[str, ...]
    environment: dict[str, str]  #: environment variables of every trial
    seed: int
    patches: tuple[PatchInfo, ...]
    cases: tuple[CaseInfo, ...]
    probes: tuple[ProbeInfo, ...]


# ------------------------------------------------------------------------------------------ what is observed
class ErrorInfo(Struct, frozen=True):
    """An exception that ended a case."""

    type: str  #: qualified name, e.g. `builtins.RuntimeError`
    message: str  #: memory addresses replaced, so that two runs can be compared
    place: str  #: the statement of the workload at which it surfaced, `file:line`, relative to the study
    raised_at: str  #: innermost Python frame, `file:function`, for people


class WarningInfo(Struct, frozen=True):
    category: str
    message: str


class ThreadRecord(Struct, frozen=True):
    """The operators that one thread dispatched to one device, in the thread's own order."""

    role: str  #: `main`, `worker` (started by the workload), `backward` (autograd's device thread)
    device: str
    operators: tuple[str, ...]
    keys: tuple[int, ...]  #: per operator: index into `Observation.key_sets`


class TensorInfo(Struct, frozen=True):
    """A tensor that the workload handed over; its bytes lie in the trial's safetensors file under `Observation.case`."""

    kind: Literal["output", "gradient", "state"]
    dtype: str
    shape: tuple[int, ...]
    device: str
    finite: bool
    strides: tuple[int, ...] = ()  #: in elements
    requires_grad: bool = False
    type: str = "torch.Tensor"  #: qualified name of its class


class Observation(Struct, frozen=True):
    """What one trial recorded of one case."""

    case: str
    outcome: Outcome
    seconds: float
    error: ErrorInfo | None = None
    threads: tuple[ThreadRecord, ...] = ()
    operators_note: str = ""  #: why operators were not recorded, empty when they were
    key_sets: tuple[tuple[str, str], ...] = ()  #: (included, excluded) raw representations, in hex
    keys_before: tuple[str, str] = ("", "")
    keys_after: tuple[str, str] = ("", "")
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    tensor_file: str = ""
    values: dict[str, str] = field(default_factory=dict)  #: outputs that are not tensors, by repr; channel `tensors`
    warnings: tuple[WarningInfo, ...] = ()
    unrecorded: str = ""  #: why it could not be recorded, empty when it was; the case is then not to blame


class ReachRecord(Struct, frozen=True):
    """How often a case entered one patch's replacements, and which of their own branches ran."""

    patch: str
    case: str
    calls: int
    threads: tuple[str, ...]
    branches: int  #: conditional lines of the replacement that do more than hand on to the original
    branches_run: int
    lines_run: tuple[str, ...]  #: `file:line` of those that ran
    compiled: Literal["no", "traced", "unknown"] = "no"


class ProbeRecord(Struct, frozen=True):
    """What a direct probe saw before and after it called the patch's branch."""

    id: str
    patch: str
    what: str
    before: str
    after: str
    error: str = ""

    @property
    def acted(self) -> bool:
        return not self.error and self.before != self.after


# ------------------------------------------------------------------------------------------ what is judged
class ChannelResult(Struct, frozen=True):
    channel: Channel
    verdict: ChannelVerdict
    detail: str = ""  #: one or a few lines for people: what differs, and by how much


class ArmSummary(Struct, frozen=True):
    """One arm of a case, as a report shows it."""

    arm: Literal["A", "A'", "B"]
    outcome: Outcome
    operators: int
    tensors: int
    error: ErrorInfo | None
    seconds: float
    by_thread: tuple[str, ...] = ()  #: e.g. `worker npu:1: 12 operators`
    names: tuple[str, ...] = ()  #: distinct operator names, sorted


class CaseResult(Struct, frozen=True):
    case: str
    doc: str
    compiled: bool
    arms: tuple[ArmSummary, ...]
    channels: tuple[ChannelResult, ...]
    verdict: CaseVerdict
    reach: ReachRecord | None


class ReachSummary(Struct, frozen=True):
    calls: int
    cases_reached: int
    cases: int
    branches: int
    branches_run: int
    compiled: Literal["no", "traced", "unknown"]
    cases_unknown: int = 0  #: cases whose reach was not recorded, because they ended the reach trial

    @property
    def reached(self) -> bool:
        return self.calls > 0 or self.compiled != "no"

    @property
    def branch_ran(self) -> bool | None:
        """None when no call was seen (or only a compiled one), True when the patch's own branch ran, else False."""
        if not self.calls:
            return None
        return self.branches == 0 or self.branches_run > 0


class PatchResult(Struct, frozen=True):
    patch: PatchInfo
    verdict: PatchVerdict
    removable: bool
    because: str  #: one sentence: the calls and cases that the verdict rests on
    reach: ReachSummary
    channels: dict[Channel, ChannelVerdict]  #: strongest over the cases
    cases: tuple[CaseResult, ...]
    probes: tuple[ProbeRecord, ...]
    listed: tuple[str, ...]  #: changed errors, messages and warnings, one line each


class Artefact(Struct, frozen=True):
    path: str
    sha256: str
    bytes: int


class StudyResult(Struct, frozen=True):
    """A judged study: all that a report needs."""

    info: StudyInfo
    environment: dict[str, str]  #: versions of python, torch, the packages, commit, platform, seed …
    started: str  #: ISO 8601, UTC
    seconds: float
    trials: int
    command: str
    patches: tuple[PatchResult, ...]
    artefacts: tuple[Artefact, ...] = ()
