"""Einstein summation: labels are read, operands aligned, then contracted from left to right."""

from __future__ import annotations

import functools
import string
from typing import Any, NamedTuple

import numpy as np

from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor, TensorList
from lucerne._src.ops.checks import need_dtype_of
from lucerne._src.ops.linalg.matmul import batch_matmul, refuse_bool

LETTERS = string.ascii_uppercase + string.ascii_lowercase
ELLIPSIS = 52
Labels = list[int]


# ---- reading the equation ---------------------------------------------------------------------


def parse_inputs(text: str) -> list[Labels]:
    """`ij,...k` as one list of label numbers per operand."""
    found: list[Labels] = [[]]
    i = 0
    while i < len(text):
        c = text[i]
        if c == ".":
            if ELLIPSIS in found[-1]:
                raise RuntimeError(
                    f"einsum(): found '.' for operand {len(found) - 1} for which an ellipsis was "
                    "already found"
                )
            if text[i : i + 3] != "...":
                raise RuntimeError(
                    f"einsum(): found '.' for operand {len(found) - 1} that is not part of any "
                    "ellipsis"
                )
            found[-1].append(ELLIPSIS)
            i += 2
        elif c == ",":
            found.append([])
        elif c != " ":
            found[-1].append(_label(c, i))
        i += 1
    return found


def _label(c: str, at: int) -> int:
    if c not in LETTERS:
        raise RuntimeError(
            f"einsum(): invalid subscript given at index {at} in the equation string, subscripts "
            "must be in [a-zA-Z]"
        )
    return LETTERS.index(c)


def parse_output(text: str, at: int) -> Labels:
    found: Labels = []
    i = 0
    while i < len(text):
        c = text[i]
        if c == ".":
            if ELLIPSIS in found:
                raise RuntimeError(
                    "einsum(): found '.' for output but an ellipsis (...) was already found"
                )
            if text[i : i + 3] != "...":
                raise RuntimeError(
                    "einsum(): found '.' for output that is not part of any ellipsis (...)"
                )
            found.append(ELLIPSIS)
            i += 2
        elif c != " ":
            found.append(_label(c, at + i))
        i += 1
    return found


def implied_output(inputs: list[Labels]) -> Labels:
    """Without an arrow: the ellipsis, then labels that occur once, in alphabetic order."""
    every = [label for labels in inputs for label in labels]
    once = sorted(n for n in set(every) if n != ELLIPSIS and every.count(n) == 1)
    return [ELLIPSIS, *once]


# ---- aligning operands ------------------------------------------------------------------------


def _check_counts(operands: tuple[Any, ...], inputs: list[Labels]) -> int:
    """How many dimensions the ellipsis stands for, at most."""
    if len(inputs) < len(operands):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    if len(inputs) > len(operands):
        raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
    widest = 0
    for i, (x, labels) in enumerate(zip(operands, inputs, strict=True)):
        named = len(labels) - (ELLIPSIS in labels)
        if ELLIPSIS in labels:
            if named > x.ndim:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than "
                    f"the number of dimensions ({x.ndim}) for operand {i}"
                )
            widest = max(widest, x.ndim - named)
        elif named != x.ndim:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the "
                f"number of dimensions ({x.ndim}) for operand {i} and no ellipsis was given"
            )
    return widest


def _places(inputs: list[Labels], output: Labels, wide: int) -> tuple[dict[int, int], int, int]:
    """Position of each label in the aligned order, where the ellipsis starts, output's length."""
    places: dict[int, int] = {}
    start = at = 0
    seen = {label for labels in inputs for label in labels}
    for label in output:
        if label == ELLIPSIS:
            start, at = at, at + wide
            continue
        if label in places:
            raise RuntimeError(
                f"einsum(): output subscript {LETTERS[label]} appears more than once in the output"
            )
        if label not in seen:
            raise RuntimeError(
                f"einsum(): output subscript {LETTERS[label]} does not appear in the equation for "
                "any input operand"
            )
        places[label] = at
        at += 1
    length = at
    if ELLIPSIS not in output:
        start, at = at, at + wide
    for label in sorted(seen - set(places) - {ELLIPSIS}):
        places[label] = at
        at += 1
    places[ELLIPSIS] = at
    return places, start, length


