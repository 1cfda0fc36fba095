"""The text of a tensor, equal to PyTorch's character for character.

One number decides how all look: whether everything is whole, how far apart the sizes are, and how
wide the widest is.  A large tensor is cut to its edges before any of that, so printing costs the
same for a thousand elements as for a billion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class PrintOptions:
    """What `set_printoptions` sets; `sci_mode` None lets the numbers decide."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors print; what is left out stays, except that `sci_mode` becomes None again.

    `profile` is "default", "short" or "full"; the other arguments override it.
    """
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in {**_PROFILES.get(profile or "", {}), **chosen}.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The present options, ready to be passed back to `set_printoptions`."""
    return asdict(OPTIONS)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """`set_printoptions` for the length of a with block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


@dataclass(frozen=True)
class _Cells:
    """How to write one element, and how wide the widest one is."""

    write: Callable[[Any], str]
    width: int


def _plain_cells(sample: Array) -> _Cells:
    """Integers and booleans: right-aligned."""
    width = max((len(str(v)) for v in sample.ravel().tolist()), default=1)
    return _Cells(lambda value: str(value).rjust(width), width)


def _is_scientific(sizes: Array) -> bool:
    """Exponents are shown when fixed point would lose digits or run wide."""
    if OPTIONS.sci_mode is not None:
        return OPTIONS.sci_mode
    smallest, largest = float(sizes.min()), float(sizes.max())
    return largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4


def _float_cells(sample: Array) -> _Cells:
    """Real numbers: scientific, whole with a bare point, or fixed point."""
    numbers = sample.astype(np.float64).ravel()
    numbers = numbers[np.isfinite(numbers) & (numbers != 0)]
    whole = bool((numbers == np.ceil(numbers)).all())
    if numbers.size and _is_scientific(np.abs(numbers)):
        spec, point = f".{OPTIONS.precision}e", ""
    elif whole:
        spec, point = ".0f", "."
    else:
        spec, point = f".{OPTIONS.precision}f", ""
    # Zeros, infinities and NaNs never widen the column: they may stick out of it.
    width = max((len(format(v, spec) + point) for v in numbers.tolist()), default=1)

    def write(value: float) -> str:
        text = format(value, spec)
        return (text + point if math.isfinite(value) else text).rjust(width)

    return _Cells(write, width)


def _complex_cells(real: _Cells, imag: _Cells) -> _Cells:
    """Real part, sign, imaginary part, j: each part with a style of its own."""

    def write(value: complex) -> str:
        second = (imag.write(value.imag) + "j").lstrip()
        sign = "" if second[0] in "+-" else "+"
        return real.write(value.real) + sign + second

    return _Cells(write, real.width + imag.width + 1)


def _cells(sample: Array) -> _Cells:
    if sample.dtype.kind == "c":
        return _complex_cells(_float_cells(sample.real), _float_cells(sample.imag))
    return _float_cells(sample) if sample.dtype.kind == "f" else _plain_cells(sample)


def _edges(values: Array, edge: int) -> Array:
    """The elements that a summary shows."""
    for axis, size in enumerate(values.shape):
        if size > 2 * edge:
            kept = [*range(edge), *range(size - edge, size)]
            values = np.take(values, kept, axis=axis)
    return values


def _row(values: Array, indent: int, edge: int | None, cells: _Cells) -> str:
    """One innermost row, broken into lines."""
    if edge is None or len(values) <= 2 * edge:
        texts = [cells.write(v) for v in values.tolist()]
    elif edge == 0:
        texts = ["..."]
    else:
        ends = [cells.write(v) for v in _edges(values, edge).tolist()]
        texts = [*ends[:edge], " ...", *ends[edge:]]
    room = (OPTIONS.linewidth - indent) / (cells.width + 2)
    per_line = len(texts) if math.isinf(room) else max(1, math.floor(room))
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nest(values: Array, shape: Sequence[int], indent: int, edge: int | None, cells: _Cells) -> str:
    """Rows in brackets, with a blank line more for every dimension passed. Dimensions of size 1
    may be left out of `values`: NumPy has 64 at most."""
    if not shape:
        return cells.write(values.item())
    if len(shape) == 1:
        return _row(values.reshape(-1), indent, edge, cells)
    size, rest = shape[0], shape[1:]
    rows = values[None] if size == 1 and values.ndim < len(shape) else values
    if edge is None or size <= 2 * edge:
        parts = [_nest(v, rest, indent + 1, edge, cells) for v in rows]
    else:
        head = [_nest(rows[i], rest, indent + 1, edge, cells) for i in range(edge)]
        tail = [_nest(rows[i], rest, indent + 1, edge, cells) for i in range(size - edge, size)]
        parts = [*head, "...", *tail]
    gap = "," + "\n" * (len(shape) - 1) + " " * (indent + 1)
    return "[" + gap.join(parts) + "]"


def contents_text(values: Array, indent: int, shape: Sequence[int] | None = None) -> str:
    """The numbers alone; `indent` is the column of the first bracket."""
    if values.size == 0:
        return "[]"
    edge = OPTIONS.edgeitems if values.size > OPTIONS.threshold else None
    cells = _cells(values if edge is None else _edges(values, edge))
    return _nest(values, values.shape if shape is None else shape, indent, edge, cells)


def add_suffixes(text: str, suffixes: Sequence[str], indent: int) -> str:
    """Append `name=value` remarks and the closing bracket, on a new line where one runs over."""
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def _remarks(
    values: Array, shape: tuple[int, ...], dtype_name: str, is_default_dtype: bool,
    suffixes: Sequence[str],
) -> list[str]:  # fmt: skip
    """Device, size, dtype, then the rest: the order PyTorch keeps."""
    device = [s for s in suffixes if s.startswith("device=")]
    others = [s for s in suffixes if not s.startswith("device=")]
    inferred = values.dtype.kind == "c" or dtype_name in ("torch.int64", "torch.bool")
    if values.size == 0:
        # Without elements nothing hints at the dtype: only the default float goes unsaid.
        show_size, show_dtype = len(shape) != 1, inferred or not is_default_dtype
    else:
        hidden = is_default_dtype or dtype_name in ("torch.int64", "torch.bool")
        show_size, show_dtype = OPTIONS.edgeitems == 0, not hidden
    size = [f"size={shape}"] if show_size else []
    dtype = [f"dtype={dtype_name}"] if show_dtype else []
    return [*device, *size, *dtype, *others]


def tensor_text(
    values: Array,
    *,
    dtype_name: str,
    is_default_dtype: bool,
    prefix: str = "tensor(",
    suffixes: Sequence[str] = (),
    shape: Sequence[int] | None = None,
) -> str:
    """What torch.Tensor's repr shows for these values (of a tensor of `shape`: see `_nest`).

    `is_default_dtype` is true for the default float dtype and its complex partner (int64 and bool
    may be given either way); narrow floats come widened.  `suffixes` holds `device=...`,
    `grad_fn=<...>` or `requires_grad=True`; size and dtype are added here where PyTorch adds them.
    """
    values = np.asarray(values)
    shape = values.shape if shape is None else tuple(shape)
    text = prefix + contents_text(values, len(prefix), shape)
    remarks = _remarks(values, shape, dtype_name, is_default_dtype, suffixes)
    return add_suffixes(text, remarks, len(prefix))
