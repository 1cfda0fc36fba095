"""Causal masks that are described instead of stored.

>>> import lucerne as torch
>>> from lucerne.nn.attention.bias import causal_lower_right
>>> causal_lower_right(2, 3)
tensor([[ True,  True, False],
        [ True,  True,  True]])
"""

from __future__ import annotations

import enum
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.subclasses.torch_function import disable_overrides
from lucerne.nn import functional as F

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the triangle of a causal mask has its corner when it is no square."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(lu.Tensor):
    """A causal mask for `scaled_dot_product_attention`, which needs no memory for it.

    Any other function sees the bool mask (True: the key is visible).
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise TypeError(
                f"CausalBias: variant must be a CausalVariant, not {type(variant).__name__}"
            )
        # One element, shown (queries, keys) times: the shape without the memory.
        one = lu.ones(1, 1, dtype=lu.bool).expand(seq_len_q, seq_len_kv)
        made: CausalBias = one.as_subclass(cls)
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            notices.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > "
                "seq_len_kv!"
            )

    def _materialize(self, device: Any = None) -> lu.Tensor:
        """The bool mask."""
        corner = 0
        if self.variant == CausalVariant.LOWER_RIGHT:
            corner = self.seq_len_kv - self.seq_len_q
        every = lu.ones(self.seq_len_q, self.seq_len_kv, dtype=lu.bool, device=device)
        mask: lu.Tensor = every.tril(corner)
        return mask

    def attend(
        self,
        query: lu.Tensor,
        key: lu.Tensor,
        value: lu.Tensor,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> lu.Tensor:
        """Attention with this mask: the kernel's own causal form where the corners agree."""
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        causal = (
            self.variant == CausalVariant.UPPER_LEFT or self.seq_len_q == self.seq_len_kv
        ) and (query.shape[-2], key.shape[-2]) == (self.seq_len_q, self.seq_len_kv)
        mask = None if causal else self._materialize(query.device)
        found: lu.Tensor = F.scaled_dot_product_attention(
            query, key, value, mask, dropout_p, causal, scale, enable_gqa
        )
        return found

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return repr(self._materialize())

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Any function sees the mask itself; questions about shape and dtype need none."""
        if func is F.scaled_dot_product_attention:
            with disable_overrides():
                return func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "__get__":
            with disable_overrides():
                return func(*args, **(kwargs or {}))
        plain = [a._materialize() if isinstance(a, CausalBias) else a for a in args]
        named = {k: _shown(a) for k, a in (kwargs or {}).items()}
        return func(*plain, **named)


def _shown(a: Any) -> Any:
    return a._materialize() if isinstance(a, CausalBias) else a


def causal_upper_left(*size: int) -> CausalBias:
    """Query i sees keys 0 to i."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_two(size, "causal_upper_left"))


def causal_lower_right(*size: int) -> CausalBias:
    """The last query sees every key, the one before it all but the last, and so on."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_two(size, "causal_lower_right"))


def _two(size: tuple[int, ...], name: str) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return size[0], size[1]
