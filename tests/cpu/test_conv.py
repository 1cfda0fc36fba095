"""Convolution kernels against the reference rules: engines, layouts and types; guard pages on."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.backends.cpu.conv import choose
from lucerne._src.backends.cpu.conv.amx import fprop_plan, wgrad_plan
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.gemm.kinds import TILE_ROWS
from lucerne._src.backends.cpu.rules.nn import conv as rules
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.reference.rules import conv as oracle
from lucerne._src.base import dtype as dt
from lucerne._src.ops.spatial import convolution
from tests.cpu.guarded import Guest, guest

LAYOUTS = ["planes", "channels", "gaps", "wide"]
TOLERANCE = {
    dt.float32: 2e-5, dt.float64: 1e-12, dt.float16: 2e-3, dt.bfloat16: 1.6e-2,
    dt.complex64: 2e-5, dt.complex128: 1e-12,
}  # fmt: skip


class Case(NamedTuple):
    """Sizes: images, groups, channels and outputs of a group, then space, kernel and settings."""

    n: int
    groups: int
    channels: int
    outputs: int
    space: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def setting(self) -> tuple[Any, ...]:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def out_space(self) -> tuple[int, ...]:
        rows = zip(self.space, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(convolution.output_size(*row) for row in rows)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of input, weight and output."""
        x = (self.n, self.groups * self.channels, *self.space)
        w = (self.groups * self.outputs, self.channels, *self.kernel)
        return x, w, (self.n, self.groups * self.outputs, *self.out_space)


def case(
    n: int, groups: int, channels: int, outputs: int, size: Any, kernel: Any, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, dims: int = 2,
) -> Case:  # fmt: skip
    def each(v: Any) -> tuple[int, ...]:
        return (v,) * dims if isinstance(v, int) else v

    space, taps = each(size), each(kernel)
    return Case(
        n, groups, channels, outputs, space, taps, each(stride), each(padding), each(dilation)
    )


CASES = {
    "3x3": case(2, 1, 20, 40, 17, 3, padding=1),
    "3x3, panels with a tail": case(1, 1, 33, 65, (5, 28), 3, padding=1),
    "3x3 stride 2": case(2, 1, 16, 33, 15, 3, stride=2, padding=1),
    "3x3 stride 2 on one pixel": case(3, 1, 8, 20, 1, 3, stride=2, padding=1),
    "1x1 stride 3 on one pixel": case(5, 1, 20, 8, 1, 1, stride=3),
    "stride 3, padding beyond the kernel": case(1, 1, 5, 8, 13, 2, stride=3, padding=3),
    "small images share tiles": case(5, 1, 40, 34, 4, 3, padding=1),
    "first layer": case(2, 1, 3, 32, 31, 7, stride=2, padding=3),
    "dilated": case(1, 1, 8, 16, 19, 3, padding=2, dilation=2),
    "dilated and strided": case(1, 1, 4, 6, (9, 20), 3, stride=(1, 2), padding=1, dilation=(2, 3)),
    "1x1": case(2, 1, 24, 40, 8, 1),
    "1x1, one image of odd size": case(1, 1, 17, 5, (7, 23), 1),
    "1x1 stride 2": case(2, 1, 16, 24, 9, 1, stride=2),
    "1x1 padded": case(1, 1, 6, 9, 6, 1, padding=1),
    "groups": case(2, 3, 8, 20, 10, 3, padding=1),
    "groups of few": case(2, 8, 4, 4, 9, 3, padding=1),
    "depthwise": case(2, 20, 1, 1, 14, 3, padding=1),
    "depthwise stride 2": case(2, 37, 1, 1, 15, 3, stride=2, padding=1),
    "depthwise dilated": case(1, 16, 1, 1, 12, 5, padding=4, dilation=2),
    "depthwise with a multiplier": case(2, 6, 1, 3, 11, 3, stride=2, padding=1),
    "one channel": case(2, 1, 1, 1, 20, 5, padding=2),
    "to one channel": case(1, 1, 12, 1, 18, 3, padding=1),
    "1-d": case(3, 1, 12, 18, 150, 5, stride=2, padding=2, dims=1),
    "1-d depthwise": case(2, 17, 1, 1, 64, 4, padding=3, dims=1),
    "1-d long": case(1, 1, 4, 33, 400, 9, padding=4, dims=1),
    "3-d": case(1, 1, 6, 20, 6, 3, padding=1, dims=3),
    "3-d strided": case(2, 2, 3, 5, (5, 7, 9), 2, stride=(2, 1, 2), padding=1, dims=3),
    "3-d depthwise": case(1, 9, 1, 1, 6, 3, stride=2, padding=1, dims=3),
}
EMPTY = {
    "no images": case(0, 1, 3, 4, 8, 3),
    "no images, strided": case(0, 2, 3, 4, 8, 3, stride=2),
}


