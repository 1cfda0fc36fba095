"""Optimizer steps: one kernel over lists of tensors."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.elementwise.optimizers import OptimizerKind, write_count, write_step
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import TensorMeta

_CHUNK_ELEMENTS = 16384
_MOST_CHUNKS = 512


@rule("adam_update")
def adam_update(node: Node) -> Any:
    lists = [_metas(a) for a in node.args[:5]]
    return _kernel(node, [x for x in lists if x], _metas(node.args[5]), node.args[11:], 5)


@rule("sgd_update")
def sgd_update(node: Node) -> Any:
    lists = [_metas(a) for a in node.args[:3]]
    return _kernel(node, [x for x in lists if x], [], node.args[7:], 4)


@rule("adagrad_update")
def adagrad_update(node: Node) -> Any:
    lists = [_metas(a) for a in node.args[:3]]
    return _kernel(node, lists, _metas(node.args[3]), node.args[8:], 4)


@rule("counted_up")
def counted_up(node: Node) -> Any:
    """One kernel for counters of one kind, however many they are."""
    metas = _metas(node.args[0])
    kinds = {m.dtype for m in metas}
    if len(kinds) != 1 or kinds - {dt.float32, dt.float64} or any(m.numel != 1 for m in metas):
        return None
    name, count = metas[0].dtype.name, len(metas)
    code = compiled(("count", name, count), lambda m: write_count(m, name, count))
    return NativeKernel(code["entry"], outputs=count, tensors=count, work=2.0 * count)


def _metas(values: tuple[Value, ...]) -> list[TensorMeta]:
    return [v.meta for v in values]


def _kernel(
    node: Node, lists: list[list[TensorMeta]], steps: list[TensorMeta], flags: Any, numbers: int
) -> NativeKernel | None:
    """All tensors of a list have one dtype, and those of one parameter lie alike in memory."""
    kinds = [{m.dtype for m in metas} for metas in lists]
    if any(len(k) != 1 for k in kinds) or len({next(iter(k)).compute for k in kinds}) != 1:
        return None
    dtypes = [next(iter(k)) for k in kinds]
    if dtypes[0].compute not in (dt.float32, dt.float64):
        return None
    if {m.dtype for m in steps} - {dt.float32} or any(m.numel != 1 for m in steps):
        return None
    count = len(lists[0])
    for k in range(count):
        metas = [x[k] for x in lists]
        if len({(tuple(m.shape), m.strides) for m in metas}) != 1 or not metas[0].is_dense:
            return None
    names = tuple(d.name for d in dtypes)
    kind = OptimizerKind(
        node.op.name, tuple(flags), count, (names[0], *names[2:]), names,
        "float32" if steps else "", numbers,
    )  # fmt: skip
    code = compiled(("step", kind), lambda m: write_step(m, kind))
    table = _chunks([m.numel for m in lists[0]])
    total = sum(m.numel for m in lists[0])
    return NativeKernel(
        code["entry"],
        outputs=len(node.outputs),
        tensors=count * len(lists) + len(steps),
        numbers="f" * numbers,
        extra=[len(table) // 3, *table],
        work=0.5 * total,
    )


def _chunks(sizes: list[int]) -> list[int]:
    """Records (tensor, start, stop) that cover all elements."""
    size = max(_CHUNK_ELEMENTS, -(-sum(sizes) // _MOST_CHUNKS // 64) * 64)
    found: list[int] = []
    for k, n in enumerate(sizes):
        for start in range(0, n, size):
            found += [k, start, min(start + size, n)]
    return found or [0, 0, 0]
