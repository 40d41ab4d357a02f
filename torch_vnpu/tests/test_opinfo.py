"""PyTorch's operator database on npu: a fixed sample of it, and what is known to differ. `make opinfo` runs all of it."""

import sys
from collections.abc import Iterator

import pytest
import torch
from opinfo import check, known, workers
from opinfo.document import page

SAMPLE = [name for name in sorted(check.OPERATORS)[3::8] if not known.reason(name, check.short(check.main_dtype(name)))]
SAMPLES = 12  # of one operator; the full pass takes more


@pytest.fixture(scope="module")
def worker() -> Iterator[workers.Worker]:
    made = workers.Worker({})
    yield made
    made.close()


@pytest.mark.parametrize("name", SAMPLE)
def test_an_operator_agrees_with_cpu(worker, name):
    outcome = worker.ask(workers.Ask(name, check.short(check.main_dtype(name)), SAMPLES))
    assert outcome["status"] == "pass", outcome["reason"]
    assert outcome["samples"] > 0


@pytest.mark.parametrize("entry", known.KNOWN, ids=str)
def test_what_is_known_to_differ_still_does(worker, entry):
    name, dtypes = (
        (entry, [check.main_dtype(entry)]) if isinstance(entry, str) else (entry[0], [getattr(torch, entry[1])])
    )
    for dtype in dtypes:
        outcome = worker.ask(workers.Ask(name, check.short(dtype), check.SAMPLES))
        assert outcome["status"] != "pass", f"{entry} agrees with CPU now: take it out of the table"


class TestTheCheckItself:
    """A comparison that finds nothing would let everything pass."""

    def differing(self, monkeypatch, change) -> check.Outcome:
        """The outcome for `add` where `change` is applied to what npu returns."""
        real = check.OPERATORS["add"]

        class Wrong:
            def __getattr__(self, name):
                return getattr(real, name)

            def __call__(self, *args, **settings):
                result = real(*args, **settings)
                return change(result) if result.device.type == "npu" else result

        monkeypatch.setitem(check.OPERATORS, "add", Wrong())
        return check.check("add", torch.float32, 3)

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda made: made * 1.001, "not close"),
            (lambda made: made.cpu(), "lies on cpu"),
            (lambda made: made.double(), "dtype"),
            (lambda made: made.unsqueeze(0), "shape"),
            (lambda made: made.detach(), "requires_grad"),
            (
                lambda made: torch.cat([made.flatten(), made.flatten()])[::2].as_strided(made.shape, made.stride(), 1),
                "storage_offset",
            ),
            (lambda made: [made, made], "2 values"),
            (lambda made: made.item, "instead of a tensor"),
        ],
        ids=["value", "device", "dtype", "shape", "gradient flag", "offset", "count", "kind"],
    )
    def test_a_wrong_result_is_found(self, monkeypatch, change, said):
        outcome = self.differing(monkeypatch, change)
        assert outcome.status == "fail"
        assert said in outcome.reason

    def test_a_wrong_gradient_is_found(self, monkeypatch):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(context, value):
                return value.clone()

            @staticmethod
            def backward(context, gradient):
                return gradient * 2

        outcome = self.differing(monkeypatch, Twice.apply)
        assert outcome.status == "fail"
        assert outcome.reason.startswith("sample 0: gradient")

    def test_an_unchanged_result_passes(self, monkeypatch):
        outcome = self.differing(monkeypatch, lambda made: made)
        assert (outcome.status, outcome.samples, outcome.backward) == ("pass", 6, 6)

    def test_strides_offsets_and_shared_memory_move_along(self):
        whole = torch.arange(12.0).reshape(3, 4).requires_grad_()
        move = check.Move("npu:0")
        moved, row, wide = move(whole), move(whole.detach()[1, ::2]), move(whole.detach()[:, :1].expand(3, 5))
        assert moved.requires_grad
        assert (row.stride(), row.storage_offset(), wide.stride()) == ((2,), 4, (4, 0))
        assert (
            row.untyped_storage().data_ptr() == moved.untyped_storage().data_ptr() == wide.untyped_storage().data_ptr()
        )
        assert row.tolist() == [4, 6]
        lazy = move(torch.tensor([1 + 2j]).conj())
        assert lazy.is_conj()
        assert lazy.tolist() == [1 - 2j]


# A worker of another kind: it answers, dies, hangs or fails to understand, by the operator's name.
ODD = """
import json, os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    op, dtype, samples = json.loads(line)
    if op == "dies":
        os.abort()
    if op == "hangs":
        time.sleep(600)
    print(json.dumps({"op": op, "dtype": dtype, "status": "pass"}), flush=True)
"""


class TestWorkers:
    """A worker that dies or hangs is the operator's outcome, and the next check gets a new one."""

    def test_a_process_that_dies_or_hangs_is_replaced(self):
        odd = workers.Worker({}, [sys.executable, "-c", ODD])
        try:
            asked = [odd.ask(workers.Ask(op, "float32", 1), 2.0) for op in ("add", "dies", "add", "hangs", "add")]
        finally:
            odd.close()
        assert [one["status"] for one in asked] == ["pass", "crash", "pass", "timeout", "pass"]
        assert asked[1]["reason"] == "exit code -6"

    def test_a_pass_goes_on_where_it_was(self, tmp_path, monkeypatch):
        kept = tmp_path / "kept.jsonl"
        counts = []
        asks = [workers.Ask(op, "float32", 1) for op in ("add", "dies", "sub")]
        monkeypatch.setattr(workers, "COMMAND", [sys.executable, "-c", ODD])
        first = workers.run(asks[:2], kept, {}, 2, counts.append)
        assert {(one["op"], one["status"]) for one in first} == {("add", "pass"), ("dies", "crash")}
        second = workers.run(asks, kept, {}, 2, counts.append)
        assert second[:2] == first
        assert len(second) == 3
        assert counts == [0, 1, 2, 2, 3]

    def test_a_worker_that_cannot_start_is_told(self):
        with pytest.raises(RuntimeError, match="does not start"):
            workers.Worker({}, [sys.executable, "-c", "raise SystemExit(3)"]).ask(workers.Ask("add", "float32", 1))


def test_the_page_tells_what_differs_and_what_is_not_explained():
    row = {"op": "add", "dtype": "float32", "status": "pass", "reason": "", "samples": 5, "backward": 4, "rounded": 1}
    failing = row | {"op": "sub", "status": "fail", "reason": "a | b", "samples": 0, "backward": 0, "rounded": 0}
    text = page({"queued": [row, failing], "synchronous": [row, failing | {"status": "pass"}]})
    assert "| float32, main | 2 | 2 | 1 | 50.00 | 1 | 5 | 4 | 1 |" in text
    assert "| `sub` | float32 | **not explained**: a \\| b |" in text
    assert "- `sub` (float32): queued fail, synchronous pass" in text