def _aligned(
    x: Tensor, labels: Labels, places: dict[int, int], start: int, wide: int, i: int
) -> Tensor:
    """An operand with one dimension per label, in the common order; missing ones have size one."""
    at: dict[int, int] = {}
    order: list[tuple[int, int]] = []
    d = 0
    for label in labels:
        if label == ELLIPSIS:
            own = x.ndim - (len(labels) - 1 - labels.index(ELLIPSIS)) - d
            for k in range(own):
                order.append((start + wide - own + k, d + k))
            d += own
        elif label in at:
            x = _diagonal(x, at[label], d, LETTERS[label], i)
        else:
            at[label] = d
            order.append((places[label], d))
            d += 1
    source = dict(order)
    x = x.permute(*[source[p] for p in sorted(source)])
    for p in range(places[ELLIPSIS]):
        if p not in source:
            x = x.unsqueeze(p)
    return x


def _diagonal(x: Tensor, first: int, second: int, name: str, i: int) -> Tensor:
    if x.shape[first] != x.shape[second]:
        raise RuntimeError(
            f"einsum(): subscript {name} is repeated for operand {i} but the sizes don't match, "
            f"{x.shape[second]} != {x.shape[first]}"
        )
    return x.diagonal(0, first, second).movedim(-1, first)


def _check_broadcast(operands: list[Any], places: dict[int, int]) -> None:
    names = {p: LETTERS[n] for n, p in places.items() if n != ELLIPSIS}
    sizes = [1] * places[ELLIPSIS]
    for i, x in enumerate(operands):
        for d, n in enumerate(x.shape):
            if sizes[d] == 1:
                sizes[d] = n
            elif n not in (1, sizes[d]):
                raise RuntimeError(
                    f"einsum(): subscript {names.get(d, '...')} has size {n} for operand {i} which "
                    f"does not broadcast with previously seen size {sizes[d]}"
                )


# ---- contraction ------------------------------------------------------------------------------


def _pair_sum(left: Tensor, right: Tensor, summed: list[int]) -> Tensor:
    """Sum of products of two aligned operands over the dimensions `summed`, which stay as ones."""
    if not summed:
        return left * right
    need_dtype_of(left, right)
    refuse_bool("bmm", left.dtype)
    both: list[int] = []
    only_left: list[int] = []
    only_right: list[int] = []
    for d in range(left.ndim):
        if d in summed:
            continue
        if left.shape[d] != 1:
            (both if right.shape[d] != 1 else only_left).append(d)
        else:
            only_right.append(d)
    if only_right and only_left and _in_order(both + only_right + only_left):
        left, right, only_left, only_right = right, left, only_right, only_left
    made = batch_matmul(
        _matrix(left, both, only_left, summed), _matrix(right, both, summed, only_right)
    )
    shape = (
        [left.shape[d] for d in both]
        + [left.shape[d] for d in only_left]
        + [1] * len(summed)
        + [right.shape[d] for d in only_right]
    )
    order = both + only_left + summed + only_right
    return made.reshape(shape).permute(*np.argsort(order).tolist())


def _in_order(dims: list[int]) -> bool:
    return dims == sorted(dims)


def _matrix(x: Tensor, both: list[int], rows: list[int], columns: list[int]) -> Tensor:
    """`x` as a batch of matrices with these groups of dimensions; the others have size one."""
    groups = (both, rows, columns)
    order = [d for group in groups for d in group]
    rest = [d for d in range(x.ndim) if d not in order]
    return x.permute(*order, *rest).reshape([sh.numel([x.shape[d] for d in g]) for g in groups])


