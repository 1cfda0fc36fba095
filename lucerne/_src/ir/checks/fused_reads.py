"""What a fused loop may read of a value that it makes itself: all of it, each element where it is
made.

At one turn of a loop there is one element of every value in it. A view of such a value can be read
there only if it has, at this turn, the very element that was just made: the view goes over all
elements of the value, and each of its dimensions is one of the value's (which may come in another
order), has size one, or repeats the others. A part of a value (`v[0]`, `v[:1]`, `v[::2]`, a
diagonal) and a value cut anew (`v.reshape(-1)`) have other elements at that turn.

This is the one place where that is decided: grouping asks it before two groups become one
(`loops/group.py`), backends ask it when they read the views of a group, and `index_maps.py` checks
their loops by comparing addresses, without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lucerne._src.base.exact import exact
from lucerne._src.ir.meta import TensorMeta

REPEATED = -1
"""A dimension of a view along which the elements stay the same."""


def dims_read(
    made: TensorMeta, shape: Sequence[int], byte_strides: Sequence[int], offset: int
) -> tuple[int | None, ...] | None:
    """Which dimension of a value each one of a view goes along: its number, None for one of size
    one, or REPEATED. None: the view does not have all elements of the value, each at its own index.

    `byte_strides` and `offset` say where in the value's memory the view reads, in bytes.
    """
    sizes = enumerate(zip(made.shape, made.byte_strides, strict=True))
    of_step = {exact(s): d for d, (n, s) in sizes if n != 1}
    left = {d for d, n in enumerate(made.shape) if n != 1}
    if offset or len(left) != len(of_step) or 0 in of_step:
        return None
    found: list[int | None] = []
    for n, step in zip(shape, byte_strides, strict=True):
        if n == 1:
            found.append(None)
        elif step == 0:
            found.append(REPEATED)
        else:
            d = of_step.get(exact(step), -1)
            if d not in left or made.shape[d] != n:
                return None
            left.remove(d)
            found.append(d)
    return None if left else tuple(found)
