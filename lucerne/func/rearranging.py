"""`rearrange`: transpose, split, merge and stack dimensions, by a pattern of names."""

from __future__ import annotations

import math
import re
from typing import Any

from lucerne._src.tensor import api as lu

_TOKEN = re.compile(r"\.\.\.|[A-Za-z_][A-Za-z0-9_]*|[()]|1|\s+|.")
_REST = "..."
_APART = "... each by itself"
Group = list[str]
"""The names that one dimension is made of; none: a dimension of size one."""


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """The elements of a tensor (or of a list of them, stacked) in another order of dimensions.

    Names on the left say how the tensor is laid out, `(a b)` a dimension made of two, `1` or `()`
    one of size one, `...` all that are not named; the right says how they are wanted.

    >>> import lucerne as torch
    >>> torch.func.rearrange(torch.zeros(2, 3, 4), "a b c -> c (a b)").shape
    torch.Size([4, 6])
    """
    x = tensor if isinstance(tensor, lu.Tensor) else lu.stack(list(tensor))
    left, right = _sides(pattern)
    if any(_REST in group for group in left):
        raise ValueError(f"Ellipsis is parenthesis in the left side is not allowed: {pattern}")
    rest = x.dim() - (len(left) - 1) if [_APART] in left else 0
    if rest < 0 or ([_APART] not in left and len(left) != x.dim()):
        named = len(left) - ([_APART] in left)
        fits = "less than or equal to" if [_APART] in left else "equal to"
        raise ValueError(
            f"Number of dimensions in pattern ({named}) must be {fits} the number of dimensions in "
            f"the tensor ({x.dim()})"
        )
    left, right = _with_rest(left, rest), _with_rest(right, rest)
    names = [n for group in left for n in group]
    _check_names(pattern, names, [n for group in right for n in group], axes_lengths)
    sizes = dict(axes_lengths)
    shape: list[int] = []
    for group, size in zip(left, x.shape, strict=True):
        shape += _split(group, int(size), sizes, pattern)
    order = [names.index(n) for group in right for n in group]
    parts = x.reshape(shape).permute(order)
    return parts.reshape([math.prod(sizes[n] for n in group) for group in right])


def _sides(pattern: str) -> tuple[list[Group], list[Group]]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    return _groups(sides[0], pattern), _groups(sides[1], pattern)


def _groups(side: str, pattern: str) -> list[Group]:
    found: list[Group] = []
    inside: Group | None = None
    for token in _TOKEN.findall(side):
        if token.isspace():
            continue
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            found.append(inside)
            inside = None
        elif token in "()" or not (token == _REST or token == "1" or token.isidentifier()):
            nested = token == "(" and inside is not None
            raise ValueError(
                "Axis composition is one-level (brackets inside brackets not allowed)"
                if nested
                else f"Imbalanced parentheses in expression: '{side}'"
                if token in "()"
                else f"Unknown character '{token}'"
            )
        elif inside is not None:
            inside += [] if token == "1" else [token]
        else:
            found.append([] if token == "1" else [_APART] if token == _REST else [token])
    if inside is not None:
        raise ValueError(f"Imbalanced parentheses in expression: '{side}'")
    return found


def _with_rest(groups: list[Group], count: int) -> list[Group]:
    """The groups with names for the dimensions that `...` stands for."""
    names = [f"{_REST}{i}" for i in range(count)]
    found: list[Group] = []
    for group in groups:
        if group == [_APART]:
            found += [[n] for n in names]
        else:
            found.append([m for n in group for m in (names if n == _REST else [n])])
    return found


def _check_names(pattern: str, left: Group, right: Group, lengths: dict[str, int]) -> None:
    for side in (left, right):
        twice = sorted({n for n in side if side.count(n) > 1})
        if twice:
            raise ValueError(f"Indexing expression contains duplicate dimension '{twice[0]}'")
    apart = set(left) ^ set(right)
    if apart:
        raise ValueError(
            "Identifiers only on one side of rearrange expression (should be on both): "
            f"{apart} in {pattern!r}"
        )
    unknown = set(lengths) - set(left)
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown} in {pattern!r}")


def _split(group: Group, size: int, sizes: dict[str, int], pattern: str) -> list[int]:
    """The sizes of the names that a dimension is made of; one of them may be left to find."""
    missing = [n for n in group if n not in sizes]
    if len(missing) > 1:
        raise ValueError(f"Could not infer the sizes of {missing} in pattern {pattern!r}")
    known = math.prod(sizes[n] for n in group if n in sizes)
    if missing:
        if known == 0 or size % known:
            raise ValueError(f"A dimension of size {size} can't be split by {known} ({pattern!r})")
        sizes[missing[0]] = size // known
    elif known != size:
        raise ValueError(f"Expected a dimension of size {known}, got {size} ({pattern!r})")
    return [sizes[n] for n in group]
