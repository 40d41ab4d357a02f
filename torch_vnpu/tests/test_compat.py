"""The module name torch_npu is this backend, for whoever looks for it, and only where it was asked for."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_vnpu.compat.operators import npu_fusion_attention


def test_before_it_is_installed_there_is_no_such_module(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import importlib.util, torch_vnpu.compat
        print(importlib.util.find_spec("torch_npu"), torch_vnpu.compat.is_installed())
    """).passed()
    assert done.lines == ["None False"]


def test_it_is_found_with_its_metadata(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import importlib.metadata, importlib.util, torch
        from torch_vnpu import compat
        compat.install()
        compat.install()
        print(importlib.util.find_spec("torch_npu") is not None, compat.is_installed())
        version = importlib.metadata.version("torch_npu")
        print(importlib.metadata.packages_distributions()["torch_npu"])
        import torch_npu
        print(version == torch_npu.__version__, version.split(".")[:2] == torch.__version__.split(".")[:2])
    """).passed()
    assert done.lines == ["True True", "['torch_npu']", "True True"]


def test_its_modules_are_the_backend_s_own(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import sys, torch, torch_vnpu
        from torch_vnpu import compat
        compat.install()
        import torch_npu
        import torch_npu.npu.streams
        from torch_npu.npu.amp import GradScaler
        from torch_npu.contrib import cuda_on_npu
        print(torch_npu.npu is torch.npu, GradScaler is torch.npu.amp.GradScaler)
        print(torch_npu.npu.streams is sys.modules["torch_vnpu.npu.streams"], torch.npu.__spec__.name)
        print(torch.cuda.is_available())
        from torch_npu.contrib import transfer_to_npu
        print(torch.cuda.is_available(), transfer_to_npu is sys.modules["torch_vnpu.contrib.transfer_to_npu"])
        try:
            import torch_npu.nothing
        except ModuleNotFoundError as error:
            print(error)
        print(hasattr(torch_npu, "npu_something"))
    """).passed()
    assert done.lines == [
        "True True",
        "True torch_vnpu.npu",
        "False",
        "True True",
        "No module named 'torch_npu.nothing'",
        "False",
    ]


def test_it_can_be_taken_away(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import importlib.util, os, sys
        from torch_vnpu import compat
        before = list(sys.path), list(sys.meta_path), os.environ.get("PYTHONPATH")
        compat.install(children=True)
        import torch_npu.npu
        print(os.environ["PYTHONPATH"].count("site"))
        compat.uninstall()
        print((list(sys.path), list(sys.meta_path), os.environ.get("PYTHONPATH")) == before)
        print(importlib.util.find_spec("torch_npu"), [name for name in sys.modules if name.startswith("torch_npu")])
    """).passed()
    assert done.lines == ["1", "True", "None []"]


@pytest.mark.parametrize("imported", [False, True])
def test_beside_the_real_one_it_refuses(with_vnpu: Any, tmp_path: Path, imported: bool) -> None:
    (tmp_path / "torch_npu").mkdir()
    (tmp_path / "torch_npu" / "__init__.py").write_text("")
    done = with_vnpu(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        if {imported}:
            import torch_npu
        from torch_vnpu import compat
        try:
            compat.install()
        except RuntimeError as error:
            print(error)
        print(compat.is_installed())
    """).passed()
    told, installed = done.lines
    assert f"the real torch_npu is installed at {tmp_path}" in told
    assert "Uninstall it" in told
    assert installed == "False"


def test_child_processes_find_it(with_vnpu: Any) -> None:
    done = with_vnpu("""
        import subprocess, sys
        from torch_vnpu import compat
        compat.install(children=True)
        code = "import importlib.util, importlib.metadata as m; print(m.version('torch_npu'))"
        print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()[:4])
    """).passed()
    assert done.lines == ["2.13"]


LAYOUTS = {
    "BNSD": lambda x: x,
    "BSND": lambda x: x.transpose(1, 2),
    "BSH": lambda x: x.transpose(1, 2).flatten(2),
    "SBH": lambda x: x.permute(2, 0, 1, 3).flatten(2),
}


@settings(deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    batch=st.integers(1, 2),
    heads=st.sampled_from([(2, 2), (4, 2), (2, 1)]),
    rows=st.integers(1, 4),
    more=st.integers(0, 3),
    sparse_mode=st.sampled_from([0, 2, 3]),
    device=st.sampled_from(["npu", "cpu"]),
)
def test_attention(
    layout: str, batch: int, heads: tuple[int, int], rows: int, more: int, sparse_mode: int, device: str
) -> None:
    columns = rows + more
    q = torch.randn(batch, heads[0], rows, 8, device=device)
    k, v = (torch.randn(batch, heads[1], columns, 8, device=device) for _ in range(2))
    mask = torch.zeros(rows, columns, dtype=torch.bool)
    if sparse_mode:
        for i in range(rows):
            mask[i] = torch.arange(columns) > i + (columns - rows if sparse_mode == 3 else 0)
    k_all, v_all = (x.repeat_interleave(heads[0] // heads[1], 1) for x in (k, v))
    scores = (q @ k_all.transpose(-1, -2) * 0.3).masked_fill(mask.to(device), float("-inf"))
    to = LAYOUTS[layout]
    given_mask = torch.ones(2048, 2048, dtype=torch.bool, device=device).triu(1) if sparse_mode else None
    done = npu_fusion_attention(
        to(q), to(k), to(v), heads[0], layout, atten_mask=given_mask, scale=0.3, sparse_mode=sparse_mode
    )
    torch.testing.assert_close(done[0], to(scores.softmax(-1) @ v_all))
    assert done[1:] == (None, None, None, 0, 0, 0)


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), causal=st.booleans())
def test_attention_over_sequences_in_a_row(lengths: list[int], causal: bool) -> None:
    ends = torch.tensor(lengths).cumsum(0).tolist()
    q, k, v = (torch.randn(ends[-1], 2, 8, device="npu", requires_grad=True) for _ in range(3))
    out = npu_fusion_attention(
        q, k, v, 2, "TND", scale=0.3, actual_seq_qlen=ends, actual_seq_kvlen=ends, sparse_mode=3 if causal else 0
    )[0]
    parts = [x.split(lengths) for x in (q, k, v)]
    expected = torch.cat(
        [
            F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in each), is_causal=causal, scale=0.3).transpose(
                0, 1
            )
            for each in zip(*parts, strict=True)
        ]
    )
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert v.grad is not None


def test_attention_takes_a_mask_and_a_bias_as_they_are() -> None:
    q = torch.randn(1, 1, 3, 4, device="npu")
    mask = torch.tensor([[False, True, False]], device="npu")
    bias = torch.randn(1, 1, 3, 3, device="npu")
    out = npu_fusion_attention(q, q, q, 1, "BNSD", pse=bias, atten_mask=mask, scale=0.5)[0]
    scores = (q @ q.transpose(-1, -2) * 0.5 + bias).masked_fill(mask, float("-inf"))
    torch.testing.assert_close(out, scores.softmax(-1) @ q)


@pytest.mark.parametrize("settings", [{"sparse_mode": 4}, {"pre_tockens": 1}, {"prefix": [1]}, {"input_layout": "SHB"}])
def test_attention_refuses_what_it_cannot_do(settings: dict[str, Any]) -> None:
    q = torch.ones(1, 1, 2, 4, device="npu")
    with pytest.raises(NotImplementedError):
        npu_fusion_attention(q, q, q, 1, **({"input_layout": "BNSD"} | settings))
