"""What a backward node is called: torch's names, as programs print and compare them.

They follow from torch's name of the op (`exp` gives ExpBackward0), or the op's entry tells
(`grad_fn`); a composite may give its last node the composite's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from lucerne._src.ir.op import Op, torch_name


def is_named(op: Op) -> bool:
    """Whether a composite gives its last node a name that the op it ends with has not."""
    return type(op.grad_fn) is str and op.grad_fn != "" and not op.explicit


def label_of(op: Op, args: tuple[Any, ...]) -> str | None:
    """The name that a composite gives its last node, where torch has one."""
    return grad_name(op, args) or None if op.grad_fn and not op.explicit else None


def grad_name(op: Op, plain: Sequence[Any]) -> str:
    """torch's name of the backward node of a call: AddBackward0, SumBackward1, ..."""
    found = op.grad_fn or _derived(torch_name(op) or op.name)
    return found if isinstance(found, str) else found(*plain)


@cache
def _derived(name: str) -> str:
    """Words and what follows a digit begin with a capital: `_fft_c2r` is FftC2R."""
    words = re.sub("(?:^|_+|(?<=[0-9]))([a-z0-9])", lambda m: m[1].upper(), name.rstrip("_"))
    return f"{words}Backward0"