def _contract(operands: list[Any], count: int, length: int) -> Tensor:
    """Multiply from left to right, summing each dimension as soon as nobody else has it."""
    holders = [sum(x.shape[d] != 1 for x in operands) for d in range(count)]
    result = operands[0]
    for x in operands[1:]:
        summed: list[int] = []
        only_left: list[int] = []
        only_right: list[int] = []
        for d in range(length, count):
            if result.shape[d] != 1 and x.shape[d] != 1:
                holders[d] -= 1
                if holders[d] == 1:
                    summed.append(d)
                    holders[d] = 0
            elif holders[d] == 1:
                holders[d] = 0
                (only_left if result.shape[d] != 1 else only_right).append(d)
        result = result.sum(only_left, keepdim=True) if only_left else result
        x = x.sum(only_right, keepdim=True) if only_right else x
        result = _pair_sum(result, x, summed)
    rest = list(range(length, count))
    if not rest:
        return result
    return result.sum(rest) if len(operands) == 1 else result.squeeze(tuple(rest))


# ---- two operands, as most calls have them ------------------------------------------------------


class EinsumPair(NamedTuple):
    """How two operands become one product of matrices: orders and shapes, None where the operand
    is right as it stands."""

    swapped: bool
    left_order: tuple[int, ...] | None
    left_shape: tuple[int, ...] | None
    right_order: tuple[int, ...] | None
    right_shape: tuple[int, ...] | None
    shape: tuple[int, ...] | None
    order: tuple[int, ...] | None


@functools.lru_cache(maxsize=1024)
def _pair(equation: str, left: tuple[int, ...], right: tuple[int, ...]) -> EinsumPair | None:
    """The plan of a plain equation (an arrow, each label once in each operand, no ellipsis, equal
    sizes, nothing to sum but shared labels); None: only the general way can tell."""
    terms, arrow, out = equation.replace(" ", "").partition("->")
    a, comma, b = terms.partition(",")
    sizes = dict(zip(a, left)) | dict(zip(b, right))  # noqa: B905 - lengths are checked below
    plain = arrow and comma and all(c in LETTERS for c in a + b + out)
    plain = plain and all(len(set(t)) == len(t) for t in (a, b, out))
    if not plain or (len(a), len(b)) != (len(left), len(right)) or set(out) - set(a + b):
        return None
    if [sizes[c] for c in a] != list(left) or [sizes[c] for c in b] != list(right):
        return None
    summed = sorted(set(a) & set(b) - set(out), key=LETTERS.index)
    if not summed or (set(a) ^ set(b)) - set(out):
        return None
    both = [c for c in out if c in a and c in b]
    if any(sizes[c] == 1 for c in sizes if c not in both):  # a size of one may mean to broadcast
        return None
    only = [c for c in out if c not in b], [c for c in out if c not in a]
    swapped = bool(only[0] and only[1]) and "".join(both + only[1] + only[0]) == out
    if swapped:
        a, b, only = b, a, (only[1], only[0])
    made = both + only[0] + only[1]
    given = _order_and_shape(a, (both, only[0], summed), sizes)
    taken = _order_and_shape(b, (both, summed, only[1]), sizes)
    shape = tuple([sizes[c] for c in made])
    whole = len(only[0]) == len(only[1]) == 1 and len(both) <= 1
    order = tuple([made.index(c) for c in out])
    return EinsumPair(swapped, *given, *taken, None if whole else shape, _or_none(order))


def _order_and_shape(
    labels: str, groups: tuple[list[str], ...], sizes: dict[str, int]
) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """How to make a (batch of) matrices with these groups of dimensions of an operand."""
    groups = groups if groups[0] else groups[1:]
    order = tuple([labels.index(c) for g in groups for c in g])
    shape = tuple([sh.numel([sizes[c] for c in g]) for g in groups])
    return _or_none(order), None if all(len(g) == 1 for g in groups) else shape