TILED = {
    **{
        name: CASES[name]
        for name in (
            "3x3",
            "3x3, panels with a tail",
            "3x3 stride 2",
            "small images share tiles",
            "stride 3, padding beyond the kernel",
            "dilated and strided",
            "1x1 stride 2",
            "1x1 padded",
            "groups",
            "1-d",
        )
    },
    "rows of 16": case(2, 1, 40, 33, (6, 16), 3, padding=1),
    "rows of 32, stride 2": case(1, 1, 33, 34, (9, 64), 3, stride=2, padding=1),
    "rows of 16, dilated": case(1, 1, 32, 40, (7, 16), 3, padding=2, dilation=2),
    "many channels": case(3, 1, 150, 70, 5, 3, padding=1),
    "very many channels": case(2, 1, 300, 36, 4, 3, padding=1),
    "5x5 stride 3": case(2, 1, 20, 40, (17, 13), 5, stride=3, padding=2),
    "groups of 40": case(2, 2, 40, 36, 8, 3, padding=1),
    "many small images": case(19, 1, 33, 20, 4, 3, padding=1),
    "one pixel": case(40, 1, 33, 20, 1, 1),
    "wide": case(1, 1, 17, 20, (3, 300), 3, padding=1),
}
"""Shapes for AMX tiles: both orders of pixels, all orders of slots, blocks of channels, tails."""


@pytest.fixture
def tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for whatever they can do, however small."""
    if not has_amx():
        pytest.skip("this machine has no AMX tiles")
    for module in (fprop_plan, wgrad_plan):
        monkeypatch.setattr(module, "_LEAST_PRODUCTS", 0)
        monkeypatch.setattr(module, "_MOST_WASTE", 1e9)


def node(metas: list[Any], rest: tuple[Any, ...], out: Any) -> Any:
    args = [None if m is None else SimpleNamespace(meta=m) for m in metas]
    return SimpleNamespace(args=(*args, *rest), outputs=(SimpleNamespace(meta=out),))


def run(op: str, inputs: list[Guest | None], rest: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """The kernel's result."""
    metas = [None if t is None else t._meta for t in inputs]
    meta = getattr(convolution, f"_{op}_meta")(*metas, *rest)
    kernel = getattr(rules, op)(node(metas, rest, meta))
    out = Guest(meta)
    kernel([t for t in inputs if t is not None], [out])
    return out.values.copy()


def expected(op: str, inputs: list[Guest | None], rest: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = getattr(oracle, op)(
        *(None if t is None else t.values for t in inputs), *rest
    )
    return found


def arguments(
    op: str, c: Case, dtype: dt.dtype, layouts: tuple[str, str], bias: bool, seed: int = 0
) -> tuple[list[Guest | None], tuple[Any, ...]]:
    rng = np.random.default_rng(seed)
    (x, w, y), (data, weights) = c.shapes, layouts
    if op == "conv_weight":
        return [guest(rng, y, dtype, data), guest(rng, x, dtype, data)], (c.kernel, *c.setting)
    first, channels = (x, y[1]) if op == "conv" else (y, x[1])
    added = guest(rng, (channels,), dtype, "gaps") if bias else None
    rest = c.setting if op == "conv" else (c.space, *c.setting)
    return [guest(rng, first, dtype, data), guest(rng, w, dtype, weights), added], rest


def assert_agrees(
    op: str, c: Case, dtype: dt.dtype, layouts: tuple[str, str], bias: bool = False
) -> None:
    inputs, rest = arguments(op, c, dtype, layouts, bias)
    got, want = run(op, inputs, rest), expected(op, inputs, rest)
    assert got.shape == want.shape
    if dtype not in TOLERANCE:
        np.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype] * scale)


