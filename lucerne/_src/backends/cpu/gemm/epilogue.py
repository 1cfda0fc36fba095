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

from lucerne._src.backends.cpu.emit.builder import Function, Value
from lucerne._src.backends.cpu.emit.types import F32
from lucerne._src.backends.cpu.gemm.args import Args
from lucerne._src.backends.cpu.gemm.kinds import Kind, masked
from lucerne._src.backends.cpu.math import storage
from lucerne._src.base import dtype as dt


@dataclass(frozen=True)
class Tile:
    """Where a tile lies in the result, for epilogues."""

    f: Function
    kind: Kind
    args: Args
    row: Value
    column: Value
    masks: Sequence[Value | None]
    lanes: int


@dataclass(frozen=True)
class Ahead:
    """A tensor under a tile: where it starts, bytes from row to row, bytes of one column."""

    start: Value
    step: Value
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

    def end_panel(self, f: Function, args: Args, row: Value, columns: tuple[Value, Value]) -> None:
        """What follows when all columns (first, stop) of the rows from `row` on are stored."""

    def ahead(self, tile: Tile) -> list[Ahead]:
        """Memory besides the result that the tile will touch: to be asked for early."""
        return []

    def prepare(self, tile: Tile) -> Any:
        return None

    def apply(self, tile: Tile, ready: Any, v: Value, row: Value, j: int) -> Value:
        return v

    def apply_all(
        self, tile: Tile, ready: Any, vectors: Sequence[tuple[Value, Value, int]]
    ) -> list[Value]:
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
        activation: Callable[[Function, Value], Value] | None = None,
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

    def apply(self, tile: Tile, ready: Any, v: Value, row: Value, j: int) -> Value:
        numbers, across = ready
        extra = across[j] if across else self._scaled(self._load(tile, row, j), numbers)
        if numbers is not None:
            v = v * numbers[0]
        v = v + extra
        return v if self.activation is None else self.activation(tile.f, v)

    def _scaled(self, v: Value, numbers: list[Value] | None) -> Value:
        return v if numbers is None else v * numbers[1]

    def _number(self, tile: Tile, name: str) -> Value:
        f, sums = tile.f, tile.kind.sums
        x = getattr(tile.args, name)
        if sums.is_int:
            x = f.convert("fptosi", x, sums)
        elif sums.bits < 64:
            x = f.convert("fptrunc", x, sums)
        return f.splat(x, tile.lanes)

    def _load(self, tile: Tile, row: Value | None, j: int) -> Value:
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


class Activation(Epilogue):
    """An activation alone."""

    inline = False

    def __init__(self, activation: Callable[[Function, Value], Value], name: str) -> None:
        self.activation = activation
        self.key = ("activation", name)

    def apply(self, tile: Tile, ready: Any, v: Value, row: Value, j: int) -> Value:
        return self.activation(tile.f, v)
