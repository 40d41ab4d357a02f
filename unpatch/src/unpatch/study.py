"""What a study declares: patches, workloads that must keep working without them, direct probes, words for the report.

A study is a `study.py` that defines `study = Study(...)`. This module imports neither torch nor anything that runs a
trial: a workload gets a `Case` to hand its results to, and what it hands over is copied at that moment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from unpatch.errors import UnpatchError
from unpatch.model import CaseInfo, ProbeInfo, StudyInfo, TensorInfo
from unpatch.patches import PatchManager
from unpatch.patches.describe import describe

if TYPE_CHECKING:
    import torch

Workload = TypeVar("Workload", bound=Callable[..., object])
TensorKind = Literal["output", "gradient", "state"]

#: As reprs write one; a number in hex is a value.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
_LARGE = 1 << 16  #: bytes of a numpy array that is compared by its digest


class StudyError(UnpatchError):
    """A study that cannot be used: what is wrong in it and where."""


def plain(value: object) -> str:
    """The repr of a value with memory addresses replaced, so that two processes can be compared.

    Arrays and tensors in it are printed with every element and every digit, or with a digest.
    """
    with _printed_exactly():
        return _ADDRESS.sub(" at 0x…", _digest(value) + repr(value))


def _digest(value: Any) -> str:
    """What stands for the elements of a large numpy array; the text of millions of numbers helps nobody."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray or value.dtype.hasobject or value.nbytes <= _LARGE:
        return ""
    numpy.set_printoptions(threshold=1000)  # until the end of `_printed_exactly`
    return f"sha256 {hashlib.sha256(numpy.ascontiguousarray(value)).hexdigest()} of "


@contextmanager
def _printed_exactly() -> Iterator[None]:
    """By default numpy and torch print a few digits, and only the ends of what is long."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    with ExitStack() as stack:
        if numpy is not None:
            stack.enter_context(numpy.printoptions(threshold=sys.maxsize, floatmode="unique"))
        if torch is not None:
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())  # printing a tensor takes operators
            stack.enter_context(torch._tensor_str.printoptions(threshold=sys.maxsize, precision=17))
        yield


# ------------------------------------------------------------------------------------------ what a workload is handed
class Case:
    """Takes what a workload hands over. Tensors are copied at once: a later in-place change does not alter them."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.tensors: dict[str, torch.Tensor] = {}  #: copies in CPU memory, by name
        self.infos: dict[str, TensorInfo] = {}
        self.values: dict[str, str] = {}

    def output(self, name: str, value: object) -> None:
        """Hand over a result: a tensor, any other value (compared by repr), or lists, tuples and mappings of these.

        The parts of a nested result are named `name.0`, `name.key` and `name.field` (of a dataclass).

        Raises:
            StudyError: this name was already handed over.
        """
        for path, leaf in _leaves(name, value):
            self._take("output", path, leaf)

    def gradient(self, name: str, gradient: torch.Tensor | None) -> None:
        """Hand over a gradient; a missing one (None) is a value like any other.

        Raises:
            StudyError: this name was already handed over.
        """
        self._take("gradient", name, gradient)

    def state(self, owner: Any, name: str = "state") -> None:
        """Hand over the parameters and buffers of a module, the state of an optimizer, or a mapping of tensors.

        Args:
            owner: anything with `named_parameters` and `named_buffers`, or with `state_dict`, or a mapping.
            name: the prefix of the parts' names; give another one to hand over two owners.

        Raises:
            StudyError: `owner` is none of these, or a name was already handed over.
        """
        if hasattr(owner, "named_parameters") and hasattr(owner, "named_buffers"):
            parts: Mapping[Any, object] = dict([*owner.named_parameters(), *owner.named_buffers()])
        elif hasattr(owner, "state_dict"):
            parts = owner.state_dict()
        elif isinstance(owner, Mapping):
            parts = owner
        else:
            raise StudyError(
                f"{self.id}: case.state() takes a module, an optimizer or a mapping, not {type(owner).__qualname__}."
            )
        for path, leaf in _leaves(name, parts):
            self._take("state", path, leaf)

    def _take(self, kind: TensorKind, name: str, leaf: object) -> None:
        if name in self.infos or name in self.values:
            raise StudyError(f"{self.id}: {name!r} was handed over twice; give each result its own name.")
        if isinstance(leaf, _tensor_type()):
            self.infos[name], self.tensors[name] = _copy(kind, name, leaf)
        else:
            self.values[name] = plain(leaf)