OPS = ["conv", "conv_input", "conv_weight"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", CASES)
def test_float32_in_both_layouts(op: str, name: str) -> None:
    for i, layout in enumerate(("planes", "channels")):
        assert_agrees(op, CASES[name], dt.float32, (layout, layout), bias=bool(i))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layout", ["gaps", "wide"])
@pytest.mark.parametrize(
    "name", ["3x3", "1x1", "depthwise stride 2", "groups of few", "3-d strided"]
)
def test_other_strides(op: str, name: str, layout: str) -> None:
    assert_agrees(op, CASES[name], dt.float32, (layout, "gaps"), bias=True)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [dt.float64, dt.bfloat16, dt.float16, dt.int64, dt.complex64])
@pytest.mark.parametrize("name", ["3x3 stride 2", "1x1", "depthwise", "groups of few"])
def test_other_types(op: str, name: str, dtype: dt.dtype) -> None:
    for layout in ("planes", "channels"):
        assert_agrees(op, CASES[name], dtype, (layout, layout), bias=True)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", TILED)
def test_tiles(op: str, name: str) -> None:
    """float32 in three parts, bfloat16 in one."""
    for i, layout in enumerate(("planes", "channels")):
        assert_agrees(op, TILED[name], dt.float32, (layout, layout), bias=bool(i))
    assert_agrees(op, TILED[name], dt.bfloat16, ("planes", "channels"), bias=True)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("layout", ["gaps", "wide"])
@pytest.mark.parametrize("name", ["3x3", "rows of 16", "1x1 stride 2"])
def test_tiles_with_other_strides(op: str, name: str, layout: str) -> None:
    assert_agrees(op, TILED[name], dt.float32, (layout, "gaps"), bias=True)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["rows of 16", "many small images", "very many channels"])
