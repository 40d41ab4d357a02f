"""One study from its path to its result: describe, run the arms, compare, judge.

The arms A and A′ and the reach trial run every case once and serve all patches; each patch adds one arm B. Where A and
B differ although B ran fewer cases, a control (A with B's cases) makes sure that the patch made the difference.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shlex
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from unpatch import __version__
from unpatch.ablate.compare import Comparison, compare
from unpatch.ablate.errors import UnknownPatchError
from unpatch.ablate.executor import Executor
from unpatch.ablate.protocol import ORDERS, Described
from unpatch.ablate.store import STORE, TRIALS, Store
from unpatch.ablate.trial import Event, Progress, Trial, TrialResult, silent
from unpatch.ablate.verdict import (
    case_verdict,
    channel_results,
    patch_verdict,
    strongest_by_channel,
    summarise_reach,
)
from unpatch.model import (
    ArmSummary,
    Artefact,
    CaseInfo,
    CaseResult,
    Channel,
    ChannelResult,
    Observation,
    PatchInfo,
    PatchResult,
    ProbeRecord,
    ReachRecord,
    StudyInfo,
    StudyResult,
)
from unpatch.study import study_file


def run_study(
    path: Path,
    out: Path,
    *,
    jobs: int = 2,
    timeout: float = 120.0,
    resume: bool = False,
    only: Collection[str] = (),
    progress: Progress = silent,
) -> StudyResult:
    """Run a study and judge its patches.

    Args:
        path: a folder with a `study.py`, or a Python file.
        out: folder for the store and the trials' files; created if need be.
        jobs: child processes at once.
        timeout: seconds that a case may take.
        resume: use the finished trials in `out`; otherwise they are removed.
        only: ids of the patches to judge; none: all.
        progress: called with an `Event`, from several threads.

    Raises:
        StudyError: there is no study at `path`.
        AblationError: the study cannot be imported, or declares nonsense.
        UnknownPatchError: `only` names a patch that is not declared.
        StoreMismatchError: `resume`, and the trials in `out` are of other sources, versions or options.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unpatch-") as scratch:
        # Not in `out`: a study that cannot even be imported must not cost the evidence of an earlier run.
        described = Executor(path, Path(scratch), timeout=timeout, progress=progress).describe()
    info = described.info
    patches, cases = _selected(info, only)
    trials = _plan(described, patches, cases)
    executor = Executor(
        path, out, environment=info.environment, seed=info.seed, jobs=jobs, timeout=timeout, progress=progress
    )
    with contextlib.closing(Store(out, _fingerprint(described, timeout), resume=resume)) as store:
        results = _run_trials(executor, store, trials, progress, 0)
        controls = _controls(_Judge(out, results), patches, cases, info)
        results |= _run_trials(executor, store, controls, progress, len(results))
    judge = _Judge(out, results)
    return StudyResult(
        info=info,
        environment=_environment(described, study_file(path)),
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - clock,
        trials=len(results),
        command=_command(path, out, jobs, timeout, resume, only),
        patches=tuple(judge.patch(patch, _covering(cases, patch), info) for patch in patches),
        artefacts=_artefacts(out),
    )


# ------------------------------------------------------------------------------------------ planning
def _selected(info: StudyInfo, only: Collection[str]) -> tuple[list[PatchInfo], list[CaseInfo]]:
    declared = [patch.id for patch in info.patches]
    unknown = [id for id in only if id not in declared]
    if unknown:
        raise UnknownPatchError(
            f"Study {info.name} declares no patch {', '.join(unknown)}; it declares {', '.join(declared)}."
        )
    patches = [patch for patch in info.patches if not only or patch.id in only]
    cases = [case for case in info.cases if any(case in _covering([case], patch) for patch in patches)]
    return patches, cases


def _covering(cases: Sequence[CaseInfo], patch: PatchInfo) -> list[CaseInfo]:
    return [case for case in cases if not case.covers or patch.id in case.covers]


def _plan(described: Described, patches: Sequence[PatchInfo], cases: Sequence[CaseInfo]) -> list[Trial]:
    every = tuple(case.id for case in cases)
    probes = tuple(probe.id for probe in described.info.probes if any(probe.patch == patch.id for patch in patches))
    trials = [
        Trial("a", "A, all patches", "observe", every),
        Trial("a-again", "A′, all patches again", "observe", every),
        Trial("reach", "reach", "reach", every),
        Trial("probes", "probes", "probe", probes),
    ]
    for patch in patches:
        covering = tuple(case.id for case in _covering(cases, patch))
        suppressed = (f"{described.manager}/{patch.id}",)
        trials.append(Trial(_arm_b(described.info, patch), f"B, without {patch.id}", "observe", covering, suppressed))
    return [trial for trial in trials if trial.cases]


