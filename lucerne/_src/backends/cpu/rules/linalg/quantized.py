"""Linear layers with weights in codes."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.quantized.blocks import write_quantized
from lucerne._src.backends.cpu.quantized.dots import dot_of
from lucerne._src.backends.cpu.quantized.frame import WIDTH, QuantizedKind, extra
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ops.linalg.quantized import COLUMNS, panels_of

_MOST_TASKS = 64
_NS_A_BYTE, _NS_A_PRODUCT = 0.1, 0.01


@rule("quantized_linear")
def quantized_linear(node: Node) -> NativeKernel | None:
    input, codes, scale, base, bias, rows, group, stored, dynamic = node.args
    given = [input, codes, scale, *(t for t in (base, bias) if t is not None)]
    metas: list[TensorMeta] = [t.meta for t in given]
    out: TensorMeta = node.outputs[0].meta
    floats = [m for m in (*metas, out) if m is not codes.meta]
    if any(m.dtype is not dt.float32 for m in floats) or not all(
        m.contiguous for m in (*metas, out)
    ):
        return None
    columns = input.meta.shape[-1]
    if not out.numel or group % COLUMNS[stored]:
        return None
    kind = QuantizedKind(stored, dynamic, base is not None, bias is not None)
    dot = type(dot_of(stored, dynamic)).__name__
    code = compiled(("quantized", dot, *kind.key), lambda m: write_quantized(m, kind))
    words, space = _words(kind, input.meta.numel // columns, rows, columns, group)
    work = codes.meta.numel * _NS_A_BYTE + out.numel * columns * _NS_A_PRODUCT
    return NativeKernel(
        code["entry"], 1, len(given), extra=words, workspace=space, work=work
    )  # fmt: skip


def _words(
    kind: QuantizedKind, rows: int, outputs: int, columns: int, group: int
) -> tuple[list[Any], int]:
    """The extra words, and bytes of scratch."""
    groups = columns // group
    steps, panels = columns // COLUMNS[kind.stored], panels_of(outputs)
    strips = panels // WIDTH
    units = strips + panels % WIDTH
    unit_chunk, row_chunk = -(-units // _MOST_TASKS), -(-rows // _MOST_TASKS)
    kept = rows * columns * dot_of(kind.stored, True).row_bytes if kind.dynamic else 0
    steps_at = kept + -kept % 64
    sums_at = steps_at + (4 * rows if kind.dynamic else 0)
    words = extra(
        rows=rows, outputs=outputs, columns=columns, groups=groups, group=group,
        group_steps=steps // groups, panel_bytes=steps * 64, strips=strips, units=units,
        unit_chunk=unit_chunk, unit_chunks=-(-units // unit_chunk), row_chunk=row_chunk,
        row_chunks=-(-rows // row_chunk), steps_at=steps_at, sums_at=sums_at,
    )  # fmt: skip
    return words, sums_at + 4 * rows * groups if kind.prepares else 0
