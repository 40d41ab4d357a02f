"""The public surface of `torch_vnpu`: lazy names, operators of `torch.ops.npu`, deprecated names, dtypes, HiFloat8."""

import builtins
import math
import re
import threading
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torch_vnpu
from torch_vnpu import _C, HiFloat8Tensor, hifloat8, ops
from torch_vnpu._hifloat8 import decode, encode

F = torch.nn.functional
LAZY = ("HiFloat8Tensor", "erase_stream", "matmul_checksum")
SUBMODULES = {
    "asd",
    "compat",
    "compile",
    "contrib",
    "distributed",
    "errors",
    "logs",
    "npu",
    "ops",
    "profiler",
    "sanitizer",
}
ROOT = Path(__file__).parents[2]
#: Every `torch_vnpu.…` of the documentation, by page.
MENTIONED = {
    page.relative_to(ROOT).as_posix(): sorted(
        set(re.findall(r"\btorch_vnpu(?:\.[A-Za-z_]\w*)+", page.read_text("utf-8")))
    )
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}


def test_every_name_is_in_all_and_in_dir_and_can_be_had():
    assert set(LAZY) | set(ops.SCHEMAS) | {"npu", "hifloat8", "__version__"} <= set(torch_vnpu.__all__)
    assert set(torch_vnpu.__all__) <= set(dir(torch_vnpu))
    for name in torch_vnpu.__all__:
        getattr(torch_vnpu, name)
    with pytest.raises(AttributeError, match="module 'torch_vnpu' has no attribute 'nonsense'"):
        _ = torch_vnpu.nonsense


def test_lazy_names_load_when_they_are_used(with_torch):
    run = with_torch(
        """
        import importlib.metadata, sys, torch, torch_vnpu
        def loaded():
            late = ("torch_vnpu._hifloat8", "torch_vnpu.asd", "torch_vnpu._afd")
            return sorted(name for name in sys.modules if name.startswith(late))
        dir(torch_vnpu), torch_vnpu.__all__
        print(loaded())
        torch_vnpu.HiFloat8Tensor
        print(loaded())
        from torch_vnpu import matmul_checksum
        print("torch_vnpu.asd.checksum" in loaded(), torch_vnpu.__version__ == importlib.metadata.version("torch_vnpu"))
        print(torch.npu.is_initialized())
        """
    )
    assert run.passed().lines == ["[]", "['torch_vnpu._hifloat8']", "True True", "False"]


