"""Which of the ways to multiply a product takes: tiles, packed blocks, in place, dots, rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lucerne._src.backends.cpu.emit.types import BF16
from lucerne._src.backends.cpu.gemm.amx.pack import IN_PARTS, IN_PARTS_TURNED, NARROW, Wide
from lucerne._src.backends.cpu.gemm.amx.products import (
    amx_driver,
    amx_plan,
    amx_takes,
    parts_take,
    turned_takes,
)
from lucerne._src.backends.cpu.gemm.args import in_order
from lucerne._src.backends.cpu.gemm.driver import ENTRIES, FUSED, RUN, driver
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import KINDS, TILE_ROWS, TILE_VECTORS, GemmKind
from lucerne._src.backends.cpu.gemm.micro import GemmTile, micro_kernel
from lucerne._src.backends.cpu.gemm.plan import (
    GemmBatch,
    GemmProduct,
    Planned,
    batch_words,
    numbers_of,
    plan,
    product_of,
)
from lucerne._src.backends.cpu.gemm.small import direct, dots, dots_form
from lucerne._src.backends.cpu.gemm.split import split_plan, suits_split
from lucerne._src.backends.cpu.gemm.vector import PIECE, vector_matrix
from lucerne._src.backends.cpu.runtime.code import Code
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.symbolic.expressions import CHOICES
from lucerne._src.ir.symbolic.numbers import choice, is_symbolic, larger, plain

_FLOAT32 = KINDS["float32"].key
_FEW_ROWS = 4
"""Up to here B is read about once: memory decides, packing would double the traffic."""
_FEW_ROWS_OF_DOTS, _MOST_ROWS_OF_DOTS = 12, 64
_LONG_DOTS = 192
"""From here on adding the lanes of a sum up costs little."""
_DIRECT_FLOPS = 6e5
_SHORT_K = 16
_PAGE = 4096
_NEAR_BYTES = 32 << 10
_FLOPS_PER_NS, _BYTES_PER_NS = 80.0, 15.0
_CALL_NS = 15.0
_TASK_NS = 8_000.0
_MOST_TASKS = 64
_MOST_WIDE = 16


def product_kernel(
    kind: GemmKind,
    p: GemmProduct,
    epilogue: Epilogue = PLAIN,
    entry: str = "product",
    numbers: str = "",
) -> NativeKernel:
    """The kernel of a product; `entry` says how the block's words are laid out."""
    if p.n == 1 and p.c_row == 1 and entry == "product" and p.m > 1:
        p, entry = swapped(p), "product_swapped"
    tensors = 2 if entry in ("product", "product_swapped") else 3
    code, planned = choose(kind, p, epilogue)
    return NativeKernel(
        code[entry], 1, tensors, numbers, planned.words, planned.workspace, work=duration(kind, p)
    )


def choose(
    kind: GemmKind, p: GemmProduct, epilogue: Epilogue = PLAIN, wide: Wide = NARROW
) -> tuple[Code, Planned]:
    """The code whose entries run a product, and its words. `wide`: only where tiles take it."""
    return at_sizes(("chosen", wide), kind, p, epilogue, lambda q: _choose(kind, q, epilogue, wide))


_ENTRIES = frozenset((*ENTRIES, *FUSED))
_KNOWN: dict[Any, tuple[int, list[str]]] = {}
"""By what a product is but for its numbers: its choice, and the entries of its code."""


def at_sizes(
    way: tuple[Any, ...],
    kind: GemmKind,
    p: GemmProduct,
    epilogue: Epilogue,
    make: Callable[[GemmProduct], tuple[Code, Planned]],
) -> tuple[Any, Planned]:
    """`make(p)`; of a product of any sizes: what is made is known when they are. What runs it and
    its words are numbers that follow from them. `way`: what `make` depends on besides."""
    numbers = numbers_of(p)
    if not is_symbolic(numbers):
        return make(p)
    batch = tuple(len(d.more) for d in p.batch)
    key = way, kind.key, epilogue.key, epilogue.sums_apart, batch, len(p.more_rows)
    if key not in _KNOWN:
        code, planned = make(product_of(p, [plain(n) for n in numbers]))
        wanted = (*_ENTRIES, RUN) if epilogue.ends_panels else _ENTRIES
        names, count = [n for n in code.addresses if n in wanted], len(planned.words)

        entries: dict[Code, tuple[int, ...]] = {}

        def run(*found: int) -> tuple[int, ...]:
            code, planned = make(product_of(p, found))
            if len(planned.words) != count:
                raise ArithmeticError("a product of these sizes has other words")
            if code not in entries:
                entries[code] = tuple([code[name] for name in names])
            return (planned.workspace, planned.packed_bytes, *entries[code], *planned.words)

        CHOICES.append(run)
        _KNOWN[key] = len(CHOICES) - 1, names
    number, names = _KNOWN[key]
    workspace, packed, *rest = choice(number, numbers)
    return dict(zip(names, rest, strict=False)), Planned(
        tuple(rest[len(names) :]), workspace, packed
    )


