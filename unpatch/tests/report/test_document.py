"""What the evidence document says, whichever way it is rendered."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from evidence_study import LONG, arm, case, channels, error, patch, reach, study

from unpatch.model import BranchLine, ChannelResult, OriginInfo, PatchResult, ReachSummary, StudyResult
from unpatch.report.blocks import Badge, Block, Code, Details, Facts, Inline, Paragraph, Section, Table
from unpatch.report.document import build


def of(*patches: PatchResult, **changes: object) -> StudyResult:
    """A study of just these patches."""
    return msgspec.structs.replace(study(), patches=patches, **changes)


def text(content: Inline) -> str:
    return "".join(span.text for span in content)


def walk(blocks: tuple[Block, ...]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Section | Details):
            yield from walk(block.blocks)


def part(blocks: tuple[Block, ...], title: str) -> Section:
    """The section with that title, at any depth."""
    return next(block for block in walk(blocks) if isinstance(block, Section) and block.title == title)


def words(section: Section) -> str:
    """All text of a section, in order."""
    found: list[str] = []
    for block in walk(section.blocks):
        match block:
            case Table():
                for row in block.rows:
                    found += [text(cell) for cell in (*row.cells, row.note)]
            case Facts():
                found += [f"{name}: {text(value)}" for name, value in block.items]
            case Code():
                found.append(block.text)
            case Details():
                found.append(text(block.summary))
            case Section():
                found.append(block.title)
            case _:
                found += map(text, block.items if hasattr(block, "items") else (block.content,))
    return "\n".join(found)


def said(result: StudyResult, title: str) -> str:
    return words(part(build(result).sections, title))


# ------------------------------------------------------------------------------------------------- conclusion
def test_the_conclusion_parts_what_goes_from_what_stays() -> None:
    conclusion = said(study(), "Conclusion")
    assert "4 of 7 patches can be removed" in conclusion
    assert "Removable: autograd-keys (branch unreachable), module-methods (harmful)" in conclusion
    assert "To keep: nasty|`id`<b> (behavioural), tensor-type (required)" in conclusion
    assert "Undecided: data-parallel (inconclusive)" in conclusion
    assert "changes 3 errors, messages or warnings, all listed; in 1 more error only the frames" in conclusion
    assert "11 trials" in conclusion


def test_what_changes_is_counted_without_the_errors_that_differ_in_frames_only() -> None:
    one = (case("a", "one"),)
    assert "changes no error, message or warning." in said(of(patch("a", "inert", "Alike.", one)), "Conclusion")
    frames = patch("a", "inert", "Alike.", one, listed_frames=("one: x", "two: x"))
    assert "changes no error, message or warning; in 2 errors only" in said(of(frames), "Conclusion")
    listed = patch("a", "inert", "Alike.", one, listed=("one: x",))
    assert "changes 1 error, message or warning, all listed." in said(of(listed), "Conclusion")


def test_patches_that_were_not_judged_are_named() -> None:
    result = of(study().patches[0])
    assert "6 patches were not judged (--only): module-methods," in said(result, "Conclusion")
    assert "over 2 cases" in said(result, "Conclusion")
    assert "6 patches not judged (--only): module-methods, " in said(result, "What is not covered")
    assert "2 cases that must keep working" in said(result, "Cases")
    assert build(result).headline == "1 of 1 patch can be removed, 6 not judged"
    assert "--only" not in said(study(), "Conclusion") + said(study(), "What is not covered")


def test_a_workload_of_many_cases_is_described_once() -> None:
    cases = said(study(), "Cases")
    assert "operator\nA step of training\noperator[batch_norm] operator[to]\nno\nautograd-keys" in cases


def test_harmful_is_explained_in_sight_and_only_where_it_is_said() -> None:
    def in_sight(result: StudyResult) -> bool:
        parts = part(build(result).sections, "Summary").blocks
        return any(isinstance(block, Paragraph) and "itself breaks cases" in text(block.content) for block in parts)

    assert in_sight(study())
    assert not in_sight(of(study().patches[0]))


def test_a_study_without_a_patch_concludes_nothing() -> None:
    assert "nothing to conclude" in said(of(), "Conclusion")


def test_the_summary_has_each_patch_with_its_reason() -> None:
    table = next(block for block in part(build(study()).sections, "Summary").blocks if isinstance(block, Table))
    assert [text(row.cells[0]) for row in table.rows] == [p.patch.id for p in study().patches]
    assert all(len(row.cells) == len(table.head) and row.note for row in table.rows)


def test_what_the_whole_study_says_is_said_once() -> None:
    everything = "\n".join(words(section) for section in build(study()).sections)
    for line in ("Delete what no case needs.", "Change what torch itself does.", "Devices other than the virtual one."):
        assert everything.count(line) == 1


def test_it_says_how_to_reproduce() -> None:
    environment = said(study(), "Environment and reproduction")
    for fact in ("torch: 2.13.0+cpu", "commit: 0123456789ab", "seed: 7", "unpatch ablate studies/", "VNPU_DEVICES=2"):
        assert fact in environment


def test_artefacts_have_checksums() -> None:
    assert "ab" * 32 in said(study(), "Artefacts")
    assert said(msgspec.structs.replace(study(), artefacts=()), "Artefacts") == "No artefact was kept."


def test_removable_patches_were_not_left_out_together_and_that_is_said() -> None:
    both = [patch(name, "inert", "Alike.", (case(name, "one"),)) for name in ("a", "b")]
    assert "together" in said(of(*both), "What is not covered")
    assert "together" not in said(of(both[0]), "What is not covered")


# -------------------------------------------------------------------------------------------------- one patch
def test_an_unknown_origin_is_said_to_be_unknown() -> None:
    for origin in (OriginInfo(), OriginInfo("", "")):
        section = said(of(patch("a", "inert", "Alike.", (case("a", "one"),), origin=origin, title="A")), "A")
        assert "Brought in: unknown" in section
        assert "Removed upstream: unknown" in section


def test_risk_and_roll_back_are_derived_only_where_not_given() -> None:
    derived = said(of(patch("a", "inert", "Alike.", (case("a", "one"),))), "Risk and roll back")
    assert "None stated by the patch" in derived
    assert "Revert the commit that deletes it" in derived
    given = patch("a", "inert", "Alike.", (case("a", "one"),), risk="Slower.", rollback="Set a flag.")
    assert said(of(given), "Risk and roll back") == "Risk: Slower.\nRoll back: Set a flag."


def test_code_is_folded_away_and_complete() -> None:
    section = part(build(of(patch("a", "inert", "Alike.", (), title="A"))).sections, "A")
    folded = [
        block for block in section.blocks if isinstance(block, Details) and "patches.py:14" in text(block.summary)
    ]
    assert not folded[0].open
    assert folded[0].blocks == (
        Code("def replacement(self, dtype=None):\n    return original(replacement)(self, dtype)\n", "python"),
    )


def test_internal_operator_names_are_shown_once_where_the_arms_agree() -> None:
    names = ("aten::_to_copy", "aten::native_batch_norm")
    one = case("a", "one", arms=tuple(arm(name, names=names) for name in ("A", "A'", "B")))
    seen = part(build(of(patch("a", "inert", "Alike.", (one,)))).sections, "Operators seen")
    (table,) = (block for block in walk(seen.blocks) if isinstance(block, Table))
    assert [[text(cell) for cell in row.cells][:4] for row in table.rows] == [
        ["one", "A, A′ and B", "40", "aten::_to_copy aten::native_batch_norm"]
    ]


def test_operator_names_that_differ_without_the_patch_have_a_row_of_their_own() -> None:
    one = case("a", "one", arms=(arm("A"), arm("A'"), arm("B", names=("aten::sub.Tensor",))))
    seen = said(of(patch("a", "behavioural", "Differs.", (one,))), "Operators seen")
    assert "A and A′\n40\naten::add.Tensor" in seen
    assert "B\n40\naten::sub.Tensor" in seen


def test_every_channel_that_is_not_inert_is_explained_below_the_table() -> None:
    one = case(
        "a", "one", channels=channels("y: 3 of 64 elements differ", tensors="behavioural"), verdict="behavioural"
    )
    comparison = part(
        build(of(patch("a", "behavioural", "Differs.", (one, case("a", "two"))))).sections, "Comparison per case"
    )
    (details,) = (block for block in comparison.blocks if isinstance(block, Details))
    assert text(details.summary) == "one: behavioural"
    assert details.open
    assert "tensors: behavioural, y: 3 of 64 elements differ" in words(comparison)


def test_each_channel_that_was_not_compared_has_its_own_reason() -> None:
    reasons = {
        "operators": "torch was not imported",
        "keys": "torch was not imported",
        "tensors": "",
        "messages": "one",
    }
    found = tuple(
        ChannelResult(c.channel, "not_compared", reasons[c.channel]) if c.channel in reasons else c for c in channels()
    )
    comparison = said(of(patch("a", "inert", "Alike.", (case("a", "one", channels=found),))), "Comparison per case")
    assert (
        "operators and keys: not compared, torch was not imported\ntensors: not compared\nmessages: not" in comparison
    )


def test_lines_that_never_ran_are_listed_with_their_text() -> None:
    lines = tuple(BranchLine(f"patches.py:{number}", f"line {number}") for number in (20, 21, 30))
    cases = (
        case("a", "one", reach=reach("a", "one", branches=2, run=1)),
        case("a", "two", reach=reach("a", "two", calls=0)),
    )
    found = said(of(patch("a", "inert", "Alike.", cases, branches=lines)), "Reach")
    assert "2 of 3 own branch lines never ran in any case:\npatches.py:21 line 21\npatches.py:30 line 30" in found
    assert "one\n40\nmain, backward\n1 of 3" in found
    assert "two\n0\nnone\n0 of 3" in found
    all_ran = (case("a", "one", reach=reach("a", "one", branches=2, run=2)),)
    assert "never" not in said(of(patch("a", "inert", "Alike.", all_ran, branches=lines[:2])), "Reach")


def test_the_same_error_with_other_frames_is_listed_apart() -> None:
    result = of(patch("a", "inert", "Alike.", (), listed=("one: x",), listed_frames=("two: y",)))
    listed = said(result, "Changed errors, messages and warnings")
    assert listed.index("one: x") < listed.index("only other frames") < listed.index("two: y")


# --------------------------------------------------------------------------------------------------- compact
def compacted(result: StudyResult, title: str) -> str:
    return words(part(build(result, compact=True).sections, title))


def test_a_compact_document_merges_the_rows_of_cases_that_say_the_same() -> None:
    result = of(patch("a", "inert", "Alike.", tuple(case("a", f"c{number}") for number in range(3))))
    assert compacted(result, "Comparison per case").count("c0 c1 c2\npassed") == 1
    assert "c0 c1 c2\n40\n" in compacted(result, "Reach")
    assert "c0\npassed" in said(result, "Comparison per case")


def test_a_compact_document_names_the_lines_that_ran_once() -> None:
    lines = tuple(BranchLine(f"patches.py:{number}", "x") for number in (20, 21))
    cases = tuple(case("a", name, reach=reach("a", name, run=1)) for name in ("one", "two"))
    found = compacted(of(patch("a", "inert", "Alike.", cases, branches=lines)), "Reach")
    assert found.count("patches.py:20") == 1
    assert "Lines run in some case: patches.py:20" in found


@pytest.mark.parametrize(("number", "tables"), [(8, 8), (9, 0)])
def test_a_compact_document_names_the_operators_of_few_cases_each(number: int, tables: int) -> None:
    result = of(patch("a", "inert", "Alike.", tuple(case("a", f"c{n}") for n in range(number))))
    assert compacted(result, "Operators seen").count("aten::add.Tensor") == (tables or 1)
    assert said(result, "Operators seen").count("aten::add.Tensor") == number


def test_a_compact_document_keeps_the_details_of_what_speaks_against() -> None:
    failed = tuple(arm(name, error("same")) for name in ("A", "A'", "B"))
    silent = case("a", "silent", arms=failed, channels=channels("it fails alike", exceptions="not_compared"))
    silent = msgspec.structs.replace(silent, verdict="nothing")
    bad = case("a", "bad", channels=channels("y differs", tensors="behavioural"), verdict="behavioural")
    noisy = case("a", "noisy", channels=channels("A: 1, A′: 2", warnings="inconclusive"))
    comparison = compacted(of(patch("a", "behavioural", "Differs.", (silent, bad, noisy))), "Comparison per case")
    assert "warnings: inconclusive, A: 1, A′: 2" in comparison
    assert "bad: behavioural\nA\npassed" in comparison
    assert "silent: nothing" not in comparison
    assert "exceptions: not compared, it fails alike (1 case)" in comparison


def test_a_case_that_concludes_nothing_is_shown_and_marked() -> None:
    failed = tuple(arm(name, error("same")) for name in ("A", "A'", "B"))
    one = case("a", "one", arms=failed, verdict="nothing")
    result = of(patch("a", "inert", "Alike.", (one, case("a", "two"))))
    comparison = said(result, "Comparison per case")
    assert "nothing (no conclusion)" in comparison
    assert "1 of 2 cases failed both with and without the patch" in comparison
    assert "a: fails with and without the patch, so not compared: one" in said(result, "What is not covered")


def test_messages_of_failed_arms_are_whole_and_said_once_where_arms_agree() -> None:
    arms = (arm("A", error(LONG)), arm("A'", error(LONG)), arm("B", error("short")))
    one = case("a", "one", arms=arms, verdict="error_changed")
    comparison = said(of(patch("a", "inert", "Alike.", (one,))), "Comparison per case")
    assert comparison.count(LONG) == 1
    assert "Message in A and A′: 10,000 characters" in comparison
    assert "Message in B:\nshort" in comparison


def test_changes_are_listed_each_or_said_to_be_none() -> None:
    title = "Changed errors, messages and warnings"
    listed = said(of(patch("a", "inert", "Alike.", (), listed=("one: x -> y", f"two: {LONG} -> z"))), title)
    assert "one: x -> y" in listed
    assert f"two: {LONG} -> z" in listed
    assert said(of(patch("a", "inert", "Alike.", ())), title).startswith("None")


@pytest.mark.parametrize(
    ("summary", "words"),
    [
        (ReachSummary(1, 1, 1, 2, 1, "no"), "1 call in 1 of 1 case. Own branches: 1 of 2 ran."),
        (ReachSummary(1200, 2, 3, 0, 0, "no"), "1,200 calls in 2 of 3 cases. Own branches: ran (no condition)."),
        (ReachSummary(0, 0, 3, 2, 0, "no"), "0 calls in 0 of 3 cases. Own branches: not called."),
        (ReachSummary(0, 1, 1, 2, 0, "traced"), "0 calls in 1 of 1 case; traced when compiled. Own branches: unknown."),
        (ReachSummary(5, 1, 2, 0, 0, "no", 1), "5 calls in 1 of 2 cases; not measured in 1 case. "),
        (ReachSummary(0, 0, 1, 2, 0, "unknown"), "unknown when compiled. Own branches: unknown."),
    ],
)
def test_reach_is_never_denied_where_it_is_unknown(summary: ReachSummary, words: str) -> None:
    assert words in said(of(patch("a", "inert", "Alike.", (case("a", "one"),), summary=summary)), "Reach")


def test_a_case_without_a_reach_record_is_shown_as_not_measured() -> None:
    assert "one\nnot measured" in said(of(patch("a", "inert", "Alike.", (case("a", "one", reach=None),))), "Reach")


def test_a_probe_says_whether_the_branch_acted() -> None:
    reached = said(study(), "Reach")
    assert "exclusion\nAutogradFunctionality excluded\nTrue\nFalse\nacted" in reached
    assert "0x10\n0x10\ndid not act" in reached
    assert "\n\n\nfailed\nfailed: <script>" in reached


def test_verdict_words_never_stand_without_what_they_rest_on() -> None:
    for result in study().patches:
        section = part(build(study()).sections, result.patch.title)
        verdict = section.blocks[0]
        assert isinstance(verdict.content[0], Badge)
        assert text(verdict.content).endswith(result.because)
        assert len(result.because) > 10


def test_what_hides_or_reorders_text_is_written_out() -> None:
    everything = "\n".join(words(section) for section in build(study()).sections)
    assert not set(everything) & set("\x00\x1b\r\u202e\u202c")
    assert r"\u202egnirts\u202c" in everything
    assert r"\x1b[31mred\x00" in everything
    assert "שלום" in everything


def test_reach_counts_lines_of_each_case() -> None:
    one = case("a", "one", reach=reach("a", "one", calls=3, run=2))
    assert "one\n3\nmain, backward\n2 of 2\nno\npatches.py:20, patches.py:21" in said(
        of(patch("a", "inert", "Alike.", (one,))), "Reach"
    )
