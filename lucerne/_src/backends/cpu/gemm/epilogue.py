"""What happens to a tile of sums before it is stored: bias, scale, residual, activation.

An epilogue is a builder callback. `prepare(tile)` runs once for a tile and returns whatever `apply`
needs; `apply(tile, ready, v, row, j)` maps vector `j` of a row of sums. Operands come in through
the argument struct: E points at the epilogue's tensor, E_ROW is its row stride, BETA and ALPHA are
numbers. `key` must name everything that changes the code. `inline=False` writes the code once in a
loop over rows instead of once for each vector of the tile: for long activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.types import F32
from lucerne._src.backends.cpu.gemm.args import Args
from lucerne._src.backends.cpu.gemm.kinds import GemmKind, masked
from lucerne._src.backends.cpu.math import storage
from lucerne._src.base import dtype as dt


@dataclass(frozen=True)
class Tile:
    """Where a tile lies in the result, for epilogues."""

    f: LLVMFunction
    kind: GemmKind
    args: Args
    row: LLVMValue
    column: LLVMValue
    masks: Sequence[LLVMValue | None]
    lanes: int


@dataclass(frozen=True)
class Ahead:
    """A tensor under a tile: where it starts, bytes from row to row, bytes of one column."""

    start: LLVMValue
    step: LLVMValue
    size: int


class Epilogue:
    """Nothing: sums become results."""

    key: tuple[Any, ...] = ("plain",)
    inline = True
    stores = False
    """Whether `apply` writes all results itself; what it returns is then not used."""
    sums_apart = False
    """Whether no result can hold the sums of earlier blocks of k."""
    ends_panels = False
    """Whether there is something to do when 32 rows of a block are done (products of tiles)."""

    def end_panel(
        self, f: LLVMFunction, args: Args, row: LLVMValue, columns: tuple[LLVMValue, LLVMValue]
    ) -> None:
        """What follows when all columns (first, stop) of the rows from `row` on are stored."""

    def ahead(self, tile: Tile) -> list[Ahead]:
        """Memory besides the result that the tile will touch: to be asked for early."""
        return []

    def prepare(self, tile: Tile) -> Any:
        return None

    def apply(self, tile: Tile, ready: Any, v: LLVMValue, row: LLVMValue, j: int) -> LLVMValue:
        return v

    def apply_all(
        self, tile: Tile, ready: Any, vectors: Sequence[tuple[LLVMValue, LLVMValue, int]]
    ) -> list[LLVMValue]:
        """Several vectors (sums, row, j) at once: long code may go through them side by side."""
        return [self.apply(tile, ready, v, row, j) for v, row, j in vectors]


PLAIN = Epilogue()

ACROSS, DOWN, FULL = "across", "down", "full"
"""How a tensor spreads over the result: one row for all, one column for all, or of its shape."""


class Combine(Epilogue):
    """`alpha * sums + beta * E`, then an activation. E is of the operands' dtype.

    `rounded`: E is one row that lies in memory as float32, and is rounded to bfloat16 first.
    """

    def __init__(
        self,
        spread: str,
        *,
        scaled: bool = False,
        activation: Callable[[LLVMFunction, LLVMValue], LLVMValue] | None = None,
        name: str = "",
        rounded: bool = False,
    ) -> None:
        """`scaled`: ALPHA and BETA are given; `name` names the activation in keys."""
        assert not rounded or spread == ACROSS, spread
        self.spread, self.scaled, self.activation = spread, scaled, activation
        self.rounded = rounded
        self.key = ("combine", spread, scaled, name, rounded)
        self.inline = activation is None

    def prepare(self, tile: Tile) -> Any:
        """(alpha, beta, vectors of the row that is the same for all rows)."""
        numbers = [self._number(tile, n) for n in ("ALPHA", "BETA")] if self.scaled else None
        across = None
        if self.spread == ACROSS:
            across = [
                self._scaled(self._load(tile, None, j), numbers) for j in range(len(tile.masks))
            ]
        return numbers, across

    def apply(self, tile: Tile, ready: Any, v: LLVMValue, row: LLVMValue, j: int) -> LLVMValue:
        numbers, across = ready
        extra = across[j] if across else self._scaled(self._load(tile, row, j), numbers)
        if numbers is not None:
            v = v * numbers[0]
        v = v + extra
        return v if self.activation is None else self.activation(tile.f, v)

    def _scaled(self, v: LLVMValue, numbers: list[LLVMValue] | None) -> LLVMValue:
        return v if numbers is None else v * numbers[1]

    def _number(self, tile: Tile, name: str) -> LLVMValue:
        f, sums = tile.f, tile.kind.sums
        x = getattr(tile.args, name)
        if sums.is_int:
            x = f.convert("fptosi", x, sums)
        elif sums.bits < 64:
            x = f.convert("fptrunc", x, sums)
        return f.splat(x, tile.lanes)

    def _load(self, tile: Tile, row: LLVMValue | None, j: int) -> LLVMValue:
        f, kind = tile.f, tile.kind
        base = tile.args.E
        if self.rounded:
            place = f.at(base, (tile.column + j * tile.lanes) * F32.size)
            v = masked(f, F32.vector(tile.lanes), place, tile.masks[j])
            return storage.unpack(f, dt.bfloat16, storage.pack(f, dt.bfloat16, v))
        if row is not None:
            base = f.at(base, row * tile.args.E_ROW * kind.source.size)
        if self.spread == DOWN:
            return f.splat(kind.widen(f, f.load(kind.source, base)), tile.lanes)
        place = f.at(base, (tile.column + j * tile.lanes) * kind.source.size)
        return kind.widen(f, masked(f, kind.source.vector(tile.lanes), place, tile.masks[j]))
