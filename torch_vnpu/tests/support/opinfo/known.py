"""Operators of the database that do not agree with CPU, each with its reason.

An entry that has become untrue fails a test, and a difference without an entry fails the full pass.
"""

_JITERATOR = "torch.cuda.jiterator compiles CUDA source; CPU refuses it too"
_NO_CPU_KERNEL = "there is no CPU kernel, so CPU refuses it too"
_SPARSE = "it takes or returns a sparse tensor, and there are none on npu: refused"
_LAYOUT = (
    "attention is fused on CPU and composed of other operators here: equal up to rounding, the gradients in other strides; "
    "a fused kernel of its own would be needed"
)
_ACCUMULATION = (
    "PyTorch picks the dtype in which it accumulates by the type of the device, and not the same for CPU and for a device that "
    "it does not know: the gradients are rounded elsewhere"
)

#: Operator, or (operator, dtype), to reason.
KNOWN: dict[str | tuple[str, str], str] = {
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    ("nn.functional.linear_cross_entropy.chunked", "bfloat16"): _ACCUMULATION,
    ("nn.functional.linear_cross_entropy.chunked_none", "bfloat16"): _ACCUMULATION,
    ("nn.functional.scaled_dot_product_attention", "float32"): _LAYOUT,
    "sparse.mm.reduce": _SPARSE,
    "sparse.sampled_addmm": _SPARSE,
    "to_sparse": _SPARSE,
    "torch.ops.aten._efficient_attention_forward": _NO_CPU_KERNEL,
    "torch.ops.aten._flash_attention_forward": _NO_CPU_KERNEL,
}


def reason(op: str, dtype: str) -> str | None:
    """Why `op` is known not to agree with CPU in `dtype`; None where it is expected to agree."""
    return KNOWN.get((op, dtype)) or KNOWN.get(op)
