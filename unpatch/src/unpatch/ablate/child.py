"""The process of a trial, `python -m unpatch.ablate.child ORDERS.json`: imports a study, patches, and runs cases.

It answers in a file of its own, so that nothing that a workload prints can be mistaken for an answer; its stdout and
stderr are files of the parent's. Which patches are suppressed it learns, like everyone, from `UNPATCH_DISABLE`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import hashlib
import importlib.metadata
import os
import random
import signal
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter  # by name: a patch of `time` is for the workload
from types import CodeType, ModuleType

import msgspec

from unpatch.ablate.protocol import (
    ANSWERS,
    Begin,
    Described,
    Done,
    Observed,
    Orders,
    Probed,
    Reached,
    Ready,
    Unusable,
)
from unpatch.answers import AnswerWriter
from unpatch.model import ErrorInfo, Observation, ProbeRecord
from unpatch.observe.errors import describe_error
from unpatch.observe.keys import current_keys
from unpatch.observe.operators import record_operators
from unpatch.observe.own_code import own_code_in
from unpatch.observe.reach import Reach
from unpatch.observe.tensors import save_tensors
from unpatch.observe.warned import record_warnings
from unpatch.study import Case, DeclaredCase, DeclaredProbe, Probe, Study, StudyError, load_study

NO_TORCH = "not recorded: torch was not imported"


def main(path: str) -> None:
    """Follow the orders in the file `path`."""
    orders = msgspec.json.decode(Path(path).read_bytes(), type=Orders)
    answers = AnswerWriter(Path(orders.out) / ANSWERS, in_fork=lambda: os._exit(0))  # a fork that got here is no trial
    # A crash leaves its Python stack in stderr, and the parent may ask a hanging case for its own.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    _die_with(os.getppid())
    root = Path(orders.study).parent
    try:
        study = load_study(Path(orders.study))
        if orders.mode == "describe":
            info = study.describe(root)
            answers.write(Described(info, study.patches.name, _sources(root), _versions(study, root)))
            return
        # By the variable alone, a study that clears its environment would apply what this trial is to do without.
        study.patches.disable(*orders.suppressed)
        reach = Reach(root) if orders.mode == "reach" else None
        study.activate(transform=reach.transform if reach is not None else None)
    except BaseException as error:
        text = error.message if isinstance(error, StudyError) else "".join(traceback.format_exception(error))
        answers.write(Unusable(describe_error(error, root), text))
        return
    answers.write(Ready(tuple(patch.id for patch in study.patches.applied)))
    if orders.mode == "probe":
        probes = {probe.info.id: probe for probe in study.probes}
        for id in orders.cases:
            answers.write(Begin(id))
            _seed(orders.seed)
            answers.write(Probed(_probe(probes[id], root)))
    else:
        cases = {case.info.id: case for case in study.cases}
        patched = _patched(study)
        for number, id in enumerate(orders.cases):
            answers.write(Begin(id))
            _seed(orders.seed)
            if reach is not None:
                answers.write(_reach(cases[id], reach))
            else:
                file = Path(orders.out) / f"{number:04}.safetensors"
                answers.write(Observed(_observe(cases[id], root, patched, file, Path(orders.base))))
    answers.write(Done())


def _die_with(parent: int) -> None:
    """Have the kernel end this process when the thread of `parent` that started it ends, even by SIGKILL."""
    if sys.platform == "linux":
        set_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _seed(seed: int) -> None:
    """Seed what is there; what a case imports itself it must seed itself."""
    random.seed(seed)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    if torch is not None:
        torch.manual_seed(seed)


# ------------------------------------------------------------------------------------------ what a case is asked
def _patched(study: Study) -> tuple[CodeType, ...]:
    """The code of all replacements."""
    return tuple(
        own.code
        for patch in study.patches.patches
        for write in patch.writes
        for own in own_code_in(write.replacement, patch.declared_at.file)
    )


def _observe(declared: DeclaredCase, root: Path, patched: tuple[CodeType, ...], file: Path, base: Path) -> Observation:
    """Run a case and record it. A patch may break what records it: that is no failure of the case."""
    try:
        return _recorded(declared, root, patched, file, base)
    except Exception as error:
        info = describe_error(error, root)
        why = f"{info.type} in {info.raised_at}: {info.message}"
        return Observation(declared.info.id, "failed", 0.0, info, operators_note=why, unrecorded=why)


def _recorded(declared: DeclaredCase, root: Path, patched: tuple[CodeType, ...], file: Path, base: Path) -> Observation:
    case = Case(declared.info.id)
    torch = "torch" in sys.modules
    before = current_keys() if torch else ("", "")
    operators = record_operators(declared.info.compiled) if torch else None
    started = perf_counter()
    with record_warnings(root) as warned, operators or contextlib.nullcontext():
        error = _run(declared, case, root, patched)
    seconds = perf_counter() - started
    after = current_keys() if torch else ("", "")
    if case.tensors:
        save_tensors(file, case.tensors)
    return Observation(
        case=case.id,
        outcome="passed" if error is None else "failed",
        seconds=seconds,
        error=error,
        threads=operators.threads if operators is not None else (),
        operators_note=operators.note if operators is not None else NO_TORCH,
        key_sets=operators.key_sets if operators is not None else (),
        keys_before=before,
        keys_after=after,
        tensors=case.infos,
        tensor_file=file.relative_to(base).as_posix() if case.tensors else "",
        values=case.values,
        warnings=warned.warnings,
    )


def _run(declared: DeclaredCase, case: Case, root: Path, patched: tuple[CodeType, ...]) -> ErrorInfo | None:
    """Run a case; SystemExit and KeyboardInterrupt that it raises are its own failures, and not the trial's."""
    try:
        declared.run(case)
    except BaseException as error:
        return describe_error(error, root, patched)
    return None