def _choose(kind: GemmKind, p: GemmProduct, epilogue: Epilogue, wide: Wide) -> tuple[Code, Planned]:
    if epilogue is PLAIN and suits_split(p):
        return split_plan(kind, p, choose)
    if kind.key == _FLOAT32 and turned_takes(p):
        planned = amx_plan(kind, p, epilogue, wide=IN_PARTS_TURNED)
        return amx_driver(kind, IN_PARTS_TURNED), planned
    if kind.key == _FLOAT32 and parts_take(p):
        return amx_driver(kind, IN_PARTS), amx_plan(kind, p, epilogue, wide=IN_PARTS)
    if kind.source is BF16 and amx_takes(p):
        return amx_driver(kind, wide), amx_plan(kind, p, epilogue, wide=wide)
    if _suits_dots(p):
        form = dots_form(kind, p.m, p.n, epilogue)
        planned = _planned(kind, p, -(-p.m // form.rows), form.width, {})
        return dots(kind, form, epilogue), planned
    if p.b_col == 1 or p.n == 1:
        if p.m == 1 and epilogue is PLAIN and not kind.narrows and p.n > 2 * kind.lanes and p.k:
            return vector_matrix(kind), _vector_plan(kind, p)
        small = p.m <= _FEW_ROWS or p.flops <= _DIRECT_FLOPS or p.k <= _SHORT_K
        if small or (p.n <= kind.lanes and not _far_rows(kind, p)):
            return direct(kind), _direct_plan(kind, p, epilogue)
    planned = plan(kind, p, epilogue)
    return driver(kind), planned


def swapped(p: GemmProduct) -> GemmProduct:
    """The product of the transposed matrices in the other order: m and n change places."""
    return replace(
        p, m=p.n, n=p.m, a_row=p.b_col, a_k=p.b_k, b_k=p.a_k, b_col=p.a_row, c_row=1,
        batch=tuple(GemmBatch(d.size, d.b, d.a, d.c, d.e) for d in p.batch),
    )  # fmt: skip


def duration(kind: GemmKind, p: GemmProduct) -> float:
    """About how many nanoseconds one thread needs."""
    size = kind.source.size
    touched = (p.m * p.k + p.k * p.n) * size + p.m * p.n * kind.result.size
    longest: float = larger(p.flops / _FLOPS_PER_NS, touched / _BYTES_PER_NS)
    return p.batches * (_CALL_NS + longest)


def _suits_dots(p: GemmProduct) -> bool:
    """Both operands along k, and too few rows or columns to be worth packing B."""
    turned = p.b_col != 1 or p.n == 1
    if not (p.a_k == 1 and p.b_k == 1 and turned and p.k > 1):
        return False
    few = _MOST_ROWS_OF_DOTS if p.k >= _LONG_DOTS else _FEW_ROWS_OF_DOTS
    return p.m <= few or (p.n <= 16 and p.k >= 128)


def _far_rows(kind: GemmKind, p: GemmProduct) -> bool:
    """Rows of A that fall onto each other in the cache when they are read side by side."""
    return p.a_row * kind.source.size % _PAGE == 0 and p.a_row > 0 and p.m > 8


# ---- words of the small forms -----------------------------------------------------------------


def _direct_plan(kind: GemmKind, p: GemmProduct, epilogue: Epilogue) -> Planned:
    vectors = _direct_vectors(kind, p)
    most = max(1, min(TILE_ROWS, TILE_ROWS * TILE_VECTORS // vectors))
    panels = max(1, -(-p.m // most))
    height, taller = divmod(p.m, panels)
    kernels = [
        micro_kernel(GemmTile(kind, h, vectors, a_packed=False, b_packed=False), epilogue)
        for h in (height, height + 1 if taller else height)
    ]
    near = p.k * p.n * kind.source.size <= _NEAR_BYTES
    words = {
        "HEIGHT": height, "TALLER": taller, "ROWS_OUTSIDE": int(near),
        "KERNEL": kernels[0], "KERNEL_TALLER": kernels[1],
    }  # fmt: skip
    return _planned(kind, p, panels, vectors * kind.lanes, words)


def _direct_vectors(kind: GemmKind, p: GemmProduct) -> int:
    """Vectors across a tile: all there are, or many when rows are few or the loop over k short."""
    needed = -(-p.n // kind.lanes)
    if needed <= TILE_VECTORS or (p.m > _FEW_ROWS and p.k > _SHORT_K):
        return min(needed, TILE_VECTORS)
    return min(_MOST_WIDE, TILE_ROWS * TILE_VECTORS // min(p.m, _FEW_ROWS) // 2 * 2)


def _vector_plan(kind: GemmKind, p: GemmProduct) -> Planned:
    return _planned(kind, p, 1, PIECE, {})


def _planned(
    kind: GemmKind, p: GemmProduct, panels: int, width: int, more: dict[str, int]
) -> Planned:
    """Cut into tasks: groups of matrices when they are small, else parts of each matrix."""
    column_panels = -(-p.n // width)
    whole = duration(kind, p)
    one = whole / p.batches
    parallel = whole > 2 * _TASK_NS
    parts = min(_MOST_TASKS, max(1, int(one / _TASK_NS))) if parallel else 1
    across = min(parts, column_panels)
    down = min(panels, -(-parts // across))
    if panels > column_panels:
        down = min(parts, panels)
        across = min(column_panels, -(-parts // down))
    block_columns, block_rows = -(-column_panels // across), -(-panels // down)
    words = {
        "M": p.m, "N": p.n, "K": p.k, "A_ROW": p.a_row, "A_K": p.a_k, "B_K": p.b_k,
        "B_COL": p.b_col, "C_ROW": p.c_row, "E_ROW": p.e_row,
        "PANELS": panels, "COLUMN_PANELS": column_panels, "TILE_COLUMNS": width,
        "BLOCK_COLUMNS": block_columns, "COLUMN_BLOCKS": -(-column_panels // block_columns),
        "BLOCK_ROWS": block_rows, "ROW_BLOCKS": -(-panels // block_rows),
        "PARALLEL": int(parallel), "BATCHES": p.batches, "BATCH_DIMS": len(p.batch),
        "BATCH_GROUP": max(1, int(_TASK_NS / one)),
    } | batch_words(p) | more  # fmt: skip
    return Planned(in_order(words), 0, 0)
