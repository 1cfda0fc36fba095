"""Matrices, Fourier transforms, special functions, complex numbers: every op beside torch.

    python -m benchmarks.linalg                       all rows, worst ratio first
    python -m benchmarks.linalg --rows 'inv|solve'    rows whose name matches (or "fft 1024 c64")
    python -m benchmarks.linalg --quick               shorter timings, and the small sizes only
    python -m benchmarks.linalg --html page.html      the same table as a page

Both sides run in this process, in turn, with one thread; times are processor time, the least of
many. A row ending in "grad" is forward and backward. Exit status 1: some row is above the limit.
"""

from __future__ import annotations

import argparse
import html
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import amount, page
from benchmarks.timing import Effort, best_times

LIMIT = 1.5
SMALL, MIDDLE, LARGE = ("4", "16", "100x4"), ("128",), ("512",)
SHAPES: dict[str, tuple[int, ...]] = {
    "4": (4, 4), "16": (16, 16), "100x4": (100, 4, 4), "128": (128, 128), "512": (512, 512),
}  # fmt: skip
NUMBERS = {"f32": np.float32, "f64": np.float64, "c64": np.complex64}

Call = Callable[[], Any]
Make = Callable[[Any, Any], Any]
"""From the library and its tensors to the result."""


@dataclass(frozen=True)
class Row:
    """One op on one size in one dtype; `inputs` makes the arrays."""

    name: str
    size: str
    dtype: str
    inputs: Callable[[], list[np.ndarray[Any, Any]]]
    call: Callable[..., Any]
    grad: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} {self.size} {self.dtype}{' grad' if self.grad else ''}"


@dataclass(frozen=True)
class Found:
    """What was measured of a row, in seconds."""

    row: Row
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


# ---- arrays -----------------------------------------------------------------------------------


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.RandomState(seed)
    made = rng.standard_normal(shape)
    if dtype.startswith("c"):
        made = made + 1j * rng.standard_normal(shape)
    return made.astype(NUMBERS[dtype])


