"""How a product is cut: which micro-kernels, which operands are packed, block sizes, tasks.

Blocks of k depend on the shape alone, so results do not depend on the number of threads; how rows
and columns are cut never changes a sum.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.backends.cpu.gemm.args import MAX_BATCH_DIMS, in_order
from lucerne._src.backends.cpu.gemm.driver import (
    PARALLEL_BATCH,
    PARALLEL_PRODUCT,
    SERIAL,
    driver,
    driver_job,
)
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import TILE_ROWS, GemmKind
from lucerne._src.backends.cpu.gemm.micro import GemmTile, micro_job, micro_kernel
from lucerne._src.backends.cpu.gemm.pack import how_to_pack
from lucerne._src.backends.cpu.runtime.code import compile_all, is_listed
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS, threads
from lucerne._src.base.changed import changed

K_BLOCK = 384
"""Steps of k in a block: a packed panel of B then fits the first cache."""
_A_BLOCK_ROWS = 112
_COLUMN_BLOCK_BYTES = 2048 * 4
_TASKS_PER_THREAD = 4
_SERIAL_FLOPS = 2e6
_LARGE_FLOPS = 2e8
_PAGE = 4096


@dataclass(frozen=True)
class GemmBatch:
    """One leading dimension: its size and the steps of A, B, C and the epilogue's tensor.

    `more`: byte steps of the tensors of a fused graph.
    """

    size: int
    a: int
    b: int
    c: int
    e: int = 0
    more: tuple[int, ...] = ()


@dataclass(frozen=True)
class GemmProduct:
    """C[m, n] = A[m, k] B[k, n]: sizes and element strides."""

    m: int
    n: int
    k: int
    a_row: int
    a_k: int
    b_k: int
    b_col: int
    c_row: int
    e_row: int = 0
    batch: tuple[GemmBatch, ...] = field(default=())
    more_rows: tuple[int, ...] = ()
    """Byte steps from row to row of the tensors of a fused graph."""

    @property
    def batches(self) -> int:
        count = 1
        for d in self.batch:
            count *= d.size
        return count

    @property
    def flops(self) -> float:
        """Of one matrix of the batch."""
        return 2.0 * self.m * self.n * self.k


_FIELDS = ("m", "n", "k", "a_row", "a_k", "b_k", "b_col", "c_row", "e_row")
_SIDES = ("size", "a", "b", "c", "e")
_STEPS = len(_SIDES)


def numbers_of(p: GemmProduct) -> tuple[Any, ...]:
    """All numbers of a product, in one order."""
    found = [getattr(p, name) for name in _FIELDS]
    for d in p.batch:
        found += [d.size, d.a, d.b, d.c, d.e, *d.more]
    return (*found, *p.more_rows)


def product_of(like: GemmProduct, numbers: Sequence[int]) -> GemmProduct:
    """A product with these numbers and as many dimensions as another one."""
    at, batch = len(_FIELDS), []
    for d in like.batch:
        end = at + _STEPS + len(d.more)
        more = tuple(numbers[at + _STEPS : end])
        batch.append(changed(d, **dict(zip(_SIDES, numbers[at:], strict=False)), more=more))
        at = end
    fields = dict(zip(_FIELDS, numbers, strict=False))
    return changed(like, **fields, batch=tuple(batch), more_rows=tuple(numbers[at:]))


@dataclass(frozen=True)
class Planned:
    """Words for the driver, and the bytes of workspace a call needs."""

    words: tuple[int, ...]
    workspace: int
    packed_bytes: int
    """Bytes of a whole packed B."""


def plan(
    kind: GemmKind, p: GemmProduct, epilogue: Epilogue = PLAIN, *, b_ready: bool = False
) -> Planned:
    """Cut a product. `b_ready`: B comes packed by the entry "prepack" of the same plan."""
    assert len(p.batch) <= MAX_BATCH_DIMS, p.batch
    cut = _Cut(kind, p, b_ready, epilogue.sums_apart)
    words = cut.words()
    words |= dict(zip(("KERNEL", "KERNEL_TALLER"), _kernels(kind, cut, epilogue), strict=True))
    words |= batch_words(p)
    listed = in_order(words)
    return Planned(listed, cut.workspace, cut.packed_bytes)


_KERNELS: weakref.WeakKeyDictionary[Epilogue, dict[Any, tuple[int, int]]] = (
    weakref.WeakKeyDictionary()
)
"""Micro-kernels by what a plan chooses. (Keys of codes are long: a program for all sizes makes
its plans again at each of them.)"""


def _kernels(kind: GemmKind, cut: _Cut, epilogue: Epilogue) -> tuple[int, int]:
    """The addresses of the micro-kernels of a plan: of its height, and one row taller."""
    low, tall = cut.height, min(cut.height + 1, TILE_ROWS)
    heights = low, tall if cut.taller else low
    key = kind.key, heights, cut.a_in_place, cut.b_in_place
    known = _KERNELS.setdefault(epilogue, {})
    if key not in known or is_listed():
        forms = [
            GemmTile(kind, h, a_packed=not cut.a_in_place, b_packed=not cut.b_in_place)
            for h in heights
        ]
        # On all cores at once: a first product needs the driver and one or two micro-kernels.
        jobs = [micro_job(form, epilogue) for form in dict.fromkeys(forms)]
        compile_all([driver_job(kind), *jobs])
        known[key] = micro_kernel(forms[0], epilogue), micro_kernel(forms[1], epilogue)
    return known[key]


def batch_words(p: GemmProduct) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, d in enumerate(p.batch):
        found |= {f"SIZE{i}": d.size, f"STEP_A{i}": d.a, f"STEP_B{i}": d.b}
        found |= {f"STEP_C{i}": d.c, f"STEP_E{i}": d.e}
    return found


class _Cut:
    """The numbers of one plan."""

    def __init__(self, kind: GemmKind, p: GemmProduct, b_ready: bool, apart: bool) -> None:
        self.kind, self.p, self.b_ready = kind, p, b_ready
        self.apart = kind.narrows or apart
        self.parallel = _parallel(p)
        self.panels = max(1, -(-p.m // TILE_ROWS))
        self.height, self.taller = divmod(p.m, self.panels)
        self.column_panels = -(-p.n // kind.columns)
        self.k_block = self._k_block()
        self.a_in_place = self._a_in_place()
        self.b_in_place = not b_ready and self.a_in_place and self._b_in_place()
        self._blocks()
        self._spaces()

    def _k_block(self) -> int:
        """Blocks of about equal size; whole vectors unless there is only one."""
        k, lanes = max(1, self.p.k), self.kind.lanes
        count = -(-k // K_BLOCK)
        even = -(-k // count)
        block = -(-even // lanes) * lanes
        return k if count == 1 else block

    def _b_in_place(self) -> bool:
        p, kind = self.p, self.kind
        if p.b_col != 1 and p.n > 1:
            return False
        awkward = p.b_k * kind.source.size % _PAGE == 0 and p.k > 64
        return self.panels <= 5 and not awkward and kind.source is kind.sums

    def _a_in_place(self) -> bool:
        p = self.p
        awkward = p.a_row * self.kind.source.size % _PAGE == 0 and self.height > 8 and p.a_k == 1
        few = p.n <= (256 if p.m < 256 else 96)
        return few and not awkward

    def _blocks(self) -> None:
        """Panels of a task down and across, and columns packed at a time."""
        widest = _COLUMN_BLOCK_BYTES // self.kind.sums.size // self.kind.columns
        count = -(-self.column_panels // widest)
        self.column_block = -(-self.column_panels // count)
        self.pack_group = max(1, min(8, self.column_block // (4 * threads())))
        rows = max(1, min(self.panels, _A_BLOCK_ROWS // self.height))
        wanted = 1
        if self.parallel == PARALLEL_PRODUCT:
            wanted = _TASKS_PER_THREAD * threads()
            while rows > 2 and -(-self.panels // rows) < wanted <= self.panels:
                rows -= 1
        self.row_blocks = -(-self.panels // rows)
        self.block_rows = -(-self.panels // self.row_blocks)
        across = self.column_block
        while self.row_blocks * -(-self.column_block // across) < wanted and across > 1:
            across = -(-across // 2)
        self.block_columns = across

    def _spaces(self) -> None:
        kind, p = self.kind, self.p
        owners = MAX_THREADS if self.parallel == PARALLEL_BATCH else 1
        workers = 1 if self.parallel == SERIAL else MAX_THREADS
        rounded = -(-self.k_block // kind.lanes) * kind.lanes
        size = kind.sums.size
        row_bytes = 0 if self.a_in_place else rounded * size
        self.a_space = _rounded((self.block_rows * (self.height + 1)) * row_bytes)
        unpacked = self.b_in_place or self.b_ready
        self.b_space = 0 if unpacked else self.column_block * kind.columns * rounded * size
        apart = self.apart and p.k > self.k_block
        self.sums_space = _rounded(p.m * p.n * size) if apart else 0
        self.sums_offset = 0 if apart else -1
        self.b_offset = self.sums_space * owners
        self.a_offset = self.b_offset + self.b_space * owners
        self.workspace = self.a_offset + self.a_space * workers
        whole = -(-max(1, p.k) // kind.lanes) * kind.lanes
        self.packed_bytes = self.column_panels * kind.columns * whole * size

    def words(self) -> dict[str, int]:
        p = self.p
        return {
            "M": p.m, "N": p.n, "K": p.k,
            "A_ROW": p.a_row, "A_K": p.a_k, "B_K": p.b_k, "B_COL": p.b_col, "C_ROW": p.c_row,
            "E_ROW": p.e_row,
            "PANELS": self.panels, "HEIGHT": self.height, "TALLER": self.taller,
            "COLUMN_PANELS": self.column_panels,
            "BLOCK_ROWS": self.block_rows, "ROW_BLOCKS": self.row_blocks,
            "BLOCK_COLUMNS": self.block_columns,
            "K_BLOCK": self.k_block, "COLUMN_BLOCK": self.column_block,
            "PACK_GROUP": self.pack_group,
            "A_IN_PLACE": int(self.a_in_place), "B_IN_PLACE": int(self.b_in_place),
            "B_READY": int(self.b_ready),
            "A_HOW": how_to_pack(p.a_row, p.a_k, p.m, p.k),
            "B_HOW": how_to_pack(p.b_col, p.b_k, p.n, p.k),
            "A_OFFSET": self.a_offset, "A_SPACE": self.a_space,
            "B_OFFSET": self.b_offset, "B_SPACE": self.b_space,
            "SUMS_OFFSET": self.sums_offset, "SUMS_SPACE": self.sums_space,
            "PARALLEL": self.parallel, "BATCHES": p.batches, "BATCH_DIMS": len(p.batch),
            "BATCH_GROUP": max(1, int(_SERIAL_FLOPS // max(1.0, p.flops))),
        }  # fmt: skip


def _parallel(p: GemmProduct) -> int:
    if p.flops * p.batches < _SERIAL_FLOPS or threads() == 1:
        return SERIAL
    if p.batches == 1 or p.flops >= _LARGE_FLOPS:
        return PARALLEL_PRODUCT
    return PARALLEL_PRODUCT if p.batches < 4 and p.flops > 4e6 else PARALLEL_BATCH


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


__all__ = ["GemmBatch", "GemmProduct", "Planned", "driver", "plan"]
