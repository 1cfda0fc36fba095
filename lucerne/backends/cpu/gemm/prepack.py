"""Right operands packed once and used many times: weights that do not change.

    packed = prepack(weight.T)          # a copy in the order of the micro-kernels
    run = packed.product(a, c)          # metas of the left operand and of the result
    run([x, packed], [y])               # y = x @ weight.T, without packing

The caller answers for the weight: when it changes, the copy does not.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lucerne.backends.cpu.emit.types import BF16
from lucerne.backends.cpu.gemm.amx import amx_driver, amx_plan, has_amx
from lucerne.backends.cpu.gemm.choose import duration
from lucerne.backends.cpu.gemm.driver import driver
from lucerne.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne.backends.cpu.gemm.kinds import KINDS, Kind
from lucerne.backends.cpu.gemm.plan import Planned, Product, plan
from lucerne.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne.backends.cpu.runtime.code import Code
from lucerne.backends.cpu.runtime.kernel import Kernel, address_of
from lucerne.backends.cpu.runtime.memory import Block
from lucerne.ir.meta import TensorMeta

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_SOME_ROWS = 64
"""A packed operand does not depend on the rows it will meet."""


class Packed:
    """A packed matrix; kernels read it in the place of a tensor."""

    def __init__(self, meta: TensorMeta, nbytes: int) -> None:
        self._meta, self._offset = meta, 0
        self.block = Block(nbytes)

    @property
    def _storage(self) -> Packed:
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
    ) -> Kernel:
        """The kernel a @ packed -> c; with an epilogue's tensor e the entry says its place."""
        strides = None if e is None else expanded_strides(e, c.shape)
        p = describe(a, self._meta, c, strides)
        if p is None or p.batch:
            raise ValueError(f"a packed matrix multiplies dense rows, not {a!r}")
        kind = KINDS[self._meta.dtype.name]
        if kind.source is BF16 and 1 not in (p.a_row, p.a_k):
            raise ValueError(f"tiles read rows or columns that are dense, not {a!r}")
        code, planned = _planned(kind, p, epilogue)
        tensors = 2 if e is None else 3
        return Kernel(
            code[entry], 1, tensors, extra=planned.words, workspace=planned.workspace,
            work=duration(kind, p),
        )  # fmt: skip


def prepack(t: Any) -> Packed:
    """A packed copy of a matrix (k, n), transposed views included."""
    meta: TensorMeta = t._meta
    k, n = meta.shape
    kind = KINDS[meta.dtype.name]
    p = Product(_SOME_ROWS, n, k, k, 1, meta.strides[0], meta.strides[1], n)
    code, planned = _planned(kind, p, PLAIN)
    packed = Packed(meta, planned.packed_bytes)
    words = (ctypes.c_int64 * (3 + len(planned.words)))()
    words[0], words[1] = packed.data_ptr(), address_of(t)
    words[3:] = list(planned.words)
    _CALL(code["prepack"])(ctypes.addressof(words))
    return packed


def _planned(kind: Kind, p: Product, epilogue: Epilogue) -> tuple[Code, Planned]:
    """Chosen by the packed operand alone: both sides must agree."""
    if kind.source is BF16 and 1 in (p.b_k, p.b_col) and has_amx():
        return amx_driver(kind), amx_plan(kind, p, epilogue, b_ready=True)
    planned = plan(kind, p, epilogue, b_ready=True)
    return driver(kind), planned