def regular(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Matrices far from singular ones."""
    made = normal(shape, dtype) + 2 * np.sqrt(shape[-1]) * np.eye(shape[-1])
    return made.astype(NUMBERS[dtype])


def definite(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    a = normal(shape, dtype).astype(np.complex128 if dtype == "c64" else np.float64)
    made = a @ np.swapaxes(a.conj(), -1, -2) / shape[-1] + np.eye(shape[-1])
    return made.astype(NUMBERS[dtype])


# ---- rows -------------------------------------------------------------------------------------

_REGULAR: dict[str, Callable[..., Any]] = {
    "inv": lambda t, a: t.linalg.inv(a),
    "det": lambda t, a: t.linalg.det(a),
    "slogdet": lambda t, a: t.linalg.slogdet(a)[1],
    "lu": lambda t, a: t.linalg.lu(a)[1],
    "lu_factor": lambda t, a: t.linalg.lu_factor(a)[0],
    "qr": lambda t, a: t.linalg.qr(a)[1],
    "svd": lambda t, a: t.linalg.svd(a, full_matrices=False)[1],
    "svdvals": lambda t, a: t.linalg.svdvals(a),
    "pinv": lambda t, a: t.linalg.pinv(a),
    "matrix_norm": lambda t, a: t.linalg.matrix_norm(a),
    "norm2": lambda t, a: t.linalg.matrix_norm(a, 2),
    "cond": lambda t, a: t.linalg.cond(a),
    "matrix_power": lambda t, a: t.linalg.matrix_power(a, 3),
    "vector_norm": lambda t, a: t.linalg.vector_norm(a),
    "multi_dot": lambda t, a: t.linalg.multi_dot([a, a, a]),
}
_DEFINITE: dict[str, Callable[..., Any]] = {
    "cholesky": lambda t, a: t.linalg.cholesky(a),
    "eigh": lambda t, a: t.linalg.eigh(a)[0],
    "eigvalsh": lambda t, a: t.linalg.eigvalsh(a),
    "matrix_exp": lambda t, a: t.linalg.matrix_exp(a * (1 / a.shape[-1])),
    "cholesky_inverse": lambda t, a: t.cholesky_inverse(a),
    "ldl_factor": lambda t, a: t.linalg.ldl_factor(a)[0],
}
_FORWARD_ONLY: dict[str, Callable[..., Any]] = {
    "eig": lambda t, a: t.linalg.eig(a)[0],
    "eigvals": lambda t, a: t.linalg.eigvals(a),
    "matrix_rank": lambda t, a: t.linalg.matrix_rank(a),
}
_PAIRS: dict[str, Callable[..., Any]] = {
    "solve": lambda t, a, b: t.linalg.solve(a, b),
    "solve_triangular": lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True),
    "lstsq": lambda t, a, b: t.linalg.lstsq(a, b)[0],
    "cholesky_solve": lambda t, a, b: t.cholesky_solve(b, a),
}
_NO_GRADIENT = {"ldl_factor", "cond", "norm2"}
_NO_MULTI = {"multi_dot": "100x4"}


def _pair(shape: tuple[int, ...], dtype: str) -> list[np.ndarray[Any, Any]]:
    """Matrices and right sides of four columns."""
    return [regular(shape, dtype), normal((*shape[:-1], 4), dtype, 1)]


def matrix_rows() -> Iterator[Row]:
    for size, shape in SHAPES.items():
        for dtype in NUMBERS:
            sets = ((_REGULAR, regular, True), (_DEFINITE, definite, True),
                    (_FORWARD_ONLY, regular, False))  # fmt: skip
            for calls, make, differs in sets:
                for name, call in calls.items():
                    if _NO_MULTI.get(name) == size or (name.startswith("eigv") and size == "512"):
                        continue
                    if name == "eig" and size == "512":
                        continue
                    arrays = lambda m=make, s=shape, d=dtype: [m(s, d)]  # noqa: E731
                    yield Row(name, size, dtype, arrays, call)
                    if differs and name not in _NO_GRADIENT:
                        yield Row(name, size, dtype, arrays, call, grad=True)
            for name, call in _PAIRS.items():
                both = partial(_pair, shape, dtype)
                yield Row(name, size, dtype, both, call)
                if name != "lstsq":
                    yield Row(name, size, dtype, both, call, grad=True)


_TRANSFORMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "fft": (lambda t, x: t.fft.fft(x), True),
    "ifft": (lambda t, x: t.fft.ifft(x), True),
    "rfft": (lambda t, x: t.fft.rfft(x), False),
    "irfft": (lambda t, x: t.fft.irfft(x), True),
    "fft dim0": (lambda t, x: t.fft.fft(x, dim=0), True),
    "fft2": (lambda t, x: t.fft.fft2(x), True),
    "rfft2": (lambda t, x: t.fft.rfft2(x), False),
    "irfft2": (lambda t, x: t.fft.irfft2(x), True),
}
_SIGNALS: dict[str, tuple[int, ...]] = {
    "16": (16,), "100x16": (100, 16), "128x128": (128, 128), "64x1000": (64, 1000), "1024": (1024,),
    "256x1024": (256, 1024), "512x512": (512, 512), "2^18": (1 << 18,), "32x997": (32, 997),
    "32x600": (32, 600),
}  # fmt: skip


def transform_rows() -> Iterator[Row]:
    for size, shape in _SIGNALS.items():
        for name, (call, is_complex) in _TRANSFORMS.items():
            if len(shape) < 2 and ("2" in name or "dim0" in name):
                continue
            for dtype in ("c64", "c128") if is_complex else ("f32", "f64"):
                arrays = lambda s=shape, d=dtype: [_signal(s, d)]  # noqa: E731
                yield Row(name, size, dtype, arrays, call)
                if dtype in ("c64", "f32"):
                    yield Row(name, size, dtype, arrays, call, grad=True)


def _signal(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    rng = np.random.RandomState(0)
    if dtype.startswith("f"):
        return rng.standard_normal(shape).astype(NUMBERS[dtype])
    made = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return made.astype(np.complex64 if dtype == "c64" else np.complex128)


_SPECIAL = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "log1p",
    "log_ndtr",
    "logit",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "ndtr",
    "ndtri",
    "psi",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "sinc",
    "spherical_bessel_j0",
]
_SPECIAL_PAIRS: dict[str, Callable[..., Any]] = {
    "gammainc": lambda t, a, x: t.special.gammainc(a, x),
    "gammaincc": lambda t, a, x: t.special.gammaincc(a, x),
    "xlogy": lambda t, a, x: t.special.xlogy(a, x),
    "xlog1py": lambda t, a, x: t.special.xlog1py(a, x),
    "zeta": lambda t, a, x: t.special.zeta(a + 1, x),
    "polygamma2": lambda t, a, x: t.special.polygamma(2, x),
    "multigammaln": lambda t, a, x: t.special.multigammaln(x + 2, 2),
    "chebyshev_t": lambda t, a, x: t.special.chebyshev_polynomial_t(x, 5),
    "hermite_h": lambda t, a, x: t.special.hermite_polynomial_h(x, 5),
    "legendre_p": lambda t, a, x: t.special.legendre_polynomial_p(x, 5),
}
_COMPLEX: dict[str, Callable[..., Any]] = {
    **{
        name: (lambda t, x, name=name: getattr(t, name)(x))
        for name in [
            "abs",
            "angle",
            "exp",
            "log",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
            "log1p",
            "expm1",
            "log2",
            "log10",
            "reciprocal",
            "rsqrt",
            "sgn",
            "sigmoid",
            "square",
            "neg",
            "conj_physical",
            "sum",
            "prod",
            "mean",
        ]
    },
    "mul": lambda t, x: x * x,
    "add": lambda t, x: x + x,
    "div": lambda t, x: x / (x + 2),
    "pow": lambda t, x: x**x,
    "pow2.5": lambda t, x: x**2.5,
    "pow3": lambda t, x: x**3,
    "real": lambda t, x: x.real * 2,
    "polar": lambda t, x: t.polar(x.real, x.imag),
    "complex": lambda t, x: t.complex(x.real, x.imag),
    "matmul": lambda t, x: x.reshape(-1, 10) @ x.reshape(10, -1),
}


def pointwise_rows() -> Iterator[Row]:
    for n in (10, 10000):
        for dtype in ("f32", "f64"):
            one = lambda n=n, d=dtype: [(np.linspace(0.05, 0.95, n)).astype(NUMBERS[d])]  # noqa: E731
            two = lambda n=n, d=dtype: [  # noqa: E731
                np.linspace(0.3, 7.0, n).astype(NUMBERS[d]),
                np.linspace(0.2, 9.0, n).astype(NUMBERS[d]),
            ]
            for name in _SPECIAL:
                call = lambda t, x, name=name: getattr(t.special, name)(x)  # noqa: E731
                yield Row(f"special.{name}", str(n), dtype, one, call)
            for name, pair in _SPECIAL_PAIRS.items():
                yield Row(f"special.{name}", str(n), dtype, two, pair)
            for name in ("erfinv", "i0", "digamma", "ndtri", "gammaln"):
                call = lambda t, x, name=name: getattr(t.special, name)(x)  # noqa: E731
                yield Row(f"special.{name}", str(n), dtype, one, call, grad=True)
        for name, call in _COMPLEX.items():
            arrays = lambda n=n: [normal((n,), "c64")]  # noqa: E731
            yield Row(f"complex.{name}", str(n), "c64", arrays, call)
            yield Row(f"complex.{name}", str(n), "c64", arrays, call, grad=True)


def every_row() -> list[Row]:
    return [*matrix_rows(), *transform_rows(), *pointwise_rows()]


# ---- measuring --------------------------------------------------------------------------------


def side(library: str, row: Row) -> Call:
    """The call of a row in one library."""
    torch = importlib.import_module(library)
    inputs = [torch.tensor(x) for x in row.inputs()]
    if not row.grad:
        return lambda: row.call(torch, *inputs)
    for x in inputs:
        x.requires_grad_(True)
    given = torch.ones_like(row.call(torch, *inputs).detach())

    def both() -> None:
        for x in inputs:
            x.grad = None
        row.call(torch, *inputs).backward(given)

    return both


def measure(row: Row, effort: Effort) -> Found:
    sides = {name: side(name, row) for name in ("lucerne", "torch")}
    best = best_times(sides, effort, shortest=1e-4)
    return Found(row, best["lucerne"], best["torch"])


def line(found: Found) -> str:
    flag = "MISS" if found.ratio > LIMIT else ""
    ours, theirs = amount(found.ours, "s"), amount(found.theirs, "s")
    return f"{found.row.title:<38}{ours:>11}{theirs:>11}{found.ratio:>8.2f}  {flag}"


def write_page(path: str, found: list[Found]) -> None:
    cells = "".join(
        f"<tr><td>{html.escape(x.row.title)}</td><td>{amount(x.ours, 's')}</td>"
        f"<td>{amount(x.theirs, 's')}</td>"
        f"<td class={'MISS' if x.ratio > LIMIT else 'PASS'}>{x.ratio:.2f}</td></tr>"
        for x in found
    )
    head = "<tr><th>op, size, dtype</th><th>Lucerne</th><th>torch</th><th>ratio</th></tr>"
    facts = f"one thread, processor time, least of many; the limit is {LIMIT}"
    text = page("Linear algebra beside PyTorch", facts, f"<table>{head}{cells}</table>")
    Path(path).write_text(text)


def chosen(options: argparse.Namespace) -> list[Row]:
    rows = [r for r in every_row() if re.search(options.rows, r.title)]
    if options.quick:
        rows = [r for r in rows if r.size in (*SMALL, "10", "100x16")]
    return rows


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linalg")
    parser.add_argument("--rows", default="", help="a pattern that row names must match")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.25, help="at most, for each row")
    parser.add_argument("--html")
    options = parser.parse_args(arguments)
    for name in ("lucerne", "torch"):
        importlib.import_module(name).set_num_threads(1)
    effort = Effort(rounds=12, repeats=3, pause=0.0, seconds=options.seconds)
    effort.one_thread = True
    found = []
    for row in chosen(options):
        try:
            found.append(measure(row, effort))
        except Exception as error:  # a row that one side lacks is told and left out
            print(f"{row.title:<38}{type(error).__name__}: {str(error)[:90]}", file=sys.stderr)
    found.sort(key=lambda x: -x.ratio)
    print(f"{'op, size, dtype':<38}{'lucerne':>11}{'torch':>11}{'ratio':>8}")
    for x in found:
        print(line(x))
    over = sum(x.ratio > LIMIT for x in found)
    middle = found[len(found) // 2].ratio if found else 0.0
    print(f"{over} of {len(found)} rows above {LIMIT}; the median ratio is {middle:.2f}")
    if options.html:
        write_page(options.html, found)
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
