"""Attention as one kernel, forward and backward, against the formula in float64."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.backends.cpu.rules.table import RULES
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.ir.meta import TensorMeta, make_meta
from tests.cpu.both import HOST, Tensor

Array = np.ndarray[Any, Any]
TOLERANCE = {dt.float32: 4e-6, dt.bfloat16: 2e-2, dt.float16: 3e-3}
ORDERS = {"plain": (0, 1, 2, 3), "heads inside": (0, 2, 1, 3), "turned": (0, 1, 3, 2)}


def tensor(values: Array, dtype: dt.dtype, layout: str = "plain") -> Tensor:
    """Values in memory: dimensions in some order, or with gaps between all elements."""
    if layout == "gaps":
        strides = tuple(3 * s for s in sh.contiguous_strides(values.shape))
    else:
        order = ORDERS[layout]
        inner = sh.contiguous_strides([values.shape[d] for d in order])
        strides = tuple(inner[order.index(d)] for d in range(4))
    made = Tensor(make_meta(dtype, values.shape, strides, HOST))
    made._storage.buffer[:] = 0xFF  # nan, wherever something is read that should not be
    made.bits[...] = codec.narrow(values.astype(dtype.compute.storage), dtype)
    return made


def run(name: str, args: list[Any]) -> list[Tensor]:
    """The op by the engine's rule; what it writes is watched."""
    op = op_.get(name)
    metas = tuple(a._meta if isinstance(a, Tensor) else a for a in args)
    assert op.meta is not None
    out_metas: tuple[TensorMeta, ...] = op.meta(*metas)
    kernel = RULES[name](one_op_graph(op, metas, out_metas).nodes[0])
    assert kernel is not None, "the rule did not take this call"
    outs = [Tensor(m) for m in out_metas]
    _run_over_garbage(kernel, [a for a in args if isinstance(a, Tensor)], outs)
    assert all(o._storage.intact for o in outs)
    return outs


def _run_over_garbage(kernel: Any, inputs: list[Tensor], outs: list[Tensor]) -> None:
    """Run with scratch full of nan: a kernel must not use what it has not written."""
    words, space = kernel.block(inputs, outs)
    ctypes.memset(words[len(outs) + len(inputs)], 0xFF, kernel.workspace)
    assert kernel.call(ctypes.addressof(words)) == 0
    del space