def _arm_b(info: StudyInfo, patch: PatchInfo) -> str:
    """The name of a patch's arm B: its place among all patches, since an id may hold what no file name can."""
    readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in patch.id)[:40]
    return f"b-{info.patches.index(patch) + 1:03}-{readable}"


def _controls(judge: _Judge, patches: Sequence[PatchInfo], cases: Sequence[CaseInfo], info: StudyInfo) -> list[Trial]:
    """A once more for each patch that seems to make a difference, with the same cases as its arm B.

    Cases of one process can depend on those before them (caches, lazy initialisation), and B ran fewer.
    """
    controls = {}
    for patch in patches:
        covering = _covering(cases, patch)
        differs = any(case.verdict in _DIFFERENCES for case in judge.patch(patch, covering, info).cases)
        if differs and len(covering) < len(cases):
            control = _control(covering)
            controls[control.name] = control  # patches that the same cases cover share one
    return list(controls.values())


_DIFFERENCES = ("required", "behavioural", "harmful", "error_changed")


def _control(covering: Sequence[CaseInfo]) -> Trial:
    ids = tuple(case.id for case in covering)
    digest = hashlib.sha256("\n".join(ids).encode()).hexdigest()[:8]
    return Trial(f"control-{digest}", f"A, control {digest}", "observe", ids)


def _run_trials(
    executor: Executor, store: Store, trials: Sequence[Trial], progress: Progress, before: int
) -> dict[str, TrialResult]:
    """Run what the store has not got. `before` is the number of trials that the study has run until now."""
    progress(Event("planned", "", before, before + len(trials)))
    results: dict[str, TrialResult] = {}
    due = []
    for trial in trials:
        kept = store.get(trial)
        if kept is None:
            due.append(trial)
        else:
            results[trial.name] = kept
            progress(Event("reused", trial.title, len(trial.cases), len(trial.cases)))
    with contextlib.closing(executor.run(due)) as running:
        for result in running:
            store.put(result)
            results[result.trial.name] = result
    return results


# ------------------------------------------------------------------------------------------ judging
#: The reach trial has no recorder that would keep Dynamo from compiling.
_EAGER = "the arms ran eagerly what the program compiles: declare the workload with compiled=True"


class _Judge:
    """Turns finished trials into results; what A and A′ say of a case is compared once, for all patches."""

    def __init__(self, out: Path, results: Mapping[str, TrialResult]) -> None:
        self._out = out
        self._results = results
        self._noise: dict[str, dict[Channel, Comparison]] = {}

    def patch(self, patch: PatchInfo, cases: Sequence[CaseInfo], info: StudyInfo) -> PatchResult:
        arm_a = _control(cases).name if _control(cases).name in self._results else "a"
        judged = tuple(self._case(patch, case, arm_a, _arm_b(info, patch)) for case in cases)
        reach = summarise_reach([case.reach for case in judged])
        judgement = patch_verdict(judged, reach, self._not_ablated(patch, arm_a, _arm_b(info, patch)))
        return PatchResult(
            patch=patch,
            verdict=judgement.verdict,
            removable=judgement.removable,
            because=judgement.because,
            reach=reach,
            channels=strongest_by_channel(judged),
            cases=judged,
            probes=self._probes(patch, info),
            listed=tuple(line for case in judged for line in _listed(case)),
        )

    def _not_ablated(self, patch: PatchInfo, arm_a: str, arm_b: str) -> str:
        """Why the two arms are no test of the patch, empty if they are one. An arm that never came so far is a failure."""
        with_it, without = (self._results[arm].applied if arm in self._results else None for arm in (arm_a, arm_b))
        if with_it is not None and patch.id not in with_it:
            return "It was applied in no arm, because it writes nothing or something else disables it."
        if without is not None and patch.id in without:
            return "It was applied in arm B too: the study applies it before it can be suppressed."
        return ""

    def _case(self, patch: PatchInfo, case: CaseInfo, arm_a: str, arm_b: str) -> CaseResult:
        a, a2, b = (self._results[name].observations[case.id] for name in (arm_a, "a-again", arm_b))
        if case.id not in self._noise:
            self._noise[case.id] = compare(self._results["a"].observations[case.id], a2, self._out)
        reach = self._reach(patch, case)
        unseen = _EAGER if reach is not None and reach.compiled == "traced" and not case.compiled else ""
        channels = channel_results(a, b, self._noise[case.id], compare(a, b, self._out), unseen)
        return CaseResult(
            case=case.id,
            doc=case.doc,
            compiled=case.compiled,
            arms=(_arm("A", a), _arm("A'", a2), _arm("B", b)),
            channels=channels,
            verdict=case_verdict(a, a2, b, channels),
            reach=reach,
        )

    def _reach(self, patch: PatchInfo, case: CaseInfo) -> ReachRecord | None:
        records = self._results["reach"].reach.get(case.id, ())
        return next((record for record in records if record.patch == patch.id), None)

    def _probes(self, patch: PatchInfo, info: StudyInfo) -> tuple[ProbeRecord, ...]:
        mine = {probe.id: probe for probe in info.probes if probe.patch == patch.id}
        done = self._results["probes"].probes if mine else ()
        # A probe that ended its process could not say whose it is.
        return tuple(
            msgspec.structs.replace(record, patch=patch.id, what=record.what or mine[record.id].doc)
            for record in done
            if record.id in mine
        )