def test_public_submodules_are_shown_and_the_import_of_all_names_leaves_the_builtins():
    assert set(dir(torch_vnpu)) >= SUBMODULES
    assert not set(torch_vnpu.__all__) & set(dir(builtins))
    found = {path.stem for path in Path(torch_vnpu.__file__).parent.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {name for name in found if not name.startswith("_")} == SUBMODULES | {"cli"}  # which is a command


@pytest.mark.parametrize("page", [page for page, names in MENTIONED.items() if names])
def test_what_the_documentation_names_is_there_after_the_import_of_the_package(with_torch, page):
    # Only a module below a submodule is imported by its name; what is named with one attribute is to be had as one.
    run = with_torch(
        f"""
        import importlib, sys, torch, torch_vnpu
        def had(name):
            value = torch_vnpu
            parts = name.split(".")[1:]
            for at, part in enumerate(parts, 2):
                if at > 2 and not hasattr(value, part):
                    importlib.import_module(".".join(name.split(".")[:at]))
                value = getattr(value, part)
        for name in {MENTIONED[page]!r}:
            for loaded in {SUBMODULES - {"npu", "errors", "ops"}!r} & vars(torch_vnpu).keys():
                delattr(torch_vnpu, loaded)  # one mention must not help the next
            try:
                had(name)
            except (AttributeError, ImportError) as error:
                print(name, error)
        print(torch.npu.is_initialized())
        """
    )
    assert run.passed().lines == ["False"]


def test_submodules_load_when_they_are_used(with_torch):
    run = with_torch(
        f"""
        import sys, torch, torch_vnpu
        def loaded():
            return {{name for name in {SUBMODULES!r} if f"torch_vnpu.{{name}}" in sys.modules}}
        dir(torch_vnpu)
        print(sorted(loaded()))
        for name in {sorted(SUBMODULES)!r}:
            assert getattr(torch_vnpu, name) is sys.modules[f"torch_vnpu.{{name}}"]
        print(loaded() == {SUBMODULES!r}, torch.npu.is_initialized())
        print("torch_npu" in sys.modules, torch.cuda.is_available())
        print(torch_vnpu.sanitizer.is_enabled(), torch_vnpu.asd.is_enabled())
        """
    )
    assert run.passed().lines == ["['errors', 'npu', 'ops']", "True False", "False False", "False False"]


def test_dtypes_are_those_of_torch():
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"):
        assert getattr(torch_vnpu, name) is getattr(torch, name)
    assert repr(hifloat8) == "torch_vnpu.hifloat8"


def test_a_profile_may_name_the_device_and_quantised_dtypes_have_no_storage():
    assert torch.profiler.ProfilerActivity.NPU is torch.profiler.ProfilerActivity.PrivateUse1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typed storages are deprecated
        with pytest.raises(RuntimeError, match="quint8"):
            torch.TypedStorage(4, dtype=torch.quint8).npu()
        assert torch.TypedStorage(4, dtype=torch.float32).npu().device.type == "npu"


# -------------------------------------------------------------------------------------------------- operators
def rotated(x, interleave):
    pairs = x.unflatten(-1, (-1, 2)).movedim(-1, 0) if interleave else x.chunk(2, -1)
    z = torch.complex(pairs[0], pairs[1]) * 1j
    return torch.stack([z.real, z.imag], -1).flatten(-2) if interleave else torch.cat([z.real, z.imag], -1)


OPERATORS = {
    "npu_dtype_cast": ((torch.float64,), lambda x, dtype: x.double()),
    "npu_fast_gelu": ((), lambda x: x / (1 + torch.exp(-1.702 * x.abs())) * torch.exp(0.851 * (x - x.abs()))),
    "npu_swiglu": ((1,), lambda x, dim: F.silu(x[:, :3]) * x[:, 3:]),
    "npu_rotary_mul": ((0.5, 2.0), lambda x, r1, r2: x * r1 + rotated(x, False) * r2),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_of_npu_and_its_gradient(name):
    rest, expected = OPERATORS[name]
    if name == "npu_rotary_mul":
        rest = tuple(torch.full((6,), value, device="npu") for value in rest)
    assert getattr(torch_vnpu, name) is getattr(torch.ops.npu, name)
    x = torch.randn(2, 6, 6, device="npu", requires_grad=True)
    if name == "npu_swiglu":
        x = torch.randn(2, 6, device="npu", requires_grad=True)
    y = x.detach().clone().requires_grad_()
    result, wanted = getattr(torch_vnpu, name)(x, *rest), expected(y, *rest)
    assert result.device.type == "npu"
    torch.testing.assert_close(result, wanted)
    result.double().pow(2).sum().backward()
    wanted.double().pow(2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)


def test_rotary_mul_in_pairs_of_neighbours():
    x, r1, r2 = torch.randn(3, 8, device="npu"), torch.rand(8, device="npu"), torch.rand(8, device="npu")
    expected = x * r1 + rotated(x, True) * r2
    torch.testing.assert_close(torch_vnpu.npu_rotary_mul(x, r1, r2, "interleave"), expected)
    for odd, mode in ((x[:, :7], "half"), (x, "third")):
        with pytest.raises(ValueError, match="a last dimension of even size"):
            torch_vnpu.npu_rotary_mul(odd, r1, r2, mode)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rms_norm_is_that_of_torch(dtype):
    x, gamma = torch.randn(3, 4, 8, device="npu").to(dtype), torch.rand(4, 8, device="npu").to(dtype)
    result, reciprocal = torch_vnpu.npu_rms_norm(x, gamma, epsilon=1e-5)
    assert (result.dtype, reciprocal.dtype, reciprocal.shape) == (dtype, torch.float32, (3, 1, 1))
    torch.testing.assert_close(result, F.rms_norm(x, (4, 8), gamma, 1e-5))


def test_the_old_name_of_an_operator_says_which_to_call():
    for name in ops.SCHEMAS:
        if name.startswith("npu_"):
            with pytest.raises(RuntimeError, match=rf"torch\.{name} is deprecated .* call torch_vnpu\.{name}"):
                getattr(torch, name)(torch.ones(1))


# --------------------------------------------------------------------------------------------------- HiFloat8
def test_hifloat8_has_the_values_of_its_definition():
    known = {
        0x00: 0.0,
        0x01: 2.0**-22,
        0x07: 2.0**-16,
        0x08: 1.0,
        0x0F: 1.875,
        0x10: 2.0,
        0x18: 0.5,
        0x20: 4.0,
        0x3F: 2.0**-3 * 1.875,
        0x6E: 2.0**15,
        0x6F: math.inf,
        0x7E: 2.0**-15,
        0x88: -1.0,
        0xEF: -math.inf,
    }
    values = decode(torch.arange(256))
    assert {code: values[code].item() for code in known} == known
    assert math.isnan(values[0x80])
    assert values.isnan().sum() == 1
    assert len(set(values[~values.isnan()].tolist())) == 255


def test_every_byte_keeps_its_value():
    codes = torch.arange(256, dtype=torch.uint8, device="npu")
    assert torch.equal(encode(decode(codes)), codes)
    assert encode(torch.tensor(-0.0)).item() == 0


@settings(max_examples=300, deadline=None)
@given(st.floats(-40000, 40000, width=32))
def test_a_number_goes_to_the_nearest_and_from_the_middle_outwards(number):
    values = [value for value in decode(torch.arange(256)).tolist() if math.isfinite(value)]
    got = decode(encode(torch.tensor([number]))).item()
    best = min(abs(value - number) for value in values)
    assert abs(got - number) == best
    assert abs(got) == max(abs(value) for value in values if abs(value - number) == best)


def test_what_is_too_large_becomes_infinite():
    limit = 1.25 * 2.0**15
    got = decode(encode(torch.tensor([limit - 1, limit, -1e30, math.nan]))).tolist()
    assert got[:3] == [2.0**15, math.inf, -math.inf]
    assert math.isnan(got[3])


def test_operators_see_the_values_of_a_hifloat8_tensor():
    x = torch.randn(4, 4, device="npu", dtype=torch.bfloat16)
    stored = HiFloat8Tensor.to_hifloat8(x)
    assert (stored.shape, stored.dtype, stored.device) == (x.shape, torch.bfloat16, x.device)
    assert stored._codes.nbytes * 2 == x.nbytes
    values = stored.from_hifloat8()
    assert type(values) is torch.Tensor
    assert torch.equal(values.float(), decode(encode(x)))
    assert torch.equal(stored @ stored, values @ values)
    assert torch.equal(stored[1:] + x[1:], values[1:] + x[1:])
    assert stored.detach()._codes is stored._codes
    assert "HiFloat8Tensor" in repr(stored)
    assert stored.from_hifloat8(torch.float32).dtype == torch.float32
    with pytest.raises(NotImplementedError, match="writes into a HiFloat8Tensor"):
        stored.add_(1)


# ----------------------------------------------------------------------------------------------- erase_stream
def test_erase_stream_takes_a_tensor_and_a_stream_of_one_device():
    x, side = torch.ones(3, device="npu"), torch.npu.Stream()
    x.record_stream(side)
    assert torch_vnpu.erase_stream(x, side) is None
    with pytest.raises(ValueError, match="on one npu"):
        torch_vnpu.erase_stream(x, torch.npu.Stream(1))
    with pytest.raises(ValueError, match="on one npu"):
        torch_vnpu.erase_stream(torch.ones(1), side)
    with pytest.raises(TypeError, match="not Tensor and int"):
        torch_vnpu.erase_stream(x, 3)


def test_erase_stream_takes_record_stream_back():
    x, side = torch.ones(1024, device="npu"), torch.npu.Stream()
    release, reached = threading.Event(), threading.Event()

    def hold(kind, device, stream, *_):
        if stream == side.stream_id:
            reached.set()
            release.wait(60)

    def freed(erase: bool) -> bool:
        """Whether memory that `side` is said to use is handed out again while `side` works."""
        y = torch.ones(1024, device="npu")
        address = y.data_ptr()
        y.record_stream(side)
        if erase:
            torch_vnpu.erase_stream(y, side)
        del y
        return torch.empty(1024, device="npu").data_ptr() == address

    with torch.npu.stream(side):
        for _ in range(2):
            x.add_(x)  # its look is learned
    side.synchronize()
    listener = _C.subscribe(hold, ["complete"])
    try:
        with torch.npu.stream(side):
            x.add_(x)
        assert reached.wait(60)
        assert (freed(erase=False), freed(erase=True)) == (False, True)
    finally:
        release.set()
        _C.unsubscribe(listener)