def _or_none(order: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if order == tuple(range(len(order))) else order


def _laid(x: Tensor, order: tuple[int, ...] | None, shape: tuple[int, ...] | None) -> Tensor:
    x = x if order is None else x.permute(order)
    return x if shape is None else x.reshape(shape)


def _product_of(pair: EinsumPair, left: Tensor, right: Tensor) -> Tensor:
    need_dtype_of(left, right)
    refuse_bool("bmm", left.dtype)
    if pair.swapped:
        left, right = right, left
    made = batch_matmul(
        _laid(left, pair.left_order, pair.left_shape),
        _laid(right, pair.right_order, pair.right_shape),
    )
    made = made if pair.shape is None else made.reshape(pair.shape)
    return made if pair.order is None else made.permute(pair.order)


def _plain_sizes(operands: Any) -> bool:
    """Whether all sizes are numbers (those of a function that is captured may stand for more)."""
    return all(type(n) is int for x in operands for n in x.shape)


def _sums_products(args: tuple[Any, ...]) -> bool:
    """Whether an einsum has a label that stands in two operands and not in the result."""
    left, arrow, right = args[0].replace(" ", "").partition("->")
    parts = left.split(",")
    shared = {c for c in left if c.isalpha() and sum(c in part for part in parts) > 1}
    return bool(shared - set(right)) if arrow else bool(shared)


@composite(
    autocast=("lower", _sums_products),
    internal=True,
    name="einsum_list",
    out=False,
    oracle=lambda equation, operands: np.einsum(equation, *operands),
    samples=[("ij,kj->ik", [(2, 3), (4, 3)])],
    torch="einsum",
)
def einsum_list(equation: str, operands: TensorList) -> Tensor:
    """`einsum` with its operands in a list."""
    if len(operands) == 2 and _plain_sizes(operands):
        pair = _pair(equation, *(tuple(x.shape) for x in operands))
        if pair is not None:
            return _product_of(pair, operands[0], operands[1])
    left, arrow, right = equation.partition("->")
    inputs = parse_inputs(left)
    wide = _check_counts(operands, inputs)
    output = parse_output(right, len(left) + 2) if arrow else implied_output(inputs)
    places, start, length = _places(inputs, output, wide)
    aligned = [
        _aligned(x, labels, places, start, wide, i)
        for i, (x, labels) in enumerate(zip(operands, inputs, strict=True))
    ]
    _check_broadcast(aligned, places)
    return _contract(aligned, places[ELLIPSIS], length)


def _sublist_label(n: Any) -> str:
    if n is Ellipsis:
        return "..."
    if not 0 <= n < ELLIPSIS:
        raise ValueError(
            "einsum(): subscript in subscript list is not within the valid range [0, 52)"
        )
    return LETTERS[n]


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """`einsum(a, [0, 1], b, [1, 2], [0, 2])` as an equation and operands."""
    terms = ["".join(map(_sublist_label, labels)) for labels in args[1::2]]
    equation = ",".join(terms)
    if len(args) % 2:
        equation += "->" + "".join(map(_sublist_label, args[-1]))
    return equation, list(args[: len(args) // 2 * 2 : 2])


@front()
def einsum(*args: Any) -> Tensor:
    """Sum of products by labels: `einsum("ij,jk->ik", a, b)` is the matrix product.

    >>> import lucerne
    >>> lucerne.einsum("ij,j->i", lucerne.ones(2, 3), lucerne.ones(3))
    tensor([3., 3.])
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one "
            "operand and its subscripts list"
        )
    if isinstance(args[0], str):
        equation, operands = args[0], list(args[1:])
    else:
        equation, operands = _from_sublists(args)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    for i, t in enumerate(operands):
        if not hasattr(t, "_meta"):
            raise TypeError(
                f"expected Tensor as element {i} in argument 1, but got {type(t).__name__}"
            )
    return einsum_list(equation, operands)
