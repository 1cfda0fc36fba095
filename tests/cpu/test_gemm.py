"""Matrix products of the CPU engine: every way to multiply, against products in float64."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.gemm.choose import product_kernel
from lucerne._src.backends.cpu.gemm.epilogue import ACROSS, Combine
from lucerne._src.backends.cpu.gemm.kinds import KINDS
from lucerne._src.backends.cpu.gemm.prepack import prepack
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.rules.table import RULES
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.ir.meta import make_meta
from tests.cpu.both import HOST, Tensor, tensor

Array = np.ndarray[Any, Any]
TOLERANCE = {
    dt.float32: 1e-6, dt.float64: 3e-15, dt.float16: 1e-3, dt.bfloat16: 8e-3,
    dt.complex64: 2e-6, dt.complex128: 6e-15,
}  # fmt: skip
INTEGERS = [dt.int8, dt.uint8, dt.int16, dt.int32, dt.int64]
LAYOUTS = ("plain", "turned", "sliced", "expanded", "shifted")


def run(kernel: Any, inputs: list[Any], out: Tensor) -> None:
    """Run over scratch and results full of nan: a kernel must not use what it has not written."""
    out._storage.buffer[:] = 0xFF
    if hasattr(kernel, "block"):
        words, space = kernel.block(inputs, [out])
        if kernel.workspace:
            ctypes.memset(words[1 + len(inputs)], 0xFF, kernel.workspace)
        assert kernel.call(ctypes.addressof(words)) == 0
        del space
    else:
        kernel(inputs, [out])
    assert out._storage.intact, "the kernel wrote outside of its result"


def by_rule(name: str, args: list[Any]) -> Tensor:
    op = op_.get(name)
    metas = tuple(None if a is None else a._meta for a in args)
    assert op.meta is not None
    out = Tensor(op.meta(*metas))
    kernel = RULES[name](one_op_graph(op, metas, (out._meta,)).nodes[0])
    assert kernel is not None, "the rule did not take this call"
    run(kernel, [a for a in args if a is not None], out)
    return out


def wide(x: Tensor) -> Array:
    return x.values.astype(np.complex128 if x._meta.dtype.is_complex else np.float64)


def check(found: Tensor, left: Tensor, right: Tensor, added: Tensor | None = None) -> None:
    """Errors are judged by the size of what is added up, integers must be exact."""
    dtype = found._meta.dtype
    if dtype.category == dt.INTEGER:
        whole = np.matmul(left.values.astype(np.int64), right.values.astype(np.int64))
        whole = whole if added is None else whole + added.values.astype(np.int64)
        np.testing.assert_array_equal(found.values, whole.astype(dtype.storage))
        return
    a, b = wide(left), wide(right)
    wanted, size = a @ b, np.abs(a) @ np.abs(b)
    if added is not None:
        wanted, size = wanted + wide(added), size + np.abs(wide(added))
    worst = np.max(np.abs(wide(found) - wanted) / (size + 1e-30), initial=0.0)
    assert worst <= TOLERANCE[dtype], worst


SHAPES = [
    ((1, 1), (1, 1)), ((4, 4), (4, 4)), ((5, 0), (0, 7)), ((0, 3), (3, 4)), ((3, 4), (4, 0)),
    ((17, 33), (33, 9)), ((1, 300), (300, 40)), ((40, 300), (300, 1)), ((1, 70), (70, 600)),
    ((2, 3, 4, 5), (5, 6)), ((2, 3, 4, 5), (3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)),
    ((70, 500), (500, 90)), ((7, 20, 30), (7, 30, 20)), ((1, 20, 30), (7, 30, 20)),
    ((3, 1, 50), (3, 50, 60)), ((3, 60, 50), (3, 50, 1)), ((2, 1000), (1000, 3)),
    ((64, 256), (256, 10)), ((130, 2), (2, 200)), ((8, 130), (130, 100)), ((300, 40), (40, 8)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [*TOLERANCE, *INTEGERS], ids=lambda d: d.name)
def test_products_of_every_layout(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for i, (a, b) in enumerate(SHAPES):
        for first, second in itertools.product(LAYOUTS[:3], LAYOUTS[:3]):
            if dtype not in (dt.float32, dt.bfloat16) and (i + LAYOUTS.index(first)) % 3:
                continue
            left, right = tensor(rng, dtype, a, first), tensor(rng, dtype, b, second)
            check(by_rule("batch_matmul", [left, right]), left, right)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from([*TOLERANCE, dt.int64, dt.int8]),
    st.sampled_from([(), (1,), (3,), (2, 1), (2, 3)]),
    st.sampled_from([(), (1,), (3,), (3,), (2, 3)]),
    st.tuples(st.integers(0, 40), st.integers(0, 70), st.integers(0, 90)),
    st.sampled_from(LAYOUTS),
    st.sampled_from(LAYOUTS),
    st.integers(0, 1000),
)
def test_products_of_any_shape(
    dtype: dt.dtype,
    batch: tuple[int, ...],
    other: tuple[int, ...],
    sizes: tuple[int, int, int],
    first: str,
    second: str,
    seed: int,
) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    left = tensor(rng, dtype, (*batch, m, k), first)
    right = tensor(rng, dtype, (*other, k, n), second)
    check(by_rule("batch_matmul", [left, right]), left, right)


LONG = [((1, 40000), (40000, 1)), ((5, 20001), (20001, 7)), ((30, 700), (700, 2200))]


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16, dt.int8], ids=lambda d: d.name)
def test_long_sums_and_wide_results(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(1)
    for (a, b), first, second in itertools.product(LONG, LAYOUTS[:2], LAYOUTS[:2]):
        left, right = tensor(rng, dtype, a, first), tensor(rng, dtype, b, second)
        check(by_rule("batch_matmul", [left, right]), left, right)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=lambda d: d.name)
def test_results_do_not_depend_on_the_number_of_threads(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(2)
    before = pool.threads()
    try:
        for a, b in [((200, 500), (500, 300)), ((1, 40000), (40000, 1)), ((9, 90, 80), (80, 70))]:
            left, right = tensor(rng, dtype, a), tensor(rng, dtype, b, "turned")
            found = []
            for threads in (1, 2, 4):
                pool.set_threads(threads)
                found.append(by_rule("batch_matmul", [left, right]).bits.copy())
            assert all(np.array_equal(f, found[0]) for f in found)
    finally:
        pool.set_threads(before)


# ---- sums with products -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.int64])
@pytest.mark.parametrize("sizes", [(1, 9, 300), (3, 5, 4), (64, 10, 256), (100, 70, 90), (7, 5, 0)])
def test_linear_is_one_kernel(dtype: dt.dtype, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(3)
    for shape in ((m, k), (2, m, k)):
        x, w, b = (tensor(rng, dtype, s) for s in (shape, (n, k), (n,)))
        turned = Tensor(w._meta.like(shape=(k, n), strides=w._meta.strides[::-1]), w._storage)
        check(by_rule("nn.functional.linear", [x, w, b]), x, turned, b)
        check(by_rule("nn.functional.linear", [x, w, None]), x, turned)


@pytest.mark.parametrize("shape", [(3, 20, 30), (20, 30), (30,), (20, 1), (1, 1), (3, 1, 30)])
def test_added_tensors_of_every_spread(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    for dtype in (dt.float32, dt.bfloat16):
        left, right = tensor(rng, dtype, (3, 20, 40)), tensor(rng, dtype, (3, 40, 30))
        added = tensor(rng, dtype, shape)
        check(by_rule("add_product", [added, left, right]), left, right, added)


def test_second_derivatives_of_linear() -> None:
    rng = np.random.default_rng(5)
    for shape, rows in (((3, 4), (5, 4)), ((2, 3, 4), (5, 4)), ((4,), (5, 4)), ((3, 4), (4,))):
        x, w = (lucerne.tensor(rng.normal(size=s)).requires_grad_() for s in (shape, rows))
        y = lucerne.nn.functional.linear(x, w)
        gx, gw = lucerne.autograd.grad((y * y).sum(), (x, w), create_graph=True)
        second = lucerne.autograd.grad((gx * gx).sum() + (gw * gw).sum(), (x, w))
        plain = x @ w if w.ndim == 1 else x @ w.T
        hx, hw = lucerne.autograd.grad((plain * plain).sum(), (x, w), create_graph=True)
        wanted = lucerne.autograd.grad((hx * hx).sum() + (hw * hw).sum(), (x, w))
        for a, b in zip(second, wanted, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-10)


def _relu(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    return f.select(f.compare("lt", v, 0.0), 0.0, v)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("sizes", [(40, 50, 60), (2, 50, 60), (100, 70, 900), (64, 64, 512)])
def test_epilogues_with_activation(dtype: dt.dtype, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(6)
    for layout in ("plain", "turned"):
        a, b, e = (
            tensor(rng, dtype, shape, how)
            for shape, how in (((m, k), "plain"), ((k, n), layout), ((n,), "plain"))
        )  # fmt: skip
        out = Tensor(make_meta(dtype, (m, n), None, HOST))
        kind = KINDS[dtype.name]
        product = describe(a._meta, b._meta, out._meta, expanded_strides(e._meta, (m, n)))
        assert product is not None
        combine = Combine(ACROSS, activation=_relu, name="relu")
        run(product_kernel(kind, product, combine, "linear"), [a, b, e], out)
        wanted = np.maximum(wide(a) @ wide(b) + wide(e), 0)
        size = np.abs(wide(a)) @ np.abs(wide(b)) + np.abs(wide(e))
        assert np.max(np.abs(wide(out) - wanted) / size) <= TOLERANCE[dtype]


# ---- packed weights, quantised products -------------------------------------------------------


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16, dt.int8])
def test_packed_operands(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(7)
    for (m, n, k), layout in itertools.product(
        [(5, 7, 9), (100, 200, 500), (64, 33, 1000), (30, 2100, 100), (1, 40, 50)], LAYOUTS[:2]
    ):
        a, b = tensor(rng, dtype, (m, k)), tensor(rng, dtype, (k, n), layout)
        packed = prepack(b)
        out = Tensor(make_meta(dtype, (m, n), None, HOST))
        run(packed.product(a._meta, out._meta), [a, packed], out)
        check(out, a, b)


_GUARDED = """
import itertools, lucerne
from lucerne import backends
assert (lucerne.ones(1000).data_ptr() + 4000) % 4096 == 0, "memory is not guarded"
for dtype in (lucerne.float32, lucerne.bfloat16, lucerne.float64, lucerne.int8):
    for m, n, k in [(4, 4, 4), (1, 33, 50), (17, 1, 90), (40, 70, 300), (100, 40, 33), (3, 300, 9)]:
        for first, second in itertools.product((False, True), (False, True)):
            a = lucerne.ones((k, m) if first else (m, k)).to(dtype)
            b = lucerne.ones((n, k) if second else (k, n)).to(dtype)
            c = (a.T if first else a) @ (b.T if second else b)
            wanted = (k + 128) % 256 - 128 if dtype is lucerne.int8 else k
            assert c.float()[0, 0].item() == wanted
            del a, b, c
assert "batch_matmul" not in backends.get("cpu").fallbacks
print("fine")
"""


def test_nothing_outside_of_tensors_is_touched() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _GUARDED],
        env={**os.environ, "LUCERNE_HOST_BACKEND": "cpu", "LUCERNE_GUARD_PAGES": "16"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.strip() == "fine", done.stderr[-2000:] or done.returncode