class Probe:
    """Takes what a direct probe sees before and after it calls a patch's own branch."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.saw: dict[Literal["before", "after"], str] = {}
        self.words: list[str] = []

    def before(self, value: object) -> None:
        """What is seen before the patch's branch is called, kept by repr.

        Raises:
            StudyError: called twice.
        """
        self._see("before", value)

    def after(self, value: object) -> None:
        """What is seen after the patch's branch was called, kept by repr.

        Raises:
            StudyError: called twice.
        """
        self._see("after", value)

    def says(self, text: str) -> None:
        """Add a sentence about what was probed to the report."""
        self.words.append(text)

    def _see(self, when: Literal["before", "after"], value: object) -> None:
        if when in self.saw:
            raise StudyError(f"{self.id}: probe.{when}() was called twice; a probe looks once before and once after.")
        self.saw[when] = plain(value)


def _tensor_type() -> Any:
    """What `isinstance` takes. Who hands over a tensor has imported torch; a study without torch stays without."""
    imported = sys.modules.get("torch")
    return () if imported is None else imported.Tensor


def _copy(kind: TensorKind, name: str, tensor: torch.Tensor) -> tuple[TensorInfo, torch.Tensor]:
    """Describe and copy a tensor; the operators that this takes are ours and not the workload's, so modes are off."""
    from torch.utils._python_dispatch import _disable_current_modes

    from unpatch.observe.tensors import copied, tensor_info

    with _disable_current_modes():
        return tensor_info(kind, tensor, name), copied(tensor, name)


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The parts of a nested result under their names, and under its own name its class."""
    if isinstance(value, Mapping):
        parts = [*value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [*enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    else:
        yield name, value
        return
    yield name, type(value)
    for key, part in parts:
        yield from _leaves(f"{name}.{key}", part)


# ------------------------------------------------------------------------------------------ what is declared
@dataclass(frozen=True, slots=True)
class DeclaredCase:
    """One case with the call that runs it."""

    info: CaseInfo
    run: Callable[[Case], object]


@dataclass(frozen=True, slots=True)
class DeclaredProbe:
    """One direct probe with the call that runs it."""

    info: ProbeInfo
    run: Callable[[Probe], object]


@dataclass(slots=True)
class Study:
    """Patches, and what must keep working without them.

    Args:
        name: short, for files and tables.
        title: a line for people.
        summary: a paragraph for the report.
        patches: the manager whose patches are ablated.
        environment: environment variables of every trial.
        seed: what `random`, numpy and torch are seeded with before each case.
        goals, non_goals, options, not_covered: sentences for the report.
    """

    name: str
    title: str
    summary: str = ""
    patches: PatchManager = field(kw_only=True)
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    goals: Sequence[str] = ()
    non_goals: Sequence[str] = ()
    options: Sequence[str] = ()
    not_covered: Sequence[str] = ()
    cases: list[DeclaredCase] = field(default_factory=list, init=False)
    probes: list[DeclaredProbe] = field(default_factory=list, init=False)

    def workload(
        self,
        covers: Iterable[str] = (),
        params: Iterable[object] | Mapping[str, object] | None = None,
        compiled: bool = False,
    ) -> Callable[[Workload], Workload]:
        """Declare a function as something that must keep working; it is called as `f(case)`, or `f(case, param)`.

        Args:
            covers: ids of the patches that it is evidence for; none: every patch.
            params: one case for each, named `workload[param]`; a mapping names them by its keys.
            compiled: the workload uses `torch.compile`.

        Raises:
            StudyError: no params, or a case of that name exists.
        """
        covered = _ids("covers", covers)

        def declare(function: Workload) -> Workload:
            for suffix, arguments in _parameters(function, params):
                info = CaseInfo(
                    id=f"{function.__name__}{suffix}",
                    workload=function.__name__,
                    covers=covered,
                    compiled=compiled,
                    doc=_first_paragraph(function),
                )
                if any(case.info.id == info.id for case in self.cases):
                    raise StudyError(
                        f"Study {self.name}: two cases are named {info.id!r}; rename a workload or a param."
                    )
                self.cases.append(DeclaredCase(info, _call(function, arguments)))
            return function

        return declare

    def probe(self, patch_id: str) -> Callable[[Workload], Workload]:
        """Declare a function that calls a patch's own branch directly; it is called as `f(probe)`.

        Raises:
            StudyError: a probe of that name exists.
        """

        def declare(function: Workload) -> Workload:
            info = ProbeInfo(id=function.__name__, patch=patch_id, doc=_first_paragraph(function))
            if any(probe.info.id == info.id for probe in self.probes):
                raise StudyError(f"Study {self.name}: two probes are named {info.id!r}; rename one.")
            self.probes.append(DeclaredProbe(info, function))
            return function

        return declare

    def activate(self, transform: Callable[..., Any] | None = None) -> object:
        """Apply the patches, less the suppressed ones; `transform` is what the reach trial writes in their place."""
        return self.patches.apply_all(transform=transform)

    def describe(self, root: Path) -> StudyInfo:
        """Everything that is declared, as data, with sources relative to `root`.

        Raises:
            StudyError: there is no patch or no workload, or a case or a probe names a patch that is not declared.
        """
        patches = tuple(describe(patch, root) for patch in self.patches.patches)
        self._check({patch.id for patch in patches})
        return StudyInfo(
            name=self.name,
            title=self.title,
            summary=self.summary,
            goals=tuple(self.goals),
            non_goals=tuple(self.non_goals),
            options=tuple(self.options),
            not_covered=tuple(self.not_covered),
            environment=dict(self.environment),
            seed=self.seed,
            patches=patches,
            cases=tuple(case.info for case in self.cases),
            probes=tuple(probe.info for probe in self.probes),
        )

    def _check(self, declared: set[str]) -> None:
        if not declared:
            raise StudyError(f"Study {self.name}: its manager {self.patches.name!r} declares no patch.")
        if not self.cases:
            raise StudyError(f"Study {self.name} has no workload; declare one with @study.workload().")
        named = [(case.info.id, id) for case in self.cases for id in case.info.covers]
        named += [(probe.info.id, probe.info.patch) for probe in self.probes]
        for where, id in named:
            if id not in declared:
                raise StudyError(
                    f"Study {self.name}: {where} names the patch {id!r}, which is not declared; "
                    f"declared are {', '.join(sorted(declared))}."
                )


def _ids(what: str, ids: Iterable[str]) -> tuple[str, ...]:
    if isinstance(ids, str):
        raise StudyError(f"{what}={ids!r} is one string; give a list of patch ids.")
    return tuple(ids)


def _parameters(
    function: Callable[..., object], params: Iterable[object] | Mapping[str, object] | None
) -> list[tuple[str, tuple[object, ...]]]:
    """(suffix of the id, arguments) for each case of a workload."""
    if params is None:
        return [("", ())]
    if isinstance(params, str):
        raise StudyError(f"{function.__name__}: params={params!r} is one string; give a list.")
    named = params.items() if isinstance(params, Mapping) else [(_name(param), param) for param in params]
    cases: list[tuple[str, tuple[object, ...]]] = [(f"[{name}]", (param,)) for name, param in named]
    if not cases:
        raise StudyError(f"{function.__name__}: params is empty, so that the workload would never run.")
    return cases


def _name(param: object) -> str:
    name = str(getattr(param, "__name__", param))
    if _ADDRESS.search(name):
        raise StudyError(f"{name} has another name in each process; give params as a mapping from names to values.")
    return name


def _call(function: Callable[..., object], arguments: tuple[object, ...]) -> Callable[[Case], object]:
    return lambda case: function(case, *arguments)


def _first_paragraph(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


# ------------------------------------------------------------------------------------------ loading
def study_file(path: Path) -> Path:
    """The file of a study that is given as a folder with a `study.py`, or as a file.

    Raises:
        StudyError: there is no such file.
    """
    file = path / "study.py" if path.is_dir() else path
    if not file.is_file():
        raise StudyError(f"There is no study at {path}: give a folder with a study.py, or a Python file.")
    return file.resolve()


def load_study(path: Path) -> Study:
    """Import a study. Its folder is put on `sys.path`, for its siblings: meant for a process of its own.

    Raises:
        StudyError: there is no such file, it is named like a module in use, it cannot be imported (with its own
            traceback), or it defines no `study`.
    """
    file = study_file(path)
    sys.path.insert(0, str(file.parent))
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise StudyError(f"{file.name} is no Python file.")
    taken = sys.modules.get(file.stem)
    if file.stem in sys.stdlib_module_names or getattr(taken, "__file__", str(file)) != str(file):
        raise StudyError(f"{file.name} has the name of a module that others import; rename it.")
    module = module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[file.stem]
        raise StudyError(f"{file.name} cannot be imported:\n{_own_traceback(error, file)}") from error
    return _study_of(module, file)


def _own_traceback(error: BaseException, file: Path) -> str:
    """The traceback from the study's own frame on: how it came to be imported tells its author nothing."""
    shown = traceback.TracebackException.from_exception(error)
    frames = list(shown.stack)
    first = next((index for index, frame in enumerate(frames) if frame.filename == str(file)), len(frames))
    shown.stack = traceback.StackSummary.from_list(frames[first:])
    return "".join(shown.format()).replace(f"{file.parent}/", "").rstrip()


def _study_of(module: ModuleType, file: Path) -> Study:
    study = getattr(module, "study", None)
    if not isinstance(study, Study):
        found = "no `study`" if study is None else f"a `study` that is a {type(study).__qualname__}"
        raise StudyError(f"{file.name} defines {found}; define `study = Study(...)` of unpatch.study.")
    return study
