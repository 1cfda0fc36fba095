"""Weights that are used again without having been written: packed once, on their second use.

`linear` with a large weight keeps a copy of it in the order the micro-kernels read. The copy holds
as long as nothing was written to the weight's memory: the storage counts its own writes, the memory
those of every storage over it (`.data` gives another one), and memory whose address was given away
(NumPy, a pointer) is never trusted. In training a weight changes between its uses and is packed at
each call, as without this.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.gemm.epilogue import PLAIN, Epilogue
from lucerne._src.backends.cpu.gemm.prepack import PackedOperand, packed_product, prepack
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base.unspecialized import Symbolic
from lucerne._src.ir import dispatch
from lucerne._src.ir.meta import TensorMeta

WORTH_NS = 150_000
"""Shorter products stay on the fast path, which knows nothing of copies."""
FEWEST_ROWS = 4
"""With fewer rows memory is what counts, and a weight where it lies is read in longer runs."""
MOST_BYTES = 1 << 30
"""All copies together."""

Token = tuple[int, int, int, TensorMeta]
_known: weakref.WeakKeyDictionary[Any, tuple[Token, PackedOperand | None]] = (
    weakref.WeakKeyDictionary()
)


class _Turned:
    """A weight (n, k) as the right operand (k, n)."""

    def __init__(self, weight: Any) -> None:
        meta: TensorMeta = weight._meta
        self._meta = meta.like(shape=tuple(meta.shape[::-1]), strides=meta.strides[::-1])
        self._storage, self._offset = weight._storage, weight._offset


def kept_copy(weight: Any) -> PackedOperand | None:
    """The packed copy of a weight, made when it comes a second time unchanged."""
    memory = weight._storage.buffer
    if getattr(memory, "exported", 1):
        return None
    token = (weight._storage.version, memory.writes, weight._offset, weight._meta)
    before = _known.get(memory)
    if before is None or before[0] != token:
        _known[memory] = (token, None)
        return None
    packed = before[1]
    if packed is None and _kept_bytes() < MOST_BYTES:
        packed = prepack(_Turned(weight))
        _known[memory] = (token, packed)
    return packed


def _kept_bytes() -> int:
    return sum(p.block.nbytes for _, p in _known.values() if p is not None)


class Linear:
    """`input @ weight.T + bias`, with the weight packed at the call or before it."""

    def __init__(
        self,
        kernel: NativeKernel,
        a: TensorMeta,
        c: TensorMeta,
        e: TensorMeta | None,
        epilogue: Epilogue,
    ) -> None:
        self.kernel = kernel
        self.when_recorded = kernel  # a weight in training changes between its uses
        self._shape = (a, c, e, epilogue)
        self._packed_kernel: NativeKernel | None = None
        self._refused = False

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        trained = dispatch.state.grad_enabled and getattr(inputs[1], "_needs_grad", False)
        packed = None if self._refused or trained else kept_copy(inputs[1])
        kernel = None if packed is None else self.packed_kernel(packed._meta)
        if kernel is None:
            return self.kernel(inputs, outputs)
        return kernel([inputs[0], packed, *inputs[2:]], outputs)

    @property
    def workspace(self) -> int:
        """What the kernel works in."""
        return self.kernel.workspace

    def at(self, kernel: NativeKernel, read: Callable[[Any], Any]) -> Linear:
        """The same for other sizes: `read` gives the metas there."""
        a, c, e, epilogue = self._shape
        return Linear(kernel, read(a), read(c), read(e), epilogue)

    def packed_kernel(self, weight: TensorMeta) -> NativeKernel | None:
        """The kernel that reads a packed copy in the place of the weight, given as (k, n)."""
        if self._packed_kernel is None and not self._refused:
            a, c, e, epilogue = self._shape
            entry = "product" if e is None else "linear"
            try:
                self._packed_kernel = packed_product(a, weight, c, e, epilogue, entry)
            except ValueError:  # not for rows like these
                self._refused = True
        return self._packed_kernel


def with_kept_weight(
    kernel: Any, a: TensorMeta, c: TensorMeta, e: TensorMeta | None, epilogue: Epilogue = PLAIN
) -> Any:
    """The kernel of a `linear`, or one that keeps the weight packed when that is worth it."""
    return Linear(kernel, a, c, e, epilogue) if is_worth_it(kernel, a) else kernel


def is_worth_it(kernel: Any, a: TensorMeta) -> bool:
    """Whether a product with the left operand `a` should have its right operand packed before."""
    plain_rows = a.ndim == 2 or a.contiguous
    several = a.numel >= FEWEST_ROWS * a.shape[-1]
    if type(kernel) is not NativeKernel or not (plain_rows and several):
        return False
    # (a program for all sizes asks again at each of them)
    return isinstance(kernel.work, Symbolic) or kernel.work > WORTH_NS
