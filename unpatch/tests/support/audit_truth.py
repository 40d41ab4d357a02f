"""Real packages and what is known of them: the rows that an audit must give, and no others.

Releases as in requirements-audit.txt. Read by the tests and by benchmarks/audit.py.
"""

from __future__ import annotations

from typing import NamedTuple

from unpatch.audit.records import Activation, AuditResult, Class

_DISTRIBUTIONS = "torch.distributions"
_LLAMA = "transformers.models.llama.modeling_llama"


class Package(NamedTuple):
    """A package with its patches and additions, as far as `on` reaches."""

    activation: Activation
    patches: frozenset[str] = frozenset()
    additions: frozenset[str] = frozenset()
    on: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  #: what else it imports, and what may not be installed


PACKAGES = {
    "pytorch_lightning": Package(
        Activation("pytorch_lightning"), frozenset({"torch.compile"}), on=("torch",), needs=("torchmetrics",)
    ),
    "torch_geometric": Package(
        Activation("torch_geometric"), frozenset({"torch.index_select", "torch.select"}), on=("torch",)
    ),
    "pyro": Package(
        Activation("pyro"),
        frozenset(
            {
                f"{_DISTRIBUTIONS}.constraints._CorrCholesky.check",
                f"{_DISTRIBUTIONS}.half_cauchy.HalfCauchy.log_prob",
                f"{_DISTRIBUTIONS}.transforms.Transform.__getstate__",
            }
        ),
        frozenset(
            {
                f"{_DISTRIBUTIONS}.transformed_distribution.TransformedDistribution.clear_cache",
                f"{_DISTRIBUTIONS}.transforms.Transform.clear_cache",
            }
        ),
        needs=("pyroapi", "opt_einsum"),
    ),
    "accelerate": Package(Activation("accelerate")),
    "transformers": Package(Activation("transformers"), on=("torch",)),
    "fvcore": Package(Activation("fvcore.nn")),
    "liger_kernel": Package(
        Activation("liger_kernel.transformers", calls=("liger_kernel.transformers.apply_liger_kernel_to_llama()",)),
        frozenset(
            f"{_LLAMA}.{name}"
            for name in ("LlamaForCausalLM.forward", "LlamaMLP", "LlamaRMSNorm", "apply_rotary_pos_emb")
        ),
        needs=("transformers", "triton"),
    ),
}


def rows(result: AuditResult, *classes: Class) -> frozenset[str]:
    """The targets of these classes, aliases included."""
    return frozenset(name for one in result.of(*classes) for name in (one.target, *one.aliases))
