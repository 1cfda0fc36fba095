"""Control flow, sequences, optionals."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.step import Step, tensor
from lucerne.export.onnx.reading.table import operator


@operator("If", numbers=(0,))
def if_(n: Step, condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    chosen = then_branch if n.number(condition) else else_branch
    return n.owner.run_inside(chosen, [], n.scope)


@operator("Loop", numbers=(0, 1))
def loop(n: Step, most: Any, condition: Any, *state: Any, body: Any) -> Any:
    limit = None if most is None else n.number(most)
    goes_on = True if condition is None else bool(n.number(condition))
    now, count, k = list(state), len(state), 0
    rows: list[list[Any]] = []
    while goes_on and (limit is None or k < limit):
        given = [np.array(k, np.int64), np.array(goes_on), *now]
        flag, *found = n.owner.run_inside(body, given, n.scope)
        goes_on = bool(n.number(flag))
        now = found[:count]
        rows.append(found[count:])
        k += 1
    made = [lu.stack([tensor(r[j]) for r in rows]) for j in range(len(rows[0]))] if rows else []
    return [*now, *made]


@operator("Scan")
def scan(n: Step, *given: Any, body: Any, num_scan_inputs: int, scan_input_axes: Any = None,
         scan_input_directions: Any = None, scan_output_axes: Any = None,
         scan_output_directions: Any = None) -> Any:  # fmt: skip
    if n.opset < 9:
        raise OnnxImportError(f"{n.where()}: in the form of before opset 9")
    count = len(given) - num_scan_inputs
    now, xs = list(given[:count]), list(given[count:])
    axes = scan_input_axes or [0] * len(xs)
    back = scan_input_directions or [0] * len(xs)
    rows: list[list[Any]] = []
    for t in range(xs[0].shape[axes[0]]):
        parts = [x.select(d, x.shape[d] - 1 - t if r else t)
                 for x, d, r in zip(xs, axes, back, strict=True)]  # fmt: skip
        found = n.owner.run_inside(body, [*now, *parts], n.scope)
        now = found[:count]
        rows.append(found[count:])
    many = len(rows[0])
    axes, back = scan_output_axes or [0] * many, scan_output_directions or [0] * many
    made = [lu.stack([tensor(r[j]) for r in (rows[::-1] if back[j] else rows)], axes[j])
            for j in range(many)]  # fmt: skip
    return [*now, *made]


# ---- sequences: Python lists -------------------------------------------------------------------


class Sequence(list[Any]):
    """A sequence of tensors: one value, not several results."""


@operator("SequenceConstruct")
def sequence_construct(n: Step, *xs: Any) -> Any:
    return Sequence(xs)


@operator("SequenceEmpty")
def sequence_empty(n: Step, *, dtype: int = 1) -> Any:
    return Sequence()


@operator("SequenceInsert", numbers=(2,))
def sequence_insert(n: Step, xs: Any, x: Any, at: Any = None) -> Any:
    made = Sequence(xs)
    made.insert(len(made) if at is None else n.number(at) % (len(made) + 1), x)
    return made


@operator("SequenceErase", numbers=(1,))
def sequence_erase(n: Step, xs: Any, at: Any = None) -> Any:
    made = Sequence(xs)
    del made[-1 if at is None else n.number(at)]
    return made


@operator("SequenceAt", numbers=(1,))
def sequence_at(n: Step, xs: Any, at: Any) -> Any:
    return xs[n.number(at)]


@operator("SequenceLength")
def sequence_length(n: Step, xs: Any) -> Any:
    return np.array(len(xs), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(n: Step, xs: Any, *, axis: int, new_axis: int = 0) -> Any:
    return lu.stack(list(xs), axis) if new_axis else lu.cat(list(xs), axis)


@operator("SplitToSequence", numbers=(1,))
def split_to_sequence(
    n: Step, x: Any, sizes: Any = None, *, axis: int = 0, keepdims: int = 1
) -> Any:
    if sizes is None:
        parts = list(lu.split(x, 1, axis))
        return Sequence(parts if keepdims else [p.squeeze(axis) for p in parts])
    listed = n.ints(sizes)
    whole = np.ndim(sizes) if isinstance(sizes, np.ndarray) else sizes.ndim
    return Sequence(lu.split(x, listed if whole else listed[0], axis))


@operator("SequenceMap")
def sequence_map(n: Step, xs: Any, *more: Any, body: Any) -> Any:
    rows = []
    for k, x in enumerate(xs):
        given = [x, *(m[k] if isinstance(m, Sequence) else m for m in more)]
        rows.append(n.owner.run_inside(body, given, n.scope))
    return [Sequence(r[j] for r in rows) for j in range(n.count)]


@operator("Optional")
def optional(n: Step, x: Any = None, *, type: Any = None) -> Any:
    return x


@operator("OptionalHasElement")
def optional_has_element(n: Step, x: Any = None) -> Any:
    return np.array(x is not None)


@operator("OptionalGetElement")
def optional_get_element(n: Step, x: Any) -> Any:
    if x is None:
        raise OnnxImportError(f"{n.where()}: there is none")
    return x
