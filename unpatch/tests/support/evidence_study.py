"""A study by hand: every verdict once, and texts that try to break out of the document."""

from __future__ import annotations

from unpatch.model import (
    ArmSummary,
    Artefact,
    BranchLine,
    CaseInfo,
    CaseResult,
    Channel,
    ChannelResult,
    ChannelVerdict,
    ErrorInfo,
    OriginInfo,
    PatchInfo,
    PatchResult,
    PatchVerdict,
    ProbeInfo,
    ProbeRecord,
    ReachRecord,
    ReachSummary,
    StudyInfo,
    StudyResult,
)

CHANNELS: tuple[Channel, ...] = ("operators", "keys", "tensors", "exceptions", "messages", "warnings")

NASTY = "<script>alert(1)</script> | `tick` ``two`` \\| *bold* _it_ [link](http://x) &amp; @someone #1 :100: $x$"
RIGHT_TO_LEFT = "שלום \u202egnirts\u202c 👩‍💻 naïve"
LONG = "E" * 10_000
LINES = "first line\nsecond | line\r\n\n```\nfence\n```\n<b>\x1b[31mred\x00"


def error(message: str, kind: str = "builtins.RuntimeError") -> ErrorInfo:
    return ErrorInfo(kind, message, "workloads.py:12", "torch/nn/modules/module.py:share_memory")


def arm(name: str, failure: ErrorInfo | None = None, names: tuple[str, ...] = ("aten::add.Tensor",)) -> ArmSummary:
    return ArmSummary(
        arm=name,  # type: ignore[arg-type]
        outcome="failed" if failure else "passed",
        operators=0 if failure else 40,
        tensors=0 if failure else 3,
        error=failure,
        seconds=0.031,
        by_thread=() if failure else ("main npu:0: 28 operators", "backward npu:0: 12 operators"),
        names=() if failure else names,
    )


def channels(detail: str = "", **verdicts: ChannelVerdict) -> tuple[ChannelResult, ...]:
    """All channels, inert unless said otherwise; `detail` explains those that are not."""
    return tuple(
        ChannelResult(name, verdicts.get(name, "inert"), detail if name in verdicts else "") for name in CHANNELS
    )


NOT_COMPARED: dict[str, ChannelVerdict] = dict.fromkeys(("operators", "keys", "tensors"), "not_compared")


def reach(patch: str, case: str, calls: int = 40, branches: int = 2, run: int = 0) -> ReachRecord:
    lines = tuple(f"patches.py:{20 + n}" for n in range(run))
    return ReachRecord(patch, case, calls, ("main", "backward") if calls else (), branches, run, lines)


def case(patch: str, name: str, **changes: object) -> CaseResult:
    """An inert case, less what `changes` says."""
    fields: dict[str, object] = {
        "case": name,
        "doc": "A step of training",
        "compiled": False,
        "arms": (arm("A"), arm("A'"), arm("B")),
        "channels": channels(),
        "verdict": "inert",
        "reach": reach(patch, name),
    }
    return CaseResult(**{**fields, **changes})  # type: ignore[arg-type]


def patch(
    name: str,
    verdict: PatchVerdict,
    because: str,
    cases: tuple[CaseResult, ...],
    *,
    summary: ReachSummary | None = None,
    probes: tuple[ProbeRecord, ...] = (),
    listed: tuple[str, ...] = (),
    listed_frames: tuple[str, ...] = (),
    **declared: object,
) -> PatchResult:
    fields: dict[str, object] = {
        "id": name,
        "title": name.replace("-", " ").capitalize(),
        "group": "api",
        "targets": ("torch.Tensor.type",),
        "reason": "The accelerator's tensor types were not known to the original.",
        "origin": OriginInfo(),
        "versions": "torch>=2.1",
        "remove_when": "torch>=2.13",
        "source": "patches.py:14",
        "code": "def replacement(self, dtype=None):\n    return original(replacement)(self, dtype)\n",
    }
    merged: dict[str, ChannelVerdict] = {}
    strength = ("not_compared", "inert", "changed", "harmful", "inconclusive", "behavioural", "required")
    for one in cases:
        for channel in one.channels:
            seen = merged.get(channel.channel, "not_compared")
            merged[channel.channel] = max(seen, channel.verdict, key=strength.index)
    records = [one.reach for one in cases if one.reach]
    return PatchResult(
        patch=PatchInfo(**{**fields, **declared}),  # type: ignore[arg-type]
        verdict=verdict,
        removable=verdict in ("harmful", "inert", "unreached", "branch_unreachable"),
        because=because,
        reach=summary
        or ReachSummary(
            calls=sum(record.calls for record in records),
            cases_reached=sum(record.calls > 0 for record in records),
            cases=len(cases),
            branches=2,
            branches_run=max((record.branches_run for record in records), default=0),
            compiled="no",
        ),
        channels=merged,  # type: ignore[arg-type]
        cases=cases,
        probes=probes,
        listed=listed,
        listed_frames=listed_frames,
    )


