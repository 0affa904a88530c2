"""PyTorch's attention of separate queries, keys and values."""

import math
from typing import Optional

from .._core import InputError, Tensor, attention, cat, dropout, softmax, uint8


def _rows(x: Tensor) -> Tensor:
    """(B, heads, T, d) as rows (B, T, heads · d)."""
    return x.permute(0, 2, 1, 3).flatten(2)


def _causal(query: Tensor, key: Tensor, value: Tensor, p: float, scale: float) -> Tensor:
    """By the library's own operation, which makes nothing of T² elements."""
    heads, kv_heads = query.size(1), key.size(1)
    rows = cat([_rows(query), _rows(key), _rows(value)], 2)
    y = attention(rows, heads=heads, kv_heads=kv_heads, scale=scale, dropout=p)
    return y.reshape(*y.shape[:2], heads, -1).permute(0, 2, 1, 3)


def _seen(query: Tensor, key: Tensor) -> Tensor:
    return query.new_ones(query.size(-2), key.size(-2)).tril() > 0


def _weights(scores: Tensor, mask: Optional[Tensor]) -> Tensor:
    """A row that sees nothing weighs nothing."""
    if mask is None:
        return softmax(scores)
    masked = scores.masked_fill(mask == 0, -math.inf) if mask.dtype == uint8 else scores + mask.to(scores.dtype)
    blind = (masked == -math.inf).all(-1, True)  # of the sum: in 16 bits large numbers become infinite
    return softmax(masked.masked_fill(blind, 0)).masked_fill(blind, 0)


def _check(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], is_causal: bool) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.ndim < 2 or query.ndim != key.ndim or query.size(-1) != key.size(-1) or key.shape[:-1] != value.shape[:-1]:
        raise InputError(f"scaled_dot_product_attention: {shapes} are not (…, L, E), (…, S, E) and (…, S, V)")
    if attn_mask is not None and attn_mask.dtype != uint8 and not attn_mask.is_floating_point():
        raise InputError(f"scaled_dot_product_attention: attn_mask is {attn_mask.dtype}, and would be added; compare it: mask != 0")
    if attn_mask is not None and is_causal:
        raise InputError("scaled_dot_product_attention: attn_mask and is_causal exclude each other; give a mask that is causal")


def _heads_of_a_key(query: Tensor, key: Tensor, enable_gqa: bool) -> int:
    heads, kv_heads = (x.size(-3) if x.ndim > 2 else 1 for x in (query, key))
    if heads == kv_heads:
        return 1
    if not enable_gqa or heads % kv_heads != 0:
        raise InputError(f"scaled_dot_product_attention: {heads} heads of queries, {kv_heads} of keys; " + (
            "each of these serves as many as any other" if enable_gqa else "that is enable_gqa=True"))
    return heads // kv_heads


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(scale · query · keyᵀ + mask) · value, of (…, L, E), (…, S, E) and (…, S, V); scale is 1/√E unless given.

    A mask is uint8, 1 where a query sees a key, or is added. Causal attention of a sequence to itself, of four dimensions,
    is the library's own operation; with a mask, or without, all weights are in memory. `dropout_p` counts in evaluation, too.
    """
    _check(query, key, value, attn_mask, is_causal)
    size = scale if scale is not None else 1 / math.sqrt(query.size(-1))
    times = _heads_of_a_key(query, key, enable_gqa)
    if is_causal and query.ndim == 4 and query.shape[2:] == key.shape[2:] == value.shape[2:] and size > 0:
        return _causal(query, key, value, dropout_p, size)
    if times > 1:
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    weights = _weights((query * size).matmul(key, trans_b=True), _seen(query, key) if is_causal else attn_mask)
    return (dropout(weights, dropout_p) if dropout_p else weights).matmul(value)
