"""Right operands packed once and used many times: weights that do not change.

    packed = prepack(weight.T)          # a copy in the order of the micro-kernels
    run = packed.product(a, c)          # metas of the left operand and of the result
    run([x, packed], [y])               # y = x @ weight.T, without packing

The caller answers for the weight: when it changes, the copy does not.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from lucerne._src.backends.cpu.emit.types import BF16
from lucerne._src.backends.cpu.gemm.amx.pack import IN_PARTS
from lucerne._src.backends.cpu.gemm.amx.products import (
    amx_driver,
    amx_plan,
    has_amx,
    parts_take,
    turned_takes,
)
from lucerne._src.backends.cpu.gemm.choose import at_sizes, duration
from lucerne._src.backends.cpu.gemm.driver import driver
from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import KINDS, GemmKind
from lucerne._src.backends.cpu.gemm.plan import GemmProduct, Planned, plan
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.runtime.code import Code
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, address_of
from lucerne._src.backends.cpu.runtime.memory import HostBlock
from lucerne._src.base.changed import changed
from lucerne._src.ir.meta import TensorMeta

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_SOME_ROWS = 64
"""A packed operand does not depend on the rows it will meet."""
_MANY_ROWS = 1 << 20
_FLOAT32 = KINDS["float32"].key


class PackedOperand:
    """A packed matrix; kernels read it in the place of a tensor."""

    def __init__(self, meta: TensorMeta, nbytes: int) -> None:
        self._meta, self._offset = meta, 0
        self.block = HostBlock(nbytes)

    @property
    def _storage(self) -> PackedOperand:
        return self

    def data_ptr(self) -> int:
        return self.block.address

    def product(
        self,
        a: TensorMeta,
        c: TensorMeta,
        e: TensorMeta | None = None,
        epilogue: Epilogue = PLAIN,
        entry: str = "product",
    ) -> NativeKernel:
        """The kernel a @ packed -> c; with an epilogue's tensor e the entry says its place."""
        return packed_product(a, self._meta, c, e, epilogue, entry)


def packed_product(
    a: TensorMeta,
    b: TensorMeta,
    c: TensorMeta,
    e: TensorMeta | None = None,
    epilogue: Epilogue = PLAIN,
    entry: str = "product",
) -> NativeKernel:
    """The kernel a @ b -> c that reads a packed copy in the place of b."""
    strides = None if e is None else expanded_strides(e, c.shape)
    p = describe(a, b, c, strides)
    kind = KINDS[b.dtype.name]
    if p is None or not _can_be_packed(kind, p):
        raise ValueError(f"a packed matrix multiplies many dense rows, not {a!r}")
    code, planned = planned_for_packed(kind, p, epilogue)
    tensors = 2 if e is None else 3
    return NativeKernel(
        code[entry], 1, tensors, extra=planned.words, workspace=planned.workspace,
        work=duration(kind, p),
    )  # fmt: skip


def prepack(t: Any) -> PackedOperand:
    """A packed copy of a matrix (k, n), transposed views included."""
    packed = packed_operand(t._meta)
    prepack_into(packed, address_of(t))
    return packed


def packed_operand(meta: TensorMeta) -> PackedOperand:
    """Room for a packed copy of such a matrix."""
    return PackedOperand(meta, packing(meta).nbytes)


def prepack_into(packed: PackedOperand, address: int) -> None:
    """Pack the matrix that lies at `address`."""
    known = packing(packed._meta)
    words = (ctypes.c_int64 * (3 + len(known.words)))()
    words[0], words[1] = packed.data_ptr(), address
    words[3:] = list(known.words)
    _CALL(known.entry)(ctypes.addressof(words))


class WeightPacking(NamedTuple):
    """What packs a matrix: the block of `entry` is the copy, the matrix, a free word, `words`."""

    entry: int
    words: tuple[int, ...]
    nbytes: int
    """Of the copy."""


def packing(meta: TensorMeta) -> WeightPacking:
    """How such a matrix is packed."""
    k, n = meta.shape
    p = GemmProduct(_SOME_ROWS, n, k, k, 1, meta.strides[0], meta.strides[1], n)
    code, planned = planned_for_packed(KINDS[meta.dtype.name], p, PLAIN)
    return WeightPacking(code["prepack"], tuple(planned.words), planned.packed_bytes)


def planned_for_packed(kind: GemmKind, p: GemmProduct, epilogue: Epilogue) -> tuple[Code, Planned]:
    """Chosen by the packed operand alone: both sides must agree."""
    return at_sizes(("packed",), kind, p, epilogue, lambda q: _planned(kind, q, epilogue))


def _planned(kind: GemmKind, p: GemmProduct, epilogue: Epilogue) -> tuple[Code, Planned]:
    if kind.source is BF16 and 1 in (p.b_k, p.b_col) and has_amx():
        return amx_driver(kind), amx_plan(kind, p, epilogue, b_ready=True)
    if _lies_in_parts(kind, p):
        planned = amx_plan(kind, p, epilogue, b_ready=True, wide=IN_PARTS)
        return amx_driver(kind, IN_PARTS), planned
    return driver(kind), plan(kind, p, epilogue, b_ready=True)


def suits_packed(kind: GemmKind, p: GemmProduct) -> bool:
    """Whether a packed right operand suits the rows, and sums are as without packing."""
    return _can_be_packed(kind, p) and (
        kind.key != _FLOAT32 or _lies_in_parts(kind, p) == (parts_take(p) or turned_takes(p))
    )


def _can_be_packed(kind: GemmKind, p: GemmProduct) -> bool:
    return not p.batch and (kind.source is not BF16 or 1 in (p.a_row, p.a_k))


def _lies_in_parts(kind: GemmKind, p: GemmProduct) -> bool:
    """Whether a float32 operand is packed as the tiles read it; see `parts_take`."""
    dense = 1 in (p.b_k, p.b_col)
    return kind.key == _FLOAT32 and parts_take(changed(p, m=_MANY_ROWS, a_k=1)) and dense