def _patches() -> tuple[PatchResult, ...]:
    internal = ("aten::_adaptive_avg_pool2d", "aten::native_batch_norm", "aten::_to_copy", "aten::nll_loss_forward")
    seen = tuple(arm(name, names=internal) for name in ("A", "A'", "B"))
    keys = patch(
        "autograd-keys",
        "branch_unreachable",
        "It was called 80 times in 2 of 2 cases and none of its 2 own branches ran.",
        tuple(case("autograd-keys", f"operator[{name}]", arms=seen) for name in ("batch_norm", "to")),
        probes=(
            ProbeRecord("exclusion", "autograd-keys", "AutogradFunctionality excluded", "True", "False"),
            ProbeRecord("same", "autograd-keys", "included keys", "0x10", "0x10"),
            ProbeRecord("broken", "autograd-keys", "excluded keys", "", "", error=NASTY),
        ),
        origin=OriginInfo("2024-04-29 by a6e615ee59b3", "2026-08-07 by d1d86400a", "Came with the stream sanitizer."),
        group="npu",
        remove_when="",
        versions="",
    )
    module = patch(
        "module-methods",
        "harmful",
        "1 of 2 cases fails with it and passes without it (share_memory), and none needs it.",
        (
            case(
                "module-methods",
                "share_memory",
                arms=(
                    arm("A", error("share_memory is not supported in npu.")),
                    arm("A'", error("share_memory is not supported in npu.")),
                    arm("B"),
                ),
                channels=channels("fails with the patch, passes without", exceptions="harmful", **NOT_COMPARED),
                verdict="harmful",
                reach=reach("module-methods", "share_memory", calls=1, run=1),
            ),
            case(
                "module-methods",
                "script[add_module]",
                arms=(
                    arm("A", error("add_module is not supported in npu.")),
                    arm("A'", error("add_module is not supported in npu.")),
                    arm("B", error("Cannot re-assign modules in a ScriptModule", "torch.jit.Error")),
                ),
                channels=channels("another error", exceptions="changed", messages="changed", **NOT_COMPARED),
                verdict="error_changed",
                reach=reach("module-methods", "script[add_module]", calls=1, run=2),
            ),
        ),
        listed=(
            "script[add_module]: builtins.RuntimeError -> torch.jit.Error",
            "script[add_module]: 'add_module is not supported in npu.' -> 'Cannot re-assign modules in a ScriptModule'",
        ),
        listed_frames=("script[other]: message changed: same error, other frames: E: no · - a.py in f · + b.py in g",),
        branches=(
            BranchLine("patches.py:20", "raise RuntimeError(name)"),
            BranchLine("patches.py:21", "self.refused = True"),
            BranchLine("patches.py:30", f"return `{NASTY}`"),
        ),
    )
    nasty = patch(
        "nasty|`id`<b>",
        "behavioural",
        f"The tensors of 1 of 4 cases differ without it. {NASTY}",
        (
            case(
                "nasty",
                f"table|breaker[{NASTY}]",
                channels=channels("y: 3 of 64 elements differ, at most 1.2e-07", tensors="behavioural"),
                verdict="behavioural",
                arms=(arm("A", names=("aten::add.Tensor",)), arm("A'"), arm("B", names=("aten::sub.Tensor",))),
            ),
            case(
                "nasty",
                "long",
                arms=(arm("A", error(LONG)), arm("A'", error(LONG)), arm("B", error(LINES))),
                channels=channels(LINES, messages="changed", warnings="changed", **NOT_COMPARED),
                verdict="error_changed",
            ),
            case("nasty", RIGHT_TO_LEFT, reach=None, doc=NASTY),
            case(
                "nasty",
                "alike",
                arms=(arm("A", error(NASTY)), arm("A'", error(NASTY)), arm("B", error(NASTY))),
                channels=channels("fails in both arms", **NOT_COMPARED),
                verdict="nothing",
            ),
        ),
        listed=(f"long: {LONG} -> {LINES}", f"long: warning {NASTY} -> none"),
        title=NASTY,
        targets=("torch.Tensor.type", "torch.nn.Module.`x`|y"),
        reason=NASTY,
        code=f'def f():\n    """```\n````\n{NASTY}"""\n    return "</code></pre></details><script>"\n',
        risk=NASTY,
        rollback=f"1. {NASTY}",
    )
    compiled = patch(
        "tensor-type",
        "required",
        "1 of 1 case passes with it and fails without it (compiled).",
        (
            case(
                "tensor-type",
                "compiled",
                compiled=True,
                arms=(arm("A"), arm("A'"), arm("B", error("unsupported type", "torch._dynamo.exc.Unsupported"))),
                channels=channels("passes with the patch, fails without", exceptions="required", **NOT_COMPARED),
                verdict="required",
                reach=ReachRecord("tensor-type", "compiled", 0, (), 2, 0, (), "unknown"),
            ),
        ),
        summary=ReachSummary(0, 0, 1, 2, 0, "unknown"),
    )
    noisy = patch(
        "data-parallel",
        "inconclusive",
        "Two runs with it already differ in 1 of 2 cases (threads).",
        (
            case(
                "data-parallel",
                "threads",
                channels=channels("A: 40 operators, A′: 41 operators", operators="inconclusive"),
                verdict="inconclusive",
            ),
            case("data-parallel", "quiet", reach=reach("data-parallel", "quiet", run=1)),
        ),
    )
    inert = patch(
        "error-codes",
        "inert",
        "Nothing differs in 1 of 1 case but a message.",
        (
            case(
                "error-codes",
                "wrong_device",
                channels=channels("'bad device [ERR01]' -> 'bad device'", messages="changed"),
                reach=reach("error-codes", "wrong_device", branches=0),
            ),
        ),
        listed=("wrong_device: 'bad device [ERR01]' -> 'bad device'",),
        summary=ReachSummary(40, 1, 1, 0, 0, "no"),
    )
    unreached = patch(
        "never-called",
        "unreached",
        "No call was seen in 1 of 1 case, which is the same without it.",
        (case("never-called", "elsewhere", reach=reach("never-called", "elsewhere", calls=0)),),
    )
    return keys, module, nasty, compiled, noisy, inert, unreached


