"""Operators of torch_npu that libraries import from it by name, made of PyTorch's own.

The names, the arguments and what they mean are those of torch_npu's public documentation.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_UNLIMITED = 2147483647
#: sparse_mode -> on which corner of the matrix of scores the causal diagonal stands; the others take the mask as it is.
_CAUSAL = {2: "left-up", 3: "right-down"}
_MASK_AS_IT_IS = (0, 1)

#: The attention; None in place of the softmax's maximum, sum and output, which only torch_npu's own backward needs; 0 for seed,
#: offset and count of the dropout's random numbers, which come from the device's generator here.
FusionAttention = tuple[Tensor, None, None, None, int, int, int]


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _UNLIMITED,
    next_tockens: int = _UNLIMITED,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> FusionAttention:
    """Attention, `softmax(mask(query keyᵀ · scale + pse)) value`, through `scaled_dot_product_attention`.

    Args:
        query, key, value: in the layout; key and value may have fewer heads, a divisor of `head_num`.
        head_num: heads of the query.
        input_layout: BNSD, BSND, BSH, SBH (B batch, N heads, S sequence, D head, H = N·D), or TND (T: all sequences in a row).
        pse: added to the scores, broadcast to (B, N, Sq, Skv).
        atten_mask: true where a key is not attended to, broadcast to (B, N, Sq, Skv). With sparse_mode 2 and 3, which are
            causal from the left upper and the right lower corner, its contents are known and not read.
        keep_prob: 1 − the probability of dropout.
        actual_seq_qlen, actual_seq_kvlen: for TND, where each sequence ends, in tokens.

    Raises:
        NotImplementedError: another layout or sparse_mode; prefix, padding_mask, or limits on tokens.
    """
    limited = (pre_tockens, next_tockens) != (_UNLIMITED, _UNLIMITED) and sparse_mode not in _CAUSAL
    if padding_mask is not None or prefix is not None or limited or sparse_mode not in (*_MASK_AS_IT_IS, *_CAUSAL):
        raise NotImplementedError(
            "torch_vnpu's npu_fusion_attention takes sparse_mode 0 to 3, without padding_mask, prefix, pre_tockens and "
            f"next_tockens; got sparse_mode {sparse_mode}"
        )

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        bias = _bias(q, k, atten_mask, pse, sparse_mode)
        return F.scaled_dot_product_attention(q, k, v, bias, 1.0 - keep_prob, scale=scale, enable_gqa=True)

    if input_layout == "TND":
        if actual_seq_qlen is None or actual_seq_kvlen is None:
            raise ValueError("layout TND needs actual_seq_qlen and actual_seq_kvlen: where each sequence ends")
        ends = zip(pairwise((0, *actual_seq_qlen)), pairwise((0, *actual_seq_kvlen)), strict=True)
        parts = [
            attend(*(x[slice(*ends)].transpose(0, 1)[None] for x, ends in ((query, q), (key, kv), (value, kv))))
            for q, kv in ends
        ]
        return _result(torch.cat([part[0].transpose(0, 1) for part in parts]))
    width = query.shape[-1] // head_num if input_layout in ("BSH", "SBH") else query.shape[-1]
    heads = [_to_bnsd(x, input_layout, width) for x in (query, key, value)]
    return _result(_from_bnsd(attend(*heads), input_layout))


def _result(attention: Tensor) -> FusionAttention:
    return attention, None, None, None, 0, 0, 0


def _bias(q: Tensor, k: Tensor, mask: Tensor | None, pse: Tensor | None, sparse_mode: int) -> Tensor | None:
    """What is added to the scores, (…, Sq, Skv): −∞ where a key is not attended to."""
    rows, columns = q.shape[-2], k.shape[-2]
    if sparse_mode in _CAUSAL:
        diagonal = 1 if _CAUSAL[sparse_mode] == "left-up" else columns - rows + 1
        mask = torch.ones(rows, columns, dtype=torch.bool, device=q.device).triu(diagonal)
    if mask is None:
        return None if pse is None else pse.to(q.dtype)
    bias: Any = torch.zeros((), dtype=q.dtype, device=q.device) if pse is None else pse.to(q.dtype)
    return torch.where(mask.bool(), float("-inf"), bias)


def _to_bnsd(x: Tensor, layout: str, width: int) -> Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.unflatten(-1, (-1, width)).transpose(1, 2)
    if layout == "SBH":
        return x.unflatten(-1, (-1, width)).permute(1, 2, 0, 3)
    raise NotImplementedError(f"input_layout must be BNSD, BSND, BSH, SBH or TND, not {layout!r}")


def _from_bnsd(x: Tensor, layout: str) -> Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2)
    return x.permute(2, 0, 1, 3).flatten(2)
