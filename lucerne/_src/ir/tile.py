"""The IR of tile kernels: what one program of a grid does with blocks of tensors.

A kernel is traced once for the shapes it is called with (`lucerne.tiles`). What comes out is a list
of statements over expressions. An expression is a block of numbers: a scalar, a row or a matrix,
whose extents are known, except that a block which sticks out over the edge of a tensor ends there
(`TileDim`). Where a block lies is an affine form of the program's number and of loop counters, with
known ranges: that nothing is read or written outside of a tensor is proved while the kernel is
traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from lucerne._src.base import dtype as dt
from lucerne._src.ir.meta import TensorMeta

SUM, PRODUCT, MAXIMUM, MINIMUM = "add", "mul", "max", "min"


class Var(NamedTuple):
    """A number that is known to lie in a range: of a program along an axis, or of a loop."""

    name: str
    low: int
    high: int


class Affine(NamedTuple):
    """`constant + sum of factor * variable`."""

    constant: int
    terms: tuple[tuple[Var, int], ...] = ()

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        found = dict(self.terms)
        for var, k in other.terms:
            found[var] = found.get(var, 0) + factor * k
        kept = tuple(sorted((v, k) for v, k in found.items() if k))
        return Affine(self.constant + factor * other.constant, kept)

    def times(self, factor: int) -> Affine:
        return Affine(0).plus(self, factor)

    @property
    def low(self) -> int:
        return self.constant + sum(min(k * v.low, k * v.high) for v, k in self.terms)

    @property
    def high(self) -> int:
        return self.constant + sum(max(k * v.low, k * v.high) for v, k in self.terms)

    def __str__(self) -> str:
        parts = [v.name if k == 1 else f"{k}*{v.name}" for v, k in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


class TileDim(NamedTuple):
    """The extent of a block along one axis: `length`, or less where one of `limits` is less."""

    length: int
    limits: tuple[Affine, ...] = ()

    def meet(self, other: TileDim) -> TileDim:
        """The common extent of two dims of the same length; one of length 1 gives way."""
        if self.length == 1 and not self.limits:
            return other
        if other.length == 1 and not other.limits:
            return self
        return TileDim(min(self.length, other.length), tuple(sorted({*self.limits, *other.limits})))

    def __str__(self) -> str:
        return " & ".join([str(self.length), *(f"({x})" for x in self.limits)])


class At(NamedTuple):
    """One index of an axis; `dynamic`: number of the expression that gives it."""

    place: Affine | None
    dynamic: int = -1


class Span(NamedTuple):
    """A piece of an axis, from `start` on."""

    start: Affine
    length: int


class New(NamedTuple):
    """An axis of the block that the tensor does not have (`x[:, None]`)."""


class View(NamedTuple):
    """A block of a tensor (by its number among the kernel's tensors)."""

    tensor: int
    parts: tuple[At | Span | New, ...]
    """One for each axis of the tensor, and the new ones."""


class TileExpr:
    """A block. `kind` says what it is, `data` the rest; see `KINDS`."""

    __slots__ = ("args", "data", "dims", "dtype", "kind", "number", "place", "weak")

    def __init__(
        self,
        kind: str,
        dtype: dt.dtype,
        dims: tuple[TileDim, ...],
        args: tuple[TileExpr, ...],
        data: Any,
        number: int,
        place: str,
        weak: bool = False,
    ) -> None:
        self.weak = weak
        """Made of Python numbers only: its dtype bends to those of others."""
        self.kind, self.dtype, self.dims, self.args = kind, dtype, dims, args
        self.data, self.number, self.place = data, number, place

    def __repr__(self) -> str:
        return f"%{self.number}"

    def text(self, words: Any = None) -> str:
        """`words`: how integers that come from shapes are spelled (`TileSizes`)."""
        words = words or _PLAIN
        shape = f"[{', '.join(map(words.dim, self.dims))}]" if self.dims else ""
        told = [_told(self.data, words)] if self.data != () else []
        args = [repr(a) for a in self.args] + told
        return f"%{self.number}: {self.dtype.name}{shape} = {self.kind}({', '.join(args)})"


KINDS = {
    "const": "a Python number (data); its type bends to the others'",
    "given": "number `data` among the numbers of the call",
    "index": "an affine form, as int64",
    "iota": "0, 1, 2, ... along axis `data`",
    "load": "a view of an input (data); args: indices that are data themselves",
    "point": "an instruction of `ir.scalar` (data) on each element",
    "cast": "the argument as the dtype",
    "count": "how many elements a dim (data) really has",
    "fold": "(how, axis, keep): a fold; has a statement of its own",
    "scan": "(how,): a running fold along the last axis; has a statement of its own",
    "dot": "the product of two matrices; has a statement of its own",
    "keep": "the argument, computed once and kept; has a statement of its own",
    "swap": "the transpose of a load, or of something kept",
    "read": "(variable, version): what a variable holds",
}
BUFFERED = frozenset(("scan", "dot", "keep"))
"""Always in memory of the program's own; folds are unless they are scalars."""


class TileVariable(NamedTuple):
    """A block that is written again and again."""

    number: int
    dtype: dt.dtype
    lengths: tuple[int, ...]


class Let(NamedTuple):
    """Compute something that others read."""

    expr: TileExpr


class Store(NamedTuple):
    """Write a block to an output."""

    view: View
    dims: tuple[TileDim, ...]
    expr: TileExpr
    dynamic: tuple[TileExpr, ...]
    place: str


class Set(NamedTuple):
    """Write a block over a variable, as far as it reaches."""

    variable: TileVariable
    dims: tuple[TileDim, ...]
    expr: TileExpr


class TileLoop(NamedTuple):
    """`for var in range(0, min(extents), step)`."""

    var: Var
    extents: tuple[Affine, ...]
    step: int
    body: tuple[Any, ...]


Statement = Let | Store | Set | TileLoop


class TileProgram:
    """A traced kernel: code for one combination of shapes, strides and dtypes.

    Two programs with the same text are equal, and so is their machine code.
    """

    __slots__ = (
        "_hash", "_text", "body", "exprs", "grid", "ids", "inputs", "interpret", "name", "numbers",
        "outputs", "places",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        grid: tuple[int, ...],
        ids: tuple[Var, ...],
        outputs: tuple[TensorMeta, ...],
        inputs: tuple[TensorMeta, ...],
        numbers: str,
        body: tuple[Statement, ...],
        exprs: tuple[TileExpr, ...],
    ) -> None:
        self.name, self.grid, self.ids = name, grid, ids
        self.outputs, self.inputs, self.numbers = outputs, inputs, numbers
        self.body, self.exprs = body, exprs
        self.places = [e.place for e in exprs]
        self.interpret: Any = None
        """The kernel in NumPy: (inputs, numbers) -> outputs, as arrays."""
        self._text = "\n".join(_lines(self))
        self._hash = hash(self._text)

    @property
    def tensors(self) -> tuple[TensorMeta, ...]:
        """Outputs, then inputs: views count them so."""
        return (*self.outputs, *self.inputs)

    @property
    def programs(self) -> int:
        total = 1
        for n in self.grid:
            total *= n
        return total

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tile program {self.name}{list(self.grid)}>"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileProgram) and other._text == self._text


def _told(data: Any, words: Any) -> str:
    if isinstance(data, View):
        return _view_text(data, words)
    if isinstance(data, Affine):
        return str(words.affine(data))
    if isinstance(data, TileDim):
        return str(words.dim(data))
    if isinstance(data, float):
        return data.hex()
    if isinstance(data, TileVariable):
        return f"v{data.number}"
    if isinstance(data, tuple):
        return ", ".join(_told(x, words) for x in data)
    return str(data)


def _view_text(view: View, words: Any) -> str:
    parts = []
    for p in view.parts:
        if isinstance(p, Span):
            parts.append(f"{words.affine(p.start)} +: {p.length}")
        elif isinstance(p, New):
            parts.append("new")
        else:
            parts.append(f"%{p.dynamic}" if p.place is None else words.affine(p.place))
    return f"t{view.tensor}[{', '.join(parts)}]"


def _lines(program: TileProgram) -> Iterator[str]:
    yield f"{program.name} over {list(program.grid)}, numbers {program.numbers!r}"
    for k, meta in enumerate(program.tensors):
        role = "output" if k < len(program.outputs) else "input"
        shape, strides = list(meta.shape), list(meta.strides)
        yield f"t{k}: {role} {meta.dtype.name}{shape} strides {strides}"
    yield from (e.text() for e in program.exprs)
    yield from _body_lines(program.body, "", _PLAIN)


def _body_lines(body: Iterable[Statement], indent: str, words: Any) -> Iterator[str]:
    for s in body:
        if isinstance(s, Let):
            yield f"{indent}let {s.expr!r}"
        elif isinstance(s, Store):
            dims, view = ", ".join(map(words.dim, s.dims)), _view_text(s.view, words)
            yield f"{indent}store {view} [{dims}] = {s.expr!r} {list(s.dynamic)}"
        elif isinstance(s, Set):
            v = s.variable
            dims = ", ".join(map(words.dim, s.dims))
            yield f"{indent}v{v.number}: {v.dtype.name}{list(v.lengths)} [{dims}] = {s.expr!r}"
        else:
            extents = " & ".join(map(words.affine, s.extents))
            yield f"{indent}for {s.var.name} in 0 .. {extents} by {s.step}:"
            yield from _body_lines(s.body, indent + "  ", words)


SIZE, STRIDE, GRID = "size", "stride", "grid"


class TileSizes:
    """The integers of a program that come from the shapes it was traced for, by number.

    Sizes, strides and the constants of indices are given to the machine code at each call, so that
    programs which differ in nothing else share it. Two constants have one number if and only if
    they are equal, so comparing indices gives the same for all programs with one `key`. Lengths of
    blocks, and constants that are 0, stay in the code. That every access is inside its tensor was
    proved for each program when it was traced: here nothing is decided about that.
    """

    def __init__(self, program: TileProgram, *more: int) -> None:
        """`more`: further numbers that are given."""
        self.values: list[int] = []
        self._numbers: dict[Any, int] = {}
        fixed = _fixed_axes(program)
        lines = []
        for k, meta in enumerate(program.tensors):
            pairs = zip(meta.shape, meta.byte_strides, strict=True)
            axes = [
                f"{self._name((SIZE, k, a), n)} by "
                f"{step if (k, a) in fixed else self._name((STRIDE, k, a), step)}"
                for a, (n, step) in enumerate(pairs)
            ]
            lines.append(f"t{k}: {meta.dtype.name} [{', '.join(axes)}] {k < len(program.outputs)}")
        for k, n in enumerate((*program.grid, program.programs, *more)):
            self._name((GRID, k), n)
        lines.append(f"{program.name} over {len(program.grid)}, numbers {program.numbers!r}")
        lines += [e.text(self) for e in program.exprs]
        lines += _body_lines(program.body, "", self)
        self.fixed = fixed
        self.key = "\n".join(lines)
        """The program but for these integers."""

    def number(self, role: Any) -> int:
        """The number of an integer by what it is: (SIZE, tensor, axis), (STRIDE, tensor, axis),
        (GRID, k), or a constant of an index as it is."""
        return self._numbers[role]

    def _name(self, role: Any, value: int) -> str:
        if role not in self._numbers:
            self._numbers[role] = len(self.values)
            self.values.append(value)
        return f"s{self._numbers[role]}"

    def constant(self, value: int) -> str:
        """A constant of an index."""
        return self._name(value, value) if value else "0"

    def affine(self, a: Affine) -> str:
        terms = [f"{k}*{v.name}" for v, k in a.terms]
        return " + ".join([*terms, self.constant(a.constant)])

    def dim(self, d: TileDim) -> str:
        return " & ".join([str(d.length), *(f"({self.affine(x)})" for x in d.limits)])


class _Plain:
    """All integers as they are."""

    affine = staticmethod(str)
    dim = staticmethod(str)


_PLAIN = _Plain()


def _fixed_axes(program: TileProgram) -> set[tuple[int, int]]:
    """(tensor, axis) along which vectors lie: the stride decides which instructions read them."""
    found: set[tuple[int, int]] = set()
    swapped = {a.number for e in program.exprs if e.kind == "swap" for a in e.args}
    views = [(e.data, e.number in swapped) for e in program.exprs if e.kind == "load"]
    views += [(s.view, False) for s in _all_statements(program.body) if isinstance(s, Store)]
    for view, both in views:
        kept = [p for p in view.parts if not isinstance(p, New)]
        spans = [a for a, p in enumerate(kept) if isinstance(p, Span)]
        found |= {(view.tensor, a) for a in (spans if both else spans[-1:])}
    return found


def _all_statements(body: Iterable[Statement]) -> Iterator[Statement]:
    for s in body:
        if isinstance(s, TileLoop):
            yield from _all_statements(s.body)
        else:
            yield s


def operands(expr: TileExpr, seen: set[int] | None = None) -> Iterator[TileExpr]:
    """An expression and all that is computed together with it, element by element: not what is
    behind something that has a statement of its own."""
    seen = set() if seen is None else seen
    if expr.number in seen:
        return
    seen.add(expr.number)
    yield expr
    if not is_made(expr):
        for a in expr.args:
            yield from operands(a, seen)


def is_made(expr: TileExpr) -> bool:
    """Whether a statement of its own computes it."""
    return expr.kind in BUFFERED or expr.kind in ("fold", "swap", "read")