def _reach(declared: DeclaredCase, reach: Reach) -> Reached:
    with reach.case(declared.info.id):
        # What the case comes to is observed in other trials; here only its calls count.
        with contextlib.suppress(BaseException):
            declared.run(Case(declared.info.id))
    return Reached(declared.info.id, reach.records(declared.info.id))


def _probe(declared: DeclaredProbe, root: Path) -> ProbeRecord:
    probe = Probe(declared.info.id)
    told = ""
    try:
        declared.run(probe)
    except BaseException as error:
        info = describe_error(error, root)
        told = f"{info.type}: {info.message}"
    if not told and len(probe.saw) < 2:
        told = "the probe did not look both before and after"
    return ProbeRecord(
        id=probe.id,
        patch=declared.info.patch,
        what=" ".join([*filter(None, [declared.info.doc]), *probe.words]),
        before=probe.saw.get("before", ""),
        after=probe.saw.get("after", ""),
        error=told,
    )


# ------------------------------------------------------------------------------------------ what a study is made of
def _sources(root: Path) -> dict[str, str]:
    """sha256 of the Python files in the study's folder, and of every imported file that no package manager installed.

    The versions of installed packages stand for their files; a package under development has only its files.
    """
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    files = {file.name: file for file in root.glob("*.py")}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name != "__main__" and name.partition(".")[0] != "unpatch":
            path = Path(file).resolve()
            if path.parent != root and not any(path.is_relative_to(folder) for folder in installed):
                files[name] = path
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in sorted(files.items()) if file.is_file()
    }


def _versions(study: Study, root: Path) -> dict[str, str]:
    """Versions of the distributions that the study's own modules import, or whose attributes its patches write."""
    tops = {target.partition(".")[0] for patch in study.patches.patches for target in patch.targets}
    for module in _own_modules(root):
        for value in list(vars(module).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            if isinstance(name, str):
                tops.add(name.partition(".")[0])
    distributions = importlib.metadata.packages_distributions()
    names = {name for top in tops for name in distributions.get(top, ())} - {"unpatch"}
    versions = {name: importlib.metadata.version(name) for name in sorted(names)}
    torch = sys.modules.get("torch")
    if torch is not None:
        versions["torch commit"] = str(torch.version.git_version)
    return versions


def _own_modules(root: Path) -> Iterator[ModuleType]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).is_relative_to(root):
            yield module


if __name__ == "__main__":
    main(sys.argv[1])