class Problem:
    """Random operands and what should come out."""

    def __init__(
        self,
        q_shape: tuple[int, int, int, int],
        keys: int,
        *,
        value_width: int = 0,
        key_heads: int = 0,
        causal: bool = False,
        mask: tuple[str, tuple[int, ...]] | None = None,
        dtype: dt.dtype = dt.float32,
        layout: str = "plain",
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        b, h, t, d = q_shape
        heads, wide = key_heads or h, value_width or d
        shapes = (q_shape, (b, heads, keys, d), (b, heads, keys, wide), (b, h, t, wide))
        self.tensors = [tensor(rng.normal(size=s), dtype, layout) for s in shapes]
        self.dtype, self.causal, self.scale = dtype, causal, d**-0.5
        self.mask = None if mask is None else self._mask(rng, *mask)

    def _mask(self, rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Tensor:
        if kind == "bool":
            return tensor(rng.random(shape) > 0.3, dt.bool_)
        if kind == "nothing":
            return tensor(np.zeros(shape, bool), dt.bool_)
        values = rng.normal(size=shape)
        values[rng.random(shape) < 0.2] = -np.inf
        return tensor(values, dt.float32)

    def by_kernel(self) -> list[Array]:
        q, k, v, g = self.tensors
        out, stats = run("flash_attention", [q, k, v, self.mask, self.causal, self.scale])
        grads = run(
            "flash_attention_backward",
            [q, k, v, self.mask, g, out, stats, self.causal, self.scale],
        )
        return [x.values.astype(np.float64) for x in (out, *grads)]

    def by_formula(self) -> list[Array]:
        q, k, v, g = (x.values.astype(np.float64) for x in self.tensors)
        sharing = q.shape[1] // k.shape[1]
        wide_k, wide_v = (np.repeat(x, sharing, 1) for x in (k, v))
        scores = q @ wide_k.swapaxes(-1, -2) * self.scale
        if self.causal:
            scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
        if self.mask is not None:
            m = self.mask.values
            scores = np.where(m, scores, -np.inf) if m.dtype == bool else scores + m
        top = scores.max(-1, keepdims=True)
        e = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = e.sum(-1, keepdims=True)
        weights = e / np.where(total == 0, 1, total)
        by_weight = g @ wide_v.swapaxes(-1, -2)
        slopes = weights * (by_weight - (by_weight * weights).sum(-1, keepdims=True)) * self.scale
        by_key, by_value = slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ g
        folded = [x.reshape(*k.shape[:2], sharing, *x.shape[2:]).sum(2) for x in (by_key, by_value)]
        return [weights @ wide_v, slopes @ wide_k, *folded]

    def check(self) -> None:
        with np.errstate(all="ignore"):
            wanted, found = self.by_formula(), self.by_kernel()
        for w, f in zip(wanted, found, strict=True):
            np.testing.assert_allclose(
                f, w, rtol=0, atol=TOLERANCE[self.dtype] * max(1, np.abs(w).max())
            )


ROWS = {
    "one of everything": lambda: Problem((1, 1, 1, 1), 1),
    "a tile": lambda: Problem((1, 2, 32, 64), 32),
    "several blocks": lambda: Problem((1, 2, 150, 64), 300),
    "causal": lambda: Problem((2, 2, 150, 64), 150, causal=True),
    "causal, fewer keys": lambda: Problem((1, 2, 300, 32), 130, causal=True),
    "causal, more keys": lambda: Problem((1, 1, 130, 32), 300, causal=True),
    "odd widths": lambda: Problem((2, 1, 33, 7), 41, value_width=19),
    "width 80": lambda: Problem((1, 1, 20, 80), 30),
    "width 96": lambda: Problem((1, 1, 20, 96), 30, value_width=128),
    "width 200": lambda: Problem((1, 1, 40, 200), 30),
    "bool mask": lambda: Problem((2, 2, 70, 32), 70, mask=("bool", (2, 1, 70, 70))),
    "mask of keys": lambda: Problem((2, 2, 40, 16), 170, mask=("bool", (2, 1, 1, 170))),
    "mask of queries": lambda: Problem((1, 2, 40, 16), 20, mask=("bool", (1, 2, 40, 1))),
    "float mask": lambda: Problem((2, 2, 40, 16), 170, mask=("float", (1, 2, 40, 170))),
    "mask and causal": lambda: Problem(
        (1, 2, 60, 16), 60, mask=("float", (1, 1, 60, 60)), causal=True
    ),
    "all hidden": lambda: Problem((1, 1, 20, 16), 20, mask=("nothing", (1, 1, 20, 20))),
    "shared heads": lambda: Problem((2, 6, 40, 32), 50, key_heads=2),
    "one shared head": lambda: Problem((1, 4, 40, 32), 50, key_heads=1, causal=True),
    "heads inside": lambda: Problem((2, 3, 40, 64), 50, layout="heads inside"),
    "turned": lambda: Problem((1, 2, 20, 24), 30, layout="turned"),
    "gaps": lambda: Problem((1, 2, 20, 24), 30, layout="gaps"),
    "bfloat16": lambda: Problem((1, 2, 70, 64), 90, dtype=dt.bfloat16, causal=True),
    "bfloat16, odd": lambda: Problem((1, 2, 21, 33), 19, dtype=dt.bfloat16),
    "bfloat16, long": lambda: Problem((1, 2, 150, 64), 300, dtype=dt.bfloat16),
    "bfloat16, causal, more keys": lambda: Problem(
        (1, 2, 42, 16), 300, dtype=dt.bfloat16, causal=True, value_width=40
    ),
    "bfloat16 with a mask": lambda: Problem(
        (2, 2, 70, 32), 150, dtype=dt.bfloat16, mask=("float", (2, 1, 70, 150)), key_heads=1
    ),
    "bfloat16, all hidden": lambda: Problem(
        (1, 1, 20, 16), 20, dtype=dt.bfloat16, mask=("nothing", (1, 1, 20, 20))
    ),
    "bfloat16, heads inside": lambda: Problem(
        (2, 3, 40, 64), 50, dtype=dt.bfloat16, layout="heads inside"
    ),
    "bfloat16, turned": lambda: Problem((1, 2, 20, 24), 30, dtype=dt.bfloat16, layout="turned"),
    "float16": lambda: Problem((1, 2, 40, 40), 50, dtype=dt.float16),
    "one query": lambda: Problem((2, 3, 1, 64), 250),
    "one query, odd": lambda: Problem((1, 2, 1, 37), 33, value_width=100),
    "one query, a mask of keys": lambda: Problem((1, 6, 1, 64), 256, mask=("bool", (1, 1, 1, 256))),
    "one query, a float mask": lambda: Problem((2, 2, 1, 16), 17, mask=("float", (2, 1, 1, 17))),
    "one query, all hidden": lambda: Problem((1, 1, 1, 16), 20, mask=("nothing", (1, 1, 1, 20))),
    "one query, shared heads": lambda: Problem((2, 6, 1, 32), 50, key_heads=2),
    "one query, heads inside": lambda: Problem((2, 3, 1, 24), 50, layout="heads inside"),
    "one query, bfloat16": lambda: Problem((1, 2, 1, 70), 90, dtype=dt.bfloat16),
    "one query, float16": lambda: Problem((1, 2, 1, 5), 3, dtype=dt.float16),
}


@pytest.mark.parametrize("name", ROWS)
def test_kernels_agree_with_the_formula(name: str) -> None:
    ROWS[name]().check()


@settings(max_examples=25)
@example((1, 2, 42, 8), 160, True, "plain", False, dt.float32)  # fewer queries than keys: rows
@example((1, 2, 42, 8), 160, True, "plain", False, dt.bfloat16)  # that are never copied
@given(
    sizes=st.tuples(*[st.integers(1, n) for n in (2, 3, 80)], st.sampled_from([8, 24])),
    keys=st.integers(1, 160),
    causal=st.booleans(),
    layout=st.sampled_from(["plain", "heads inside", "gaps"]),
    masked=st.booleans(),
    dtype=st.sampled_from([dt.float32, dt.bfloat16]),
)
def test_any_shape(
    sizes: tuple[int, int, int, int],
    keys: int,
    causal: bool,
    layout: str,
    masked: bool,
    dtype: dt.dtype,
) -> None:
    mask = ("float", (1, sizes[1], sizes[2], keys)) if masked else None
    Problem(sizes, keys, causal=causal, layout=layout, mask=mask, dtype=dtype).check()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    before = pool.threads()
    found = []
    try:
        for count in (1, 2, 4):
            pool.set_threads(count)
            found.append(Problem((2, 4, 200, 32), 200, causal=True, key_heads=2).by_kernel())
    finally:
        pool.set_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_nan_and_infinity_reach_the_result() -> None:
    problem = Problem((1, 1, 40, 16), 40)
    problem.tensors[0].bits[0, 0, 3, 5] = np.nan
    problem.tensors[0].bits[0, 0, 7, 0] = np.inf
    out = problem.by_kernel()[0]
    assert np.isnan(out[0, 0, 3]).all()
    assert np.isnan(out[0, 0, 7]).all()
    assert np.isfinite(np.delete(out, (3, 7), 2)).all()


def test_hiding_by_the_least_number_is_not_hiding_by_infinity() -> None:
    """A row whose keys all carry the least float is a plain mean, as in torch."""
    problem = Problem((1, 1, 5, 16), 20, mask=("bool", (1, 1, 5, 20)))
    least = np.full((1, 1, 5, 20), np.finfo(np.float32).min)
    problem.mask = tensor(least, dt.float32)
    out = problem.by_kernel()[0]
    mean = problem.tensors[2].values.mean(2, keepdims=True)
    np.testing.assert_allclose(out, np.broadcast_to(mean, out.shape), atol=1e-6)


REFUSED = {
    "float64": (dt.float64, (1, 1, 4, 8), (1, 1, 4, 8)),
    "broadcast batch": (dt.float32, (2, 1, 4, 8), (1, 1, 4, 8)),
    "too wide": (dt.float32, (1, 1, 4, 600), (1, 1, 4, 600)),
    "empty": (dt.float32, (1, 1, 0, 8), (1, 1, 4, 8)),
    "heads that don't divide": (dt.float32, (1, 3, 4, 8), (1, 2, 4, 8)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_rule_leaves_to_the_formula(name: str) -> None:
    dtype, q_shape, k_shape = REFUSED[name]
    q, k = (make_meta(dtype, s, None, HOST) for s in (q_shape, k_shape))
    op = op_.get("flash_attention")
    assert op.meta is not None
    metas = (q, k, k, None, False, 1.0)
    node = one_op_graph(op, metas, op.meta(*metas)).nodes[0]
    assert RULES["flash_attention"](node) is None


def _leaves(*shapes: tuple[int, ...]) -> list[Any]:
    lucerne.manual_seed(0)
    return [lucerne.randn(*s, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("masked", [False, True])
def test_first_and_second_derivatives_are_those_of_the_plain_formula(masked: bool) -> None:
    """The fused op has its own backward, and a backward of that: both must be the formula's."""
    attend, flash = op_.get("attend"), op_.get("flash_attention")
    q, k, v = _leaves((2, 5, 8), (2, 7, 8), (2, 7, 8))
    mask = lucerne.randn(5, 7) if masked else None
    found = []
    for out in (attend(q, k, v, mask, 0.0, True, 0.3), flash(q, k, v, mask, True, 0.3)[0]):
        first = lucerne.autograd.grad(out.sin().sum(), [q, k, v], create_graph=True)
        second = lucerne.autograd.grad(sum((x * x).sum() for x in first), [q, k, v])
        found.append([x.detach().numpy() for x in (out, *first, *second)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_shared_heads_through_the_public_function() -> None:
    q, k, v = _leaves((1, 4, 5, 8), (1, 2, 6, 8), (1, 2, 6, 8))
    attend = lucerne.nn.functional.scaled_dot_product_attention
    wide_k, wide_v = (x.repeat_interleave(2, 1) for x in (k, v))
    found = [attend(q, k, v, enable_gqa=True), attend(q, wide_k, wide_v)]
    grads = [lucerne.autograd.grad(o.sin().sum(), [q, k, v]) for o in found]
    for a, b in zip((found[0], *grads[0]), (found[1], *grads[1]), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
