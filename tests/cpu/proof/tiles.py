"""Calls of the kernels on matrix tiles, as expressions (see `sized`): sizes around the edges of a
tile (16 rows, 32 numbers deep), of a panel (32) and of a step over k.

Products and convolutions take tiles from a certain size on. For the proof these limits are lifted
(`tiles_for_all`), so that edges come without millions of numbers around them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from lucerne._src.backends.cpu.conv.amx import fprop_plan, wgrad_plan
from lucerne._src.backends.cpu.gemm import choose, fuse, prepack, update
from lucerne._src.backends.cpu.gemm.amx import products
from lucerne._src.backends.cpu.gemm.plan import GemmProduct

TYPES = ("float32", "bfloat16")
_EDGES = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 96, 97)
_DEPTHS = (1, 2, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 95, 96, 97, 129)
_CHANNELS = (1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65)
_SIDES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 19, 31, 33)
_LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97)
_WIDTHS = (1, 3, 8, 16, 17, 31, 32, 33, 64, 65, 80, 96, 128)
_HUGE = 1e30
ASKING = (products, choose, fuse, prepack, update)
"""The modules that ask whether tiles suit a product."""


def _takes_any(p: GemmProduct) -> bool:
    """Tiles for every product that lies as they want it."""
    dense = 1 in (p.a_row, p.a_k) and 1 in (p.b_k, p.b_col)
    return dense and bool(p.m and p.n and p.k) and products.has_amx()


def _parts_take_any(p: GemmProduct) -> bool:
    return _takes_any(p) and products.parts_work()


@contextmanager
def tiles_for_all() -> Iterator[None]:
    """Sizes don't matter for the choice of tiles."""
    with ExitStack() as stack:
        for module in ASKING:
            for name, way in (("amx_takes", _takes_any), ("parts_take", _parts_take_any)):
                if hasattr(module, name):
                    stack.enter_context(mock.patch.object(module, name, way))
        for plan in (fprop_plan, wgrad_plan):
            stack.enter_context(mock.patch.object(plan, "_LEAST_PRODUCTS", 0))
            stack.enter_context(mock.patch.object(plan, "_MOST_WASTE", _HUGE))
        yield


def patched() -> bool:
    """Whether every module that asks has been told (tests look at this)."""
    asking = {
        name
        for name, module in sys.modules.items()
        if name.startswith("lucerne.") and "parts_take" in vars(module)
    }
    return asking <= {m.__name__ for m in ASKING}


# ---- rows ---------------------------------------------------------------------------------------

_PRODUCTS = (
    "x({m}, {k}) @ x({k}, {n})",
    "x({m}, {k}) @ x({n}, {k}).T",
    "x({k}, {m}).T @ x({k}, {n})",
    "F.linear(x({m}, {k}), x({n}, {k}), x({n}))",
    "x({b}, {m}, {k}) @ x({b}, {k}, {n})",
    "x({b}, {m}, {k}) @ x({k}, {n})",
    "x({b}, {k}, {m}).mT @ x({b}, {n}, {k}).mT",
    "torch.addmm(x({m}, {n}), x({m}, {k}), x({k}, {n}), beta=2, alpha=3)",
    "torch.addmm(x({n}), x({m}, {k}), x({k}, {n}))",
    "torch.addmm(x({m}, 1), x({m}, {k}), x({k}, {n}))",
    "torch.baddbmm(x({b}, 1, {n}), x({b}, {m}, {k}), x({b}, {k}, {n}))",
)
_EMPTY = (
    "x(0, 64) @ x(64, 33)",
    "x(33, 0) @ x(0, 65)",
    "x(33, 64) @ x(64, 0)",
    "x(0, 33, 64) @ x(0, 64, 33)",
    "F.linear(x(65, 0), x(33, 0), x(33))",
    "F.conv2d(x(0, 32, 9, 9), x(33, 32, 3, 3), padding=1)",
)


def _product(draw: random.Random) -> tuple[str, tuple[str, ...]]:
    m, n, k = draw.choice(_EDGES), draw.choice(_EDGES), draw.choice(_DEPTHS)
    return draw.choice(_PRODUCTS).format(m=m, n=n, k=k, b=draw.choice((1, 2, 3, 5))), TYPES


