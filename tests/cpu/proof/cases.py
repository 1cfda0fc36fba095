"""The calls of the proof: from the frozen data, from the table's entries, and in many sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

import lucerne
from lucerne import backends
from lucerne._src.base import dtype as dt
from lucerne._src.conformance import frozen, oracle
from lucerne._src.conformance.cases import Case as FrozenCase
from lucerne._src.conformance.cases import leaves
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op
from lucerne._src.tensor.autograd.api import grad
from lucerne._src.tensor.eager import plans
from tests.cpu.proof import compiled, large, sized, tiles
from tests.cpu.proof.layouts import LAYOUTS, PLAIN, laid

SHAPES: list[tuple[int, ...]] = [
    (), (0,), (1,), (3,), (15,), (16,), (17,), (31,), (33,), (65,), (5, 7), (3, 0), (1, 17),
    (17, 33), (3, 5, 9), (2, 3, 4, 5),
]  # fmt: skip
_LAID_SHAPES: list[tuple[int, ...]] = [(17,), (5, 19), (2, 3, 4, 5)]
ENTRY_DTYPES = sized.ALL
_FLOAT_ONLY = frozenset(("sum_tanh",))
"""Inner ops that are called with floats alone: of integers they give a rounded 0.99 or 1."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One call, or a call and its backward pass."""

    op: str
    dtype: str
    shape: str
    """Its sizes or number, in words."""
    layout: str
    run: Callable[[], Any]

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.shape} {self.layout}"


def all_cases(*, full: bool, source: str = "") -> Iterator[Case]:
    """Everything, or the part that takes seconds: of each op some dtypes, sizes and layouts."""
    sources = {
        "sized": _sized_cases, "large": _large_cases, "frozen": _frozen_cases,
        "entries": _entry_cases, "tiles": _tile_cases, "compiled": _compiled_cases,
    }  # fmt: skip
    for name, cases in sources.items():
        if source in ("", name):
            yield from cases(full)


# ---- frozen calls ------------------------------------------------------------------------------


def _frozen_cases(full: bool) -> Iterator[Case]:
    seen: set[Any] = set()
    numbers: dict[Any, int] = {}
    for case in frozen.frozen_cases(lucerne):
        key = (case.op, case.dtype, case.part)
        numbers[key] = number = numbers.get(key, 0) + 1
        shape = f"{case.part} {number}"
        for layout in (PLAIN, *LAYOUTS) if full else ("mixed",):
            if not full and (key in seen or case.tier != "T0" or case.dtype != "float32"):
                continue
            yield Case(case.op, case.dtype, shape, layout, partial(_run_frozen, case, layout))
        seen.add(key)


def _run_frozen(case: FrozenCase, layout: str) -> Any:
    make, count = frozen._tensor, iter(range(1000))

    def made(*arguments: Any) -> Any:
        return laid(make(*arguments), layout, next(count))

    with mock.patch.object(frozen, "_tensor", made):
        return case.run("cpu")


# ---- entries of the table ----------------------------------------------------------------------


def _entry_cases(full: bool) -> Iterator[Case]:
    for op in op_.table().values():
        if oracle.unknown_parameter(op):
            continue  # no call of it can be made up: expressions reach it (`counted_draw`'s parts)
        if op.kind == op_.POINTWISE:
            shapes, dtypes = (SHAPES, ENTRY_DTYPES) if full else ([(17,)], ["float32"])
            dtypes = sized.REAL if full and op.qualified in _FLOAT_ONLY else dtypes
            for dtype in dtypes:
                for shape in shapes:
                    yield _pointwise(op, dtype, shape, PLAIN)
                for shape in _LAID_SHAPES if full else [(5, 19)]:
                    for layout in LAYOUTS if full else ("mixed",):
                        yield _pointwise(op, dtype, shape, layout)
        elif full and op.samples is not None:
            for number, call in enumerate(oracle.calls(op)):
                for dtype in ENTRY_DTYPES:
                    for layout in (PLAIN, *LAYOUTS):
                        run = partial(_run_entry, op, call, dtype, layout)
                        yield Case(op.qualified, dtype, f"sample {number}", layout, run)