def _arm(arm: str, observation: Observation) -> ArmSummary:
    return ArmSummary(
        arm=arm,  # type: ignore[arg-type]
        outcome=observation.outcome,
        operators=sum(len(thread.operators) for thread in observation.threads),
        tensors=len(observation.tensors),
        error=observation.error,
        seconds=observation.seconds,
        by_thread=tuple(
            f"{f'{thread.role} {thread.device}'.strip()}: {len(thread.operators)} operators"
            for thread in observation.threads
        ),
        names=tuple(sorted({operator for thread in observation.threads for operator in thread.operators})),
    )


def _listed(case: CaseResult) -> list[str]:
    """What changed without deciding anything: errors, messages and warnings, one line each."""
    changed = [channel for channel in case.channels if channel.verdict == "changed"]
    exceptions = any(channel.channel == "exceptions" for channel in changed)
    return [
        f"{case.case}: {_noun(channel)}: {' · '.join(channel.detail.splitlines())}"
        for channel in changed
        # A changed error tells both messages already.
        if not (exceptions and channel.channel == "messages")
    ]


def _noun(channel: ChannelResult) -> str:
    return {"exceptions": "error changed", "messages": "message changed"}.get(channel.channel, "warnings changed")


# ------------------------------------------------------------------------------------------ circumstances
def _fingerprint(described: Described, timeout: float) -> dict[str, str]:
    """What two trials must share to be comparable."""
    versions = {f"version of {name}": version for name, version in described.versions.items()}
    declared = hashlib.sha256(repr((described.info.environment, described.info.seed)).encode()).hexdigest()
    return {
        **{f"source of {name}": digest for name, digest in described.sources.items()},
        **versions,
        "version of python": platform.python_version(),
        "version of unpatch": __version__,
        "environment and seed": declared,
        "timeout": f"{timeout:g}",
    }


def _environment(described: Described, file: Path) -> dict[str, str]:
    """Versions, commit, platform and seed; no names of hosts or users, no absolute paths."""
    sources = hashlib.sha256()
    for name, digest in sorted(described.sources.items()):
        sources.update(f"{name} {digest}\n".encode())
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.machine()}",
        "unpatch": __version__,
        **described.versions,
        "study commit": _commit(file.parent),
        "sources sha256": sources.hexdigest(),
        "seed": str(described.info.seed),
    }


def _commit(folder: Path) -> str:
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return "not in a git repository"
    return f"{commit} with uncommitted changes" if changes else commit


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def _command(path: Path, out: Path, jobs: int, timeout: float, resume: bool, only: Collection[str]) -> str:
    words = ["unpatch", "ablate", _relative(path), "--out", _relative(out)]
    words += ["--jobs", str(jobs), "--timeout", f"{timeout:g}"]
    words += ["--resume"] * resume
    words += [word for id in only for word in ("--only", id)]
    return shlex.join(words)


def _relative(path: Path) -> str:
    """A path as it can be told to others: below the working directory, or its name alone."""
    resolved = path.resolve()
    return str(resolved.relative_to(Path.cwd())) if resolved.is_relative_to(Path.cwd()) else resolved.name


def _artefacts(out: Path) -> tuple[Artefact, ...]:
    """The store and what each child was ordered; every observation is in the store."""
    files = [out / STORE, *sorted((out / TRIALS).glob(f"*/*/{ORDERS}"))]
    return tuple(
        Artefact(file.relative_to(out).as_posix(), hashlib.sha256(content).hexdigest(), len(content))
        for file in files
        for content in [file.read_bytes()]
    )
