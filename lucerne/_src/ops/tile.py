"""The op that runs a tile kernel: a traced program with its tensors and numbers."""

from __future__ import annotations

from typing import Any

from lucerne._src.ir import op as op_
from lucerne._src.ir.define import public_function
from lucerne._src.ir.op import Scalar, TensorList
from lucerne._src.ir.tile import TileProgram

MOST_NUMBERS = 8


def _meta(tensors: Any, program: TileProgram, *numbers: Any) -> Any:
    metas = program.outputs
    return metas[0] if len(metas) == 1 else metas


def _tile_call(
    tensors: TensorList,
    program: TileProgram,
    n0: Scalar | None = None,
    n1: Scalar | None = None,
    n2: Scalar | None = None,
    n3: Scalar | None = None,
    n4: Scalar | None = None,
    n5: Scalar | None = None,
    n6: Scalar | None = None,
    n7: Scalar | None = None,
) -> Any:
    """Runs `program` (see `lucerne._src.ir.tile`) on tensors and numbers; returns its outputs."""


# Not part of the table: backends need no rule for it, and say so when they have none.
TILE_CALL = op_.register_custom(
    op_.Op("tile_call", op_.STRUCTURAL, _tile_call, meta=_meta, vjp={}, out=False, internal=True)
)
TILE_CALL.public = public_function(TILE_CALL)
