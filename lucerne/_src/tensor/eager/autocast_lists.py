"""Ops whose precision under autocast depends on the call: pooling of volumes, padding by mirror or
edge, products. Every other op says in its entry what autocast does to it (`Op.autocast`): PyTorch
2.13's lists, by experiment. `python -m tests.amp.table` runs every op of PyTorch's own test table
under both frameworks and compares the dtypes of the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _is_volume(args: tuple[Any, ...]) -> bool:
    return bool(args[0].ndim == 5)


def _sums_products(args: tuple[Any, ...]) -> bool:
    """Whether an einsum has a label that stands in two operands and not in the result."""
    left, arrow, right = args[0].replace(" ", "").partition("->")
    parts = left.split(",")
    shared = {c for c in left if c.isalpha() and sum(c in part for part in parts) > 1}
    return bool(shared - set(right)) if arrow else bool(shared)


def _are_vectors(args: tuple[Any, ...]) -> bool:
    return bool(args[0].ndim == args[1].ndim == 1)


def _loses_by_padding(args: tuple[Any, ...]) -> bool:
    _, sizes, mode = args[:3]
    return mode == "replicate" or (mode == "reflect" and len(sizes) <= 4)


SOMETIMES: dict[str, tuple[str, Callable[[tuple[Any, ...]], bool]]] = {
    "max_pool": ("full", _is_volume),
    "avg_pool": ("full", _is_volume),
    "adaptive_avg_pool": ("full", _is_volume),
    "nn.functional.pad_mode": ("full", _loses_by_padding),
    "einsum_list": ("lower", _sums_products),
    "inner": ("as given", _are_vectors),
}
"""Ops whose list depends on the call: pooling of volumes, padding by mirror or edge, products."""
