"""What an unbacked symbol stands for: a number that only a run tells.

Symbols are at least 2 (`expressions.SMALLEST`), and nothing found is a size too: a number `n` is
written `symbol - 2`, and one below nought `1 - symbol`.
"""

from __future__ import annotations

from lucerne._src.ir.symbolic.expressions import SMALLEST, Expr, symbol

GUESS = 97
"""What is taken for a number that nobody knows anything about: no size that programs often have."""
DIMENSION, NUMBER, NEGATIVE = 0, 1, -1
"""What is counted: the first dimension of a tensor; its one element, which is at least 0, or less.
"""


def expression(name: str, counts: int) -> Expr:
    """The number as an expression of its symbol."""
    found = symbol(name)
    return SMALLEST - 1 - found if counts == NEGATIVE else found - SMALLEST


def number_of(value: int, counts: int) -> int:
    """The number, from what its symbol is."""
    return SMALLEST - 1 - value if counts == NEGATIVE else value - SMALLEST


def symbol_at(number: int, counts: int) -> int:
    """What its symbol is, from the number."""
    return SMALLEST - 1 - number if counts == NEGATIVE else number + SMALLEST