def study() -> StudyResult:
    """The whole study; the same each time."""
    patches = _patches()
    cases = tuple(
        CaseInfo(one.case, one.case.partition("[")[0], (result.patch.id,), one.compiled, one.doc)
        for result in patches
        for one in result.cases
    )
    return StudyResult(
        info=StudyInfo(
            name="every-verdict",
            title="Monkey patches of a backend on PyTorch 2.13",
            summary="What the patches did by hand, torch does itself by now.\n\nThis study asks\nwhich can go.",
            goals=("Delete what no case needs.", NASTY),
            non_goals=("Change what torch itself does.",),
            options=("Keep all patches: costs a review at each release.", "Delete those that nothing needs."),
            not_covered=("Devices other than the virtual one.", f"# {NASTY}"),
            environment={"VNPU_DEVICES": "2", "NASTY": NASTY},
            seed=7,
            patches=tuple(result.patch for result in patches),
            cases=cases,
            probes=(ProbeInfo("exclusion", "autograd-keys", "Calls the branch"),),
        ),
        environment={"python": "3.11.9", "torch": "2.13.0+cpu", "commit": "0123456789ab", "nasty": NASTY},
        started="2026-01-02T03:04:05Z",
        seconds=83.4,
        trials=11,
        command="unpatch ablate studies/every_verdict --out evidence",
        patches=patches,
        artefacts=(Artefact("evidence.json", "ab" * 32, 12_345), Artefact(f"trials/{NASTY}", "cd" * 32, 1)),
    )
