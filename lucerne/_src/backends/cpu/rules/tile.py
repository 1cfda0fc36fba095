"""Tile kernels (`lucerne.tiles`): a traced program as machine code."""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.tile.writer import write_program
from lucerne._src.ir.graph import Node
from lucerne._src.ir.tile import TileProgram, TileSizes

_CHUNK_NS = 20_000.0
_MOST_CHUNKS = 256


@rule("tile_call")
def tile_call(node: Node) -> Any:
    program: TileProgram = node.args[1]
    elements = sum(m.numel for m in program.tensors)
    work = 0.4 * elements * (1 + len(program.exprs) / 40)
    chunks = max(1, min(program.programs, int(work / _CHUNK_NS), _MOST_CHUNKS))
    sizes = TileSizes(program, chunks)
    code = compiled(("tile", sizes.key), lambda m: write_program(m, program, sizes))
    names = [f"tensor {k}" for k in range(len(program.tensors))]

    def fail(status: int, detail: int) -> None:
        meta = program.tensors[status - 1]
        raise IndexError(
            f"tile kernel {program.name}: an index that is data is out of bounds for "
            f"{names[status - 1]}, which has shape {list(meta.shape)}"
        )

    return NativeKernel(
        code["entry"],
        outputs=len(program.outputs),
        tensors=len(program.inputs),
        numbers=program.numbers,
        extra=[0, *sizes.values],
        work=work,
        fail=fail,
    )