def _pointwise(op: Op, dtype: str, shape: tuple[int, ...], layout: str) -> Case:
    tensors = sum(p.kind == op_.TENSOR for p in op.params)
    call = oracle._with_shapes(op, [shape] * tensors)
    run = partial(_run_entry, op, call, dtype, layout)
    return Case(op.qualified, dtype, str(list(shape)), layout, run)


def _run_entry(op: Op, call: Any, dtype: str, layout: str) -> Any:
    arguments = {}
    for number, (p, given) in enumerate(zip(op.params, call, strict=True)):
        wanted = dt.bool_ if p.name in ("condition", "mask") else dt.by_name(dtype)
        a = given if given is None else oracle._argument(p, given, wanted, number)
        arguments[p.name] = _tensors(a, wanted, layout, number)
    return op.public(**arguments)


def _tensors(a: Any, dtype: dt.dtype, layout: str, number: int) -> Any:
    if isinstance(a, list):
        return tuple([_tensors(x, dtype, layout, number + i) for i, x in enumerate(a)])
    if not isinstance(a, np.ndarray):
        return a
    made = lucerne.tensor(a)
    return laid(made.to(dtype) if made.is_floating_point() else made, layout, number)


# ---- expressions in many sizes -----------------------------------------------------------------


def _sized_cases(full: bool) -> Iterator[Case]:
    sizes = (*sized.SMALL, *sized.LARGE) if full else (17,)
    for family, (rows, dtypes, backwards) in sized.FAMILIES.items():
        for row in rows:
            for dtype in dtypes if full else dtypes[:1]:
                backward = backwards and dtype in sized.REAL
                for n in sizes:
                    yield _sized(row, dtype, n, PLAIN, family, backward)
                for n in (3, 17, 65) if full else (17,):
                    for layout in LAYOUTS if full else ("mixed",):
                        yield _sized(row, dtype, n, layout, family, backward)


def _large_cases(full: bool) -> Iterator[Case]:
    """What only many elements reach: several threads, long sorts, stores past the cache."""
    for row, dtypes in large.WORK.items() if full else ():
        for dtype in dtypes:
            for layout in (PLAIN, "mixed", "turned"):
                backward = large.runs_backward(row, dtype)
                yield _sized(row, dtype, 1, layout, "large", backward)


def _sized(row: str, dtype: str, n: int, layout: str, family: str, backward: bool) -> Case:
    run = partial(run_row, row, dtype, n, layout, backward=backward)
    return Case(f"{family}: {row}", dtype, f"n={n}", layout, run)


# ---- tiles, and compiled functions -------------------------------------------------------------

_TILE_LAYOUTS = {
    "product": ("turned", "padded", "shifted", "mixed"),
    "convolution": ("channels_last", "turned", "mixed"),
    "attention": ("mixed", "turned", "shifted"),
    "empty": (),
}


def _tile_cases(full: bool) -> Iterator[Case]:
    """Around the edges of tiles, which are taken whatever the size."""
    for number, (family, row, dtypes) in enumerate(tiles.rows(full=full)):
        others = _TILE_LAYOUTS[family]
        layouts = (PLAIN, *others[number % len(others) :][:1]) if full and others else (PLAIN,)
        for dtype in dtypes if full else dtypes[:1]:
            for layout in layouts:
                call = partial(run_row, row, dtype, 1, layout, backward=True)
                run = partial(tiles.run, call, _forget_kernels)
                yield Case(f"tiles, {family}: {row}", dtype, "", layout, run)


def _forget_kernels() -> None:
    """Kernels that were chosen under other limits."""
    plans.clear_plans()
    backends.get("cpu")._fused.clear()


def _compiled_cases(full: bool) -> Iterator[Case]:
    """Groups around everything, in the layouts of their arguments; training steps."""
    listed = list(compiled.rows())
    for number, row in enumerate(listed if full else listed[::3]):
        for dtype in compiled.TYPES if full else compiled.TYPES[number % 2 :][:1]:
            for n in (*compiled.SIZES, compiled.LARGE) if full else (17,):
                yield _compiled(row, dtype, n, PLAIN)
            for layout in LAYOUTS if full else ():
                yield _compiled(row, dtype, 17, layout)
    for name in compiled.OPTIMIZERS if full else ("momentum", "adam"):
        for n in (1, 16, 17, 65) if full else (17,):
            for layout in (PLAIN, "turned") if full else ("mixed",):
                run = partial(compiled.train, name, n, "float32", partial(_laid, layout))
                yield Case(f"training: {name}", "float32", f"n={n}", layout, run)