def test_tiles_are_as_exact_as_vectors(op: str, name: str) -> None:
    """Three parts lose nothing: errors stay those of a sum in float32."""
    inputs, rest = arguments(op, TILED[name], dt.float32, ("planes", "planes"), False)
    wide = [None if t is None else SimpleNamespace(values=t.values.astype(float)) for t in inputs]
    exact = expected(op, wide, rest)  # type: ignore[arg-type]
    error = np.sqrt(np.mean((run(op, inputs, rest) - exact) ** 2) / np.mean(exact**2))
    assert error < 3e-7


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38])
@pytest.mark.parametrize("which", [0, 1])
def test_numbers_without_parts(
    op: str, value: float, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spare kernel computes everything: infinities spread as they do in float32."""
    inputs, rest = arguments(op, TILED["many channels"], dt.float32, ("planes", "planes"), False)
    changed = inputs[which]
    assert changed is not None
    values = changed.values.copy()
    values.flat[values.size // 2] = value
    changed.fill(values)
    got = run(op, inputs, rest)
    for name in ("tiled_suits", "weight_suits"):
        monkeypatch.setattr(f"{choose.__name__}.{name}", lambda *args: False)
    np.testing.assert_array_equal(got, run(op, inputs, rest))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", EMPTY)
def test_empty(op: str, name: str) -> None:
    assert_agrees(op, EMPTY[name], dt.float32, ("planes", "planes"))


def test_transposed_may_be_larger_than_its_source_reaches() -> None:
    c = CASES["3x3 stride 2"]
    inputs, (_, *setting) = arguments("conv_input", c, dt.float32, ("planes", "planes"), True)
    rest = (tuple(n + 1 for n in c.space), *setting)
    np.testing.assert_allclose(
        run("conv_input", inputs, rest), expected("conv_input", inputs, rest), atol=1e-4
    )


def assert_same_on_all_threads(op: str, c: Case) -> None:
    before = pool.threads()
    found = []
    try:
        for threads in (1, 2, 4):
            pool.set_threads(threads)
            inputs, rest = arguments(op, c, dt.float32, ("planes", "planes"), False)
            found.append(run(op, inputs, rest))
    finally:
        pool.set_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "name", ["3x3", "1x1", "depthwise", "groups of few", "small images share tiles"]
)
def test_threads_do_not_change_a_bit(op: str, name: str) -> None:
    assert_same_on_all_threads(op, CASES[name])


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", ["rows of 16", "many small images", "very many channels"])
def test_threads_do_not_change_a_bit_of_tiles(op: str, name: str) -> None:
    assert_same_on_all_threads(op, TILED[name])


def test_code_does_not_depend_on_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another shape of the same kind compiles nothing (whole tiles, of this machine's rows)."""
    written: list[Any] = []
    for size in (2 * TILE_ROWS, 4 * TILE_ROWS, 3 * TILE_ROWS):
        c = case(1, 1, 16, 32, (6, size), 3, padding=1)
        assert_agrees("conv", c, dt.float32, ("planes", "planes"))
        if not written:
            monkeypatch.setattr("lucerne._src.backends.cpu.emit.builder.Module.function", _refuse)
            written.append(c)


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a kernel was written again")


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    dims = draw(st.integers(1, 3))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kernel, stride, dilation, padding = each(1, 3), each(1, 3), each(1, 2), each(0, 2)
    room = each(0, 8)
    space = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + r
        for k, d, p, r in zip(kernel, dilation, padding, room, strict=True)
    )
    groups, channels, outputs = draw(
        st.sampled_from([(1, 3, 5), (1, 17, 33), (2, 4, 3), (5, 1, 1)])
    )
    return Case(
        draw(st.integers(1, 3)), groups, channels, outputs, space, kernel, stride, padding, dilation
    )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(cases(), st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
def test_the_three_are_one_bilinear_form(c: Case, data: str, weights: str) -> None:
    """<conv(x, w), g> = <x, conv_input(g, w)> = <w, conv_weight(g, x)>."""
    rng = np.random.default_rng(1)
    shape_x, shape_w, shape_y = c.shapes
    x, g = guest(rng, shape_x, dt.float64, data), guest(rng, shape_y, dt.float64, data)
    w = guest(rng, shape_w, dt.float64, weights)
    forms = [
        (run("conv", [x, w, None], c.setting) * g.values).sum(),
        (run("conv_input", [g, w, None], (c.space, *c.setting)) * x.values).sum(),
        (run("conv_weight", [g, x], (c.kernel, *c.setting)) * w.values).sum(),
    ]
    np.testing.assert_allclose(forms, forms[0], rtol=1e-9, atol=1e-9)


ENGINES = [
    ("3x3", "planes", "plan_gather"),
    ("3x3", "channels", "plan_gather"),
    ("1x1", "planes", "pointwise.plan_pointwise"),
    ("1x1", "channels", "plan_gather"),
    ("depthwise", "channels", "channels_last.plan_channels"),
    ("depthwise", "planes", "planes.plan_planes"),
    ("groups of few", "planes", "planes.plan_planes"),
    ("groups of few", "channels", "plan_gather"),
]


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("op", OPS)
def test_choice_of_tiles(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = "plan_tiled_weight" if op == "conv_weight" else "plan_tiled"

    def chosen(*args: Any) -> Any:
        raise LookupError(engine)

    inputs, rest = arguments(op, TILED["rows of 16"], dt.float32, ("planes", "planes"), False)
    monkeypatch.setattr(f"{choose.__name__}.{engine}", chosen)
    with pytest.raises(LookupError, match=engine):
        run(op, inputs, rest)


@pytest.mark.parametrize(("name", "layout", "engine"), ENGINES)
def test_choice_of_engine(
    name: str, layout: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows above are worth little if one engine took them all."""

    def chosen(*args: Any) -> Any:
        raise LookupError(engine)

    inputs, rest = arguments("conv", CASES[name], dt.float32, (layout, "planes"), False)
    monkeypatch.setattr(f"{choose.__name__}.{engine}", chosen)
    with pytest.raises(LookupError, match=engine):
        run("conv", inputs, rest)
