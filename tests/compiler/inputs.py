"""Arguments of a random program: the same numbers as arrays and as tensors, laid out alike."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.compiler.program import Input, Program

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """A tensor of `shape` as the `text` view of a base of another shape."""

    base: Callable[[tuple[int, ...]], tuple[int, ...]]
    text: Callable[[tuple[int, ...]], str]
    array: Callable[[Array, tuple[int, ...]], Array]
    dims: int = 0


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _expand_text(shape: tuple[int, ...]) -> str:
    return f".expand({', '.join(map(str, shape))})"


LAYOUTS = {
    "contiguous": Layout(lambda s: s, lambda s: "", lambda a, s: a),
    "transposed": Layout(
        _turned, lambda s: ".transpose(-1, -2)", lambda a, s: a.swapaxes(-1, -2), 2
    ),
    "stepped": Layout(
        lambda s: (*s[:-1], 2 * s[-1]), lambda s: "[..., ::2]", lambda a, s: a[..., ::2], 1
    ),
    "rows": Layout(
        lambda s: (2 * s[0], *s[1:]), lambda s: "[1::2]", lambda a, s: a[1::2], 1
    ),
    "offset": Layout(lambda s: (s[0] + 1, *s[1:]), lambda s: "[1:]", lambda a, s: a[1:], 1),
    "inner": Layout(
        lambda s: (*s[:-1], s[-1] + 2), lambda s: "[..., 1:-1]", lambda a, s: a[..., 1:-1], 1
    ),
    "expanded": Layout(
        lambda s: (1, *s[1:]), _expand_text, lambda a, s: np.broadcast_to(a, s), 1
    ),
    "permuted": Layout(
        lambda s: (s[-1], *s[:-1]),
        lambda s: f".permute({', '.join(map(str, [*range(1, len(s)), 0]))})",
        lambda a, s: a.transpose(*range(1, len(s)), 0),
        3,
    ),
}  # fmt: skip

# Views of an earlier input, as (text, the same on an array).
ALIASES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "same": ("", lambda a: a),
    "tail": ("[1:]", lambda a: a[1:]),
    "turned": (".transpose(0, -1)", lambda a: a.swapaxes(0, -1)),
    "view": ("[...]", lambda a: a[...]),
}


def rounded(x: Array, dtype: str) -> Array:
    """float64 numbers as they are after a conversion to a dtype and back."""
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
            near = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            out = near.astype(np.uint32).view(np.float32).astype(np.float64)
            return np.where(np.isnan(x), np.nan, out).reshape(x.shape)
        if dtype in ("float16", "float32"):
            return x.astype(dtype).astype(np.float64)
    return x


def drawn(spec: Input, shape: tuple[int, ...], variant: int, seed: int) -> Array:
    """The numbers of a base: float64, int64 or bool."""
    r = np.random.default_rng([seed, variant, zlib.crc32(spec.name.encode())])
    if spec.dtype == "bool":
        return r.random(shape) < 0.5
    if spec.values.startswith("index"):
        return r.integers(0, int(spec.values.split(":")[1]), shape)
    if spec.dtype in ("int64", "int32"):
        return r.integers(-5, 6, shape)
    x = np.clip(r.standard_normal(shape), -3, 3)
    if spec.values == "grid":
        x = np.round(x * 2) / 2
    elif spec.values == "positive":
        x = np.abs(x) + 0.5
    elif spec.values == "special":
        odd = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0])
        x = np.where(r.random(shape) < 0.3, r.choice(odd, shape), x)
    return rounded(np.asarray(x), spec.dtype)


@dataclass
class Argument:
    """One argument: `value` is handed over, `base` is all of the memory behind it."""

    spec: Input
    value: Any
    base: Any


def arrays(program: Program, variant: int = 0) -> dict[str, Argument]:
    """The arguments for the NumPy interpreter."""
    made: dict[str, Argument] = {}
    for spec in program.inputs:
        if spec.dtype == "number":
            made[spec.name] = Argument(spec, number(spec, variant), None)
        elif spec.of:
            given = made[spec.of]
            value = ALIASES[spec.layout][1](given.value)
            made[spec.name] = Argument(spec, value, given.base)
        else:
            layout = LAYOUTS[spec.layout]
            base = drawn(spec, layout.base(spec.shape), variant, program.seed)
            made[spec.name] = Argument(spec, layout.array(base, spec.shape), base)
    return made


def number(spec: Input, variant: int) -> Any:
    """Another value for each variant, of the same type."""
    return spec.number + variant if isinstance(spec.number, int) else spec.number + variant * 0.25


def tensors(program: Program, module: Any, variant: int = 0, wide: bool = False) -> list[Argument]:
    """The arguments for a torch; `wide` makes every float64."""
    made: dict[str, Argument] = {}
    for spec in program.inputs:
        if spec.dtype == "number":
            made[spec.name] = Argument(spec, number(spec, variant), None)
        elif spec.of:
            given = made[spec.of]
            text = ALIASES[spec.layout][0]
            value = eval(f"base{text}", {"base": given.value}) if text else given.value
            made[spec.name] = Argument(spec, value, given.base)
        else:
            made[spec.name] = _tensor(spec, program.seed, module, variant, wide)
    return list(made.values())


def _tensor(spec: Input, seed: int, module: Any, variant: int, wide: bool) -> Argument:
    layout = LAYOUTS[spec.layout]
    a = drawn(spec, layout.base(spec.shape), variant, seed)
    if a.dtype == np.float64:
        narrow = "float32" if spec.dtype == "bfloat16" else spec.dtype
        base = module.from_numpy(np.array(a, dtype="float64" if wide else narrow))
        if spec.dtype == "bfloat16" and not wide:
            base = base.to(module.bfloat16)
    else:
        base = module.from_numpy(np.array(a, dtype=spec.dtype))
    value = eval(f"base{layout.text(spec.shape)}", {"base": base})
    if spec.requires_grad:
        value = value.detach().requires_grad_()
    return Argument(spec, value, base)


def described(program: Program, variant: int = 0) -> str:
    """The arguments as lines of Python."""
    lines = []
    for spec in program.inputs:
        if spec.dtype == "number":
            text = repr(number(spec, variant))
        elif spec.of:
            text = spec.of + ALIASES[spec.layout][0]
        else:
            layout = LAYOUTS[spec.layout]
            a = drawn(spec, layout.base(spec.shape), variant, program.seed)
            text = f"torch.tensor({_listed(a)}, dtype=torch.{spec.dtype})"
            text += f".reshape({a.shape})" * (a.size == 0) + layout.text(spec.shape)
            if spec.requires_grad:
                text += ".detach().requires_grad_()"
        lines.append(f"{spec.name} = {text}")
    return "\n".join(lines)


def _listed(a: Array) -> str:
    """The numbers in as few digits as tell them apart."""
    if a.dtype == np.float64:
        short = np.vectorize(lambda x: float(np.format_float_positional(x, 6)), otypes=[float])
        a = short(a) if a.size and np.isfinite(a).all() else a
    return str(a.tolist()).replace("nan", "float('nan')").replace("inf", "float('inf')")
