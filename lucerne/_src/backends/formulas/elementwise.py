"""Element by element: bodies of pointwise ops, copies, casts, fills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.formulas.frame import FormulaNumber, FormulaTensor, Frame
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir import promote
from lucerne._src.ir.meta import NUMBER_METAS
from lucerne._src.ir.scalar.protocol import ScalarValue, s
from lucerne._src.ops.random.counted import (
    counted_key,
    counted_number,
    counted_value,
    counted_word,
    takes_one_word,
)


def collapsed(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """Fewer dimensions that visit the same elements: neighbours that follow each other in all
    operands become one."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        if sizes and all(mine[-1] == st[d] * n for mine, st in zip(steps, strides, strict=True)):
            sizes[-1] *= n
            for mine, st in zip(steps, strides, strict=True):
                mine[-1] = st[d]
        else:
            sizes.append(n)
            for mine, st in zip(steps, strides, strict=True):
                mine.append(st[d])
    return sizes, steps


def pointwise(f: Frame, *args: Any) -> None:
    """The op's body, once for each element."""
    op, out = f.node.op, f.out
    tensors = [a.spread(out.shape) for a in args if isinstance(a, FormulaTensor)]
    sizes, steps = collapsed(out.shape, [out.strides, *(t.strides for t in tensors)])
    flat = [
        FormulaTensor(f, t.buffer, t.meta, st) for t, st in zip([out, *tensors], steps, strict=True)
    ]
    with f.kernel(sizes) as at:
        given = iter(flat[1:])
        loaded = [next(given)(*at) if isinstance(a, FormulaTensor) else a for a in args]
        flat[0].put(at, body_of(f, op, args, loaded))


def body_of(f: Frame, op: op_.Op, args: Sequence[Any], loaded: Sequence[Any]) -> Any:
    """A body on elements: each operand in the dtype it is computed in."""
    data = [k == op_.TENSOR and a is not None for k, a in zip(op.kinds, args, strict=True)]
    metas = [_meta(a) for a, is_data in zip(args, data, strict=True) if is_data]
    common = promote.common_type(op.promote, metas)
    types = iter(promote.operand_types(op.promote, metas))
    operands = [
        _operand(f, a, x, next(types), promote.rounding(op, place, common, _meta(a)))
        if is_data
        else _scalar(f, a, common.compute, promote.rounding(op, place, common, a))
        for place, (a, x, is_data) in enumerate(zip(args, loaded, data, strict=True))
    ]
    count = sum(not p.keyword_only for p in op.params)
    named = {p.name: x for p, x in zip(op.params[count:], operands[count:], strict=True)}
    return op.body(*operands[:count], **named)


def _meta(a: Any) -> Any:
    return NUMBER_METAS[type(a)] if isinstance(a, (bool, int, float, complex)) else a.meta


def _operand(f: Frame, a: Any, x: Any, dtype: dt.dtype, rounded: dt.dtype | None) -> ScalarValue:
    made = f.value(x, dtype)
    is_other = not isinstance(a, FormulaTensor) or a.dtype is not rounded
    if rounded is None or dtype is not rounded.compute or not is_other:
        return made
    return ScalarValue(f.writer, f.writer.rounded(made.raw, rounded))


def _scalar(f: Frame, a: Any, compute: dt.dtype, rounded: dt.dtype | None) -> Any:
    """A runtime number: as the computing type when it fits there, else as it is."""
    if not isinstance(a, FormulaNumber):
        return a
    category = {bool: dt.BOOL, int: dt.INTEGER, float: dt.FLOAT, complex: dt.COMPLEX}[a.kind]
    fits = category <= max(compute.category, dt.INTEGER)
    return _operand(f, a, a, compute, rounded) if fits else a.now


# ---- moves ---------------------------------------------------------------------------------------


def _moved(f: Frame, source: Any) -> None:
    shape = f.out.shape
    with f.kernel(shape) as at:
        is_tensor = isinstance(source, FormulaTensor)
        f.out.put(
            at, source.spread(shape)(*at) if is_tensor else f.value(source, f.out.dtype.compute)
        )


@formula("copy")
def copy(f: Frame, input: FormulaTensor, src: Any) -> None:
    _moved(f, src)


@formula("cast")
def cast(f: Frame, input: FormulaTensor, dtype: Any) -> None:
    _moved(f, input)


@formula("clone_as")
def clone_as(f: Frame, input: FormulaTensor, memory_format: Any) -> None:
    _moved(f, input)


@formula("filled")
def filled(f: Frame, size: Any, value: Any, *_: Any) -> None:
    _moved(f, value)


@formula("uninitialized")
def uninitialized(f: Frame, *_: Any) -> None:
    """Nothing to do: the memory is there."""


@formula("counted")
def counted(f: Frame, start: Any, step: Any, length: int, *_: Any) -> None:
    numbers = [x.kind if isinstance(x, FormulaNumber) else type(x) for x in (start, step)]
    dtype = dt.int64 if all(issubclass(k, int) for k in numbers) else dt.float64
    with f.kernel(f.out.shape) as (i,):
        f.out.put((i,), f.value(start, dtype) + f.value(step, dtype) * s.cast(i, dtype))


_KEY, _NUMBER, _WORD, _VALUE = (
    g.op.body  # type: ignore[attr-defined]
    for g in (counted_key, counted_number, counted_word, counted_value)
)


@formula("counted_draw")
def counted_draw(
    f: Frame, key: FormulaTensor, size: Any, strides: Any, distribution: str, first: Any,
    second: Any,
    stream: int, dtype: Any, device: Any,
) -> None:  # fmt: skip
    steps = strides if strides is not None else sh.contiguous_strides(size)
    kinds = [x.kind if isinstance(x, FormulaNumber) else type(x) for x in (first,)]
    kind = dt.int64 if kinds[0] is int else dtype.compute
    with f.kernel(f.out.shape) as at:
        index = f.value(0, dt.int64)
        for i, step in zip(at, steps, strict=True):
            index = index + i * f.size(step)
        numbers = [f.value(x, kind) for x in (first, second)]
        made = [key(0), key(1), f.value(stream, dt.int64)]
        words = [_KEY(*made, k) for k in (0, 1)]
        if takes_one_word(distribution, dtype):
            f.out.put(at, _NUMBER(_WORD(index, *words), *numbers, distribution, dtype))
        else:
            f.out.put(at, _VALUE(index, *words, *numbers, distribution, dtype))