def _laid(layout: str, t: Any, number: int) -> Any:
    return laid(t, layout, number)


def _compiled(row: str, dtype: str, n: int, layout: str) -> Case:
    return Case(
        f"compiled: {row}", dtype, f"n={n}", layout, partial(_run_both, row, dtype, n, layout)
    )


def _run_both(row: str, dtype: str, n: int, layout: str) -> None:
    """Forward, and forward and backward in one graph; groups around tiles and around vectors."""
    _forget_kernels()
    for backward in (False, True):
        maker = partial(_maker, dtype, n, layout)
        if backward and any(word in row for word in ("_(", "randint")):
            continue  # leaves are written over
        replay = compiled.Replay(row, maker, n)
        with tiles.tiles_for_all() if n % 2 else contextlib.nullcontext():
            compiled.run_compiled(replay, backward=backward)
        _forget_kernels()


def _maker(dtype: str, n: int, layout: str, needs_grad: bool) -> Maker:
    return Maker(dtype, n, layout, needs_grad=needs_grad)


class Maker:
    """The names of an expression (see `sized`)."""

    def __init__(self, dtype: str, n: int, layout: str, *, needs_grad: bool = False) -> None:
        self.dtype, self.layout, self.needs_grad = dt.by_name(dtype), layout, needs_grad
        self.rng = np.random.default_rng(n)
        self.made: list[Any] = []
        self.names = {
            "torch": lucerne, "F": lucerne.nn.functional, "n": n, "max": max, "slice": slice,
            "x": self.x, "p": self.p, "i": self.i, "b": self.b, "odd": self.odd,
            "rnn": (True, 1, 0.0, False, False, False),
        }  # fmt: skip

    def _keep(self, values: Any, dtype: dt.dtype) -> Any:
        """Made by a cast on the host: the engine's own casts are not what is asked about here."""
        plain = lucerne.tensor(values, device="reference").to(dtype).to("cpu")
        made = laid(plain, self.layout, len(self.made))
        self.made.append(made)
        return made.requires_grad_() if self.needs_grad and dtype.category == dt.FLOAT else made

    def x(self, *shape: int) -> Any:
        if self.dtype is dt.bool_:
            return self.b(*shape)
        if self.dtype.category == dt.INTEGER:
            low = -5 if self.dtype.is_signed else 0
            return self._keep(self.rng.integers(low, 7, shape), self.dtype)
        return self._keep(self.rng.normal(size=shape), self.dtype)

    def odd(self, *shape: int) -> Any:
        """Some numbers that are not finite: what tiles can't do, others must do for them."""
        values = self.rng.normal(size=shape)
        drawn = self.rng.random(shape)
        values[drawn < 0.02], values[drawn > 0.99] = np.inf, np.nan
        return self._keep(values, self.dtype)

    def p(self, *shape: int) -> Any:
        return self._keep(self.rng.uniform(0.05, 0.95, shape), self.dtype)

    def i(self, high: int, *shape: int) -> Any:
        return self._keep(self.rng.integers(0, high, shape), dt.int64)

    def b(self, *shape: int) -> Any:
        return self._keep(self.rng.random(shape) < 0.5, dt.bool_)


def run_row(row: str, dtype: str, n: int, layout: str = PLAIN, *, backward: bool = False) -> Any:
    """The results of an expression, and the gradients of its tensors if asked for."""
    lucerne.manual_seed(n)
    maker = Maker(dtype, n, layout)
    forward = eval(row, maker.names)  # our own tables
    if not backward:
        return forward
    maker = Maker(dtype, n, layout, needs_grad=True)
    found = eval(row, maker.names)
    results = [t for t in leaves(found) if frozen._is_real_float(t) and t.requires_grad]
    inputs = [t for t in maker.made if frozen._is_real_float(t)]
    if not results:
        return forward
    weights = [frozen._weights(t) for t in results]
    return [forward, grad(results, inputs, weights, allow_unused=True)]


def quietly(case: Case) -> str:
    """Run a case; why it was refused, or nothing. `Wrong` comes through."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            case.run()
        except compiled.Wrong:
            raise
        except Exception as error:
            lines = str(error).splitlines() or [""]
            return f"{type(error).__name__}: {lines[0]}"
    return ""