def _convolution(draw: random.Random) -> tuple[str, tuple[str, ...]]:
    groups = draw.choice((1, 1, 1, 2, 3))
    into, out = draw.choice(_CHANNELS), draw.choice(_CHANNELS)
    if max(into, out) > 33:
        groups = 1
    taps = draw.choice(((1, 1), (3, 3), (3, 3), (2, 3), (5, 1), (7, 7)))
    dilation = draw.choice((1, 1, 1, 2)) if max(taps) < 7 else 1
    least = [(t - 1) * dilation + 1 for t in taps]
    pads = [draw.choice((0, t // 2, t // 2)) for t in taps]
    space = [max(draw.choice(_SIDES), low - 2 * p) for low, p in zip(least, pads, strict=True)]
    stride = draw.choice((1, 1, 2, 3))
    bias = f"x({out * groups})" if draw.random() < 0.5 else "None"
    images = draw.choice((1, 2, 3, 5))
    more = f"{bias}, {stride}, {tuple(pads)}"
    if draw.random() < 0.2:
        given = f"x({images}, {into * groups}, {space[0]}, {space[1]})"
        weight = f"x({into * groups}, {out}, {taps[0]}, {taps[1]})"
        return f"F.conv_transpose2d({given}, {weight}, {more}, 0, {groups}, {dilation})", TYPES
    if draw.random() < 0.1:
        given, weight = f"x({images}, {into}, {space[1]})", f"x({out}, {into}, {taps[1]})"
        bias = f"x({out})" if bias != "None" else bias
        more = f"{bias}, {stride}, {pads[1]}, {dilation}"
        return f"F.conv1d({given}, {weight}, {more})", TYPES
    given = f"x({images}, {into * groups}, {space[0]}, {space[1]})"
    weight = f"x({out * groups}, {into}, {taps[0]}, {taps[1]})"
    return f"F.conv2d({given}, {weight}, {more}, {dilation}, {groups})", TYPES


def _attention(draw: random.Random) -> tuple[str, tuple[str, ...]]:
    queries, keys = draw.choice(_LENGTHS), draw.choice(_LENGTHS)
    width, value = draw.choice(_WIDTHS), draw.choice(_WIDTHS)
    heads, sharing, images = draw.choice((1, 2, 3)), draw.choice((1, 1, 2)), draw.choice((1, 2))
    q = f"x({images}, {heads * sharing}, {queries}, {width})"
    k = f"x({images}, {heads}, {keys}, {width})"
    v = f"x({images}, {heads}, {keys}, {value})"
    mask = draw.choice((
        "", "", ", is_causal=True", f", b({queries}, {keys})", f", x({queries}, {keys}).detach()",
        f", x({images}, 1, 1, {keys})", f", x({images}, {heads * sharing}, {queries}, {keys})",
    ))  # fmt: skip
    more = ", enable_gqa=True" if sharing > 1 else ""
    return f"F.scaled_dot_product_attention({q}, {k}, {v}{mask}{more})", ("bfloat16", "float32")


_MAKERS = {
    "product": (_product, 260),
    "convolution": (_convolution, 220),
    "attention": (_attention, 180),
}
_FEW = 4


def rows(*, full: bool) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(family, expression, dtypes): the same ones every time."""
    for family, (make, count) in _MAKERS.items():
        draw = random.Random(family)
        seen: dict[str, tuple[str, ...]] = {}
        while len(seen) < (count if full else _FEW):
            row, types = make(draw)
            if family != "attention" and len(seen) % 5 == 3:
                row = row.replace("x(", "odd(", 1)
            seen[row] = types
        for row, types in seen.items():
            yield family, row, types
    if full:
        for row in _EMPTY:
            yield "empty", row, TYPES


def run(call: Any, forget: Any) -> Any:
    """A call with tiles for all sizes; `forget` throws away kernels chosen otherwise."""
    with tiles_for_all():
        forget()
        try:
            return call()
        finally:
            forget()
