"""What only torch has: kernels, modes, defaults, global hooks, operator objects, its own patches of itself."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

PATCHER = """
import torch
import torch.distributions as distributions
from torch.utils._python_dispatch import TorchDispatchMode

def new(*a, **k): pass
class Mine: pass

torch.cos = new
torch.Tensor.cuda = new
torch.Tensor.__pos__ = new
torch.ops.aten.tanh.default.mark = new
torch.nn.Module.dump_patches = True
torch.nn.modules.module._global_forward_hooks[999] = new
torch.set_default_dtype(torch.float64)
torch.utils._pytree.register_pytree_node(Mine, lambda x: ([], None), lambda x, c: Mine())
@distributions.register_kl(distributions.Normal, Mine)
def divergence(p, q): return 0
lib = torch.library.Library("aten", "IMPL")
lib.impl("sinh", lambda x: x * 2, "CPU")
mine = torch.library.Library("mine", "DEF")
mine.define("op(Tensor x) -> Tensor")
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))
Mode().__enter__()
torch.compile(lambda x: x + 1, backend="eager")
"""
EXPECTED = {
    ("patch", "torch.cos"),
    ("patch", "torch.Tensor.cuda"),
    ("patch", "torch.Tensor.__pos__"),
    ("addition", "torch.ops.aten.tanh.default.mark"),
    ("patch", "torch.nn.modules.module.Module.dump_patches"),
    ("registration", "torch.nn.modules.module._global_forward_hooks[999]"),
    ("patch", "torch.get_default_dtype()"),
    ("patch", "torch dispatch modes left on"),
    ("registration", "torch.utils._pytree.SUPPORTED_NODES[patcher.Mine]"),
    ("registration", "torch.distributions.kl._KL_REGISTRY[(torch.distributions.normal.Normal, patcher.Mine)]"),
    ("registration", "aten::sinh/CPU"),
}


def test_torch_is_looked_at_beyond_python(audit_of):
    result = audit_of("patcher", patcher=PATCHER, timeout=120.0)
    assert result.error == ""
    found = {(one.classed, one.target): one for one in result.findings}
    assert set(found) >= EXPECTED, EXPECTED - set(found)
    assert {one.target for one in result.of("patch")} == {target for classed, target in EXPECTED if classed == "patch"}
    lines = PATCHER.splitlines()
    for target, text in (
        ("torch.cos", "torch.cos = new"),
        ("aten::sinh/CPU", "lib = "),  # torch remembers where the library was made
        ("torch.distributions.kl._KL_REGISTRY[(torch.distributions.normal.Normal, patcher.Mine)]", "@distributions"),
    ):
        (finding,) = [one for one in result.findings if one.target == target]
        assert lines[finding.site.line - 1].startswith(text)
    assert "replaces a kernel" in found["registration", "aten::sinh/CPU"].tags
