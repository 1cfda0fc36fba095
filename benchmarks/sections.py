"""The cases: each written once, with torch's names, and run against both modules."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Make, Section, one
from benchmarks.models import training_steps
from benchmarks.modules import module_cases
from benchmarks.timing import Call

GEMM_SHAPES = (
    ("512^3 A*B", 512, 512, 512, "nn"),
    ("1024^3 A*B", 1024, 1024, 1024, "nn"),
    ("2048^3 A*B", 2048, 2048, 2048, "nn"),
    ("1024x1152x384 A*B", 1024, 1152, 384, "nn"),
    ("1024x1152x384 A*W^T", 1024, 1152, 384, "nt"),
    ("1024x1536x384 A*B", 1024, 1536, 384, "nn"),
    ("1024x1536x384 A*W^T", 1024, 1536, 384, "nt"),
    ("1024x384x1536 A*W^T", 1024, 384, 1536, "nt"),
    ("1024x8192x384 A*W^T", 1024, 8192, 384, "nt"),
    ("1024x384x8192 A*B (dX)", 1024, 384, 8192, "nn"),
    ("1152x384x1024 A^T*B (dW)", 1152, 384, 1024, "tn"),
    ("8192x384x1024 A^T*B (dW)", 8192, 384, 1024, "tn"),
    ("64x256x784 A*B", 64, 256, 784, "nn"),
    ("64x256x784 A*W^T", 64, 256, 784, "nt"),
    ("256x784x64 A^T*B", 256, 784, 64, "tn"),
    ("64x10x256 A*W^T", 64, 10, 256, "nt"),
)
"""M x N x K, and which operands are stored transposed."""


def data(m: Any, *shape: int, scale: float = 1.0, seed: int = 0) -> Any:
    """The same normal numbers for every module, in the module's own memory."""
    drawn = np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)
    return m.from_numpy(drawn).clone()


def without_grad(m: Any, fn: Callable[[], Any]) -> Call:
    def call() -> Any:
        with m.no_grad():
            return fn()

    return call


# ---- matrix products ---------------------------------------------------------------------------


def _product(rows: int, columns: int, inner: int, form: str, dtype: str) -> Make:
    def make(m: Any) -> Call:
        kind = getattr(m, dtype)
        a = data(m, *((inner, rows) if form[0] == "t" else (rows, inner))).to(kind)
        b = data(m, *((columns, inner) if form[1] == "t" else (inner, columns)), seed=1).to(kind)
        a, b = a.t() if form[0] == "t" else a, b.t() if form[1] == "t" else b
        return lambda: m.mm(a, b)

    return make


def _with_weight(rows: int, columns: int, inner: int, form: str, dtype: str) -> Make:
    """A product with a parameter: the same in every call, so an engine may keep it packed."""

    def make(m: Any) -> Call:
        kind = getattr(m, dtype)
        x = data(m, rows, inner).to(kind)
        w = data(m, columns, inner, seed=1).to(kind).requires_grad_()
        return without_grad(m, lambda: m.nn.functional.linear(x, w))

    return make


def _gemm(dtype: str, limit: float, packed: bool) -> list[Case]:
    if packed:
        shapes = [s for s in GEMM_SHAPES if s[4] == "nt" and s[2] > 10]
        maker = _with_weight
    else:
        shapes, maker = list(GEMM_SHAPES), _product
    if dtype == "bfloat16":
        shapes = [s for s in shapes if s[2] > 10]
    return [
        Case(name, one(maker(r, c, k, form, dtype)), limit, 2.0 * r * c * k, long=r * c * k > 3e8)
        for name, r, c, k, form in shapes
    ]


# ---- convolution -------------------------------------------------------------------------------

CONVOLUTIONS = (
    ("3x3 b16 64->64 56 s1", 16, 64, 64, 56, 3, 1, 1, 1),
    ("3x3 b16 64->64 56 s2", 16, 64, 64, 56, 3, 2, 1, 1),
    ("3x3 b32 512->512 4", 32, 512, 512, 4, 3, 1, 1, 1),
    ("1x1 b16 64->256 56", 16, 64, 256, 56, 1, 1, 0, 1),
    ("7x7 b16 3->64 224 s2", 16, 3, 64, 224, 7, 2, 3, 1),
    ("3x3 b16 depthwise 128 56", 16, 128, 128, 56, 3, 1, 1, 128),
)
"""Name, batch, channels in, out, size, kernel, stride, padding, groups."""


def _convolution(shape: tuple[Any, ...], layout: str, backward: bool) -> Make:
    _, batch, c_in, c_out, size, k, stride, padding, groups = shape

    def make(m: Any) -> Call:
        F = m.nn.functional
        x = data(m, batch, c_in, size, size)
        w = data(m, c_out, c_in // groups, k, k, scale=0.05, seed=1)
        if layout == "NHWC":
            x, w = (t.contiguous(memory_format=m.channels_last) for t in (x, w))

        def run(a: Any, b: Any) -> Any:
            return F.conv2d(a, b, None, stride, padding, 1, groups)

        if not backward:
            w.requires_grad_()
            return without_grad(m, lambda: run(x, w))
        x.requires_grad_()
        w.requires_grad_()
        y = run(x, w)
        g = m.ones_like(y)
        return lambda: m.autograd.grad(y, [x, w], g, retain_graph=True)

    return make


def _convolutions(backward: bool) -> list[Case]:
    return [
        Case(
            f"{s[0]} {'backward' if backward else 'forward'}",
            {layout: _convolution(s, layout, backward) for layout in ("NCHW", "NHWC")},
            1.1 if backward else 1.0,
            (2 if backward else 1)
            * 2.0 * s[1] * s[3] * s[2] / s[8] * (s[4] // s[6]) ** 2 * s[5] ** 2,
            long=s[4] > 4,
        )
        for s in CONVOLUTIONS
    ]  # fmt: skip


# ---- attention ---------------------------------------------------------------------------------


def _attention(
    shape: tuple[int, ...], causal: bool, backward: bool, dtype: str = "float32"
) -> Make:
    def make(m: Any) -> Call:
        attend = m.nn.functional.scaled_dot_product_attention
        q, k, v = (data(m, *shape, seed=s).to(getattr(m, dtype)) for s in range(3))
        if not backward:
            return without_grad(m, lambda: attend(q, k, v, is_causal=causal))
        leaves = [t.requires_grad_() for t in (q, k, v)]
        g = data(m, *shape, seed=3).to(getattr(m, dtype))
        return lambda: m.autograd.grad(attend(q, k, v, is_causal=causal), leaves, g)

    return make


def _attentions() -> list[Case]:
    rows = (
        ((8, 12, 512, 64), True, "float32"),
        ((8, 12, 512, 64), False, "float32"),
        ((4, 8, 256, 96), True, "float32"),
        ((2, 4, 1024, 128), True, "float32"),
        ((64, 4, 64, 32), False, "float32"),
        ((8, 12, 512, 64), True, "bfloat16"),
    )
    cases = []
    for shape, causal, dtype in rows:
        b, h, t, d = shape
        flops = 4.0 * b * h * t * t * d * (0.5 if causal else 1.0)
        label = f"{'x'.join(map(str, shape))} {'causal ' if causal else ''}{dtype}"
        for backward in (False, True):
            cases.append(
                Case(
                    f"{label} {'forward+backward' if backward else 'forward'}",
                    one(_attention(shape, causal, backward, dtype)),
                    0.9,
                    flops * (3.5 if backward else 1.0),
                    long=t > 256 or dtype != "float32",
                )
            )
    return cases


# ---- rows --------------------------------------------------------------------------------------


def _row_ops() -> list[Case]:
    def softmax(m: Any) -> Call:
        x = data(m, 1024, 1024)
        return lambda: m.softmax(x, -1)

    def layer_norm(m: Any) -> Call:
        x, w, b = data(m, 1024, 384), data(m, 384, seed=1), data(m, 384, seed=2)
        return lambda: m.nn.functional.layer_norm(x, (384,), w, b)

    def gelu(m: Any) -> Call:
        x = data(m, 1024, 1536)
        return lambda: m.nn.functional.gelu(x)

    def cross_entropy(m: Any) -> Call:
        x, target = data(m, 1024, 8192), m.arange(1024)
        return lambda: m.nn.functional.cross_entropy(x, target)

    def adamw(m: Any) -> Call:
        """The op behind `optim.AdamW(fused=True)`, on both sides."""
        p, g, first, second = ([m.zeros(10_000_000)] for _ in range(4))
        g[0].fill_(0.01)
        steps = [m.tensor(1.0)]
        rates = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 1e-2, "eps": 1e-8}
        flags = {"amsgrad": False, "maximize": False, "grad_scale": None, "found_inf": None}
        return lambda: m._fused_adamw_(p, g, first, second, [], steps, **rates, **flags)

    return [
        Case("softmax 1024x1024", one(softmax), 0.8),
        Case("layer_norm 1024x384", one(layer_norm), 0.7),
        Case("gelu 1024x1536", one(gelu), 0.9),
        Case("cross_entropy 1024x8192", one(cross_entropy), 0.8),
        Case("AdamW fused 10M", one(adamw), 1.05, check=False, long=True),
    ]


# ---- other ops at a million elements -----------------------------------------------------------


def _op_cases() -> list[Case]:
    n, side = 1 << 20, 1024
    calls: dict[str, Callable[[Any, Any], Any]] = {
        "add": lambda m, t: m.add(t.x, t.y),
        "add scalar": lambda m, t: m.add(t.x, 1.5),
        "mul": lambda m, t: m.mul(t.x, t.y),
        "div": lambda m, t: m.div(t.x, t.p),
        "add broadcast row": lambda m, t: m.add(t.s, t.row),
        "add broadcast column": lambda m, t: m.add(t.s, t.column),
        "add transposed": lambda m, t: m.add(t.s, t.s.t()),
        "abs": lambda m, t: m.abs(t.x),
        "neg": lambda m, t: m.neg(t.x),
        "sqrt": lambda m, t: m.sqrt(t.p),
        "rsqrt": lambda m, t: m.rsqrt(t.p),
        "exp": lambda m, t: m.exp(t.x),
        "log": lambda m, t: m.log(t.p),
        "sin": lambda m, t: m.sin(t.x),
        "cos": lambda m, t: m.cos(t.x),
        "tanh": lambda m, t: m.tanh(t.x),
        "sigmoid": lambda m, t: m.sigmoid(t.x),
        "erf": lambda m, t: m.erf(t.x),
        "pow": lambda m, t: m.pow(t.p, 2.5),
        "relu": lambda m, t: m.relu(t.x),
        "silu": lambda m, t: m.nn.functional.silu(t.x),
        "clamp": lambda m, t: m.clamp(t.x, -1.0, 1.0),
        "where": lambda m, t: m.where(t.b, t.x, t.y),
        "gt": lambda m, t: m.gt(t.x, t.y),
        "maximum": lambda m, t: m.maximum(t.x, t.y),
        "to bfloat16": lambda m, t: t.x.to(m.bfloat16),
        "clone transposed": lambda m, t: t.s.t().contiguous(),
        "cat": lambda m, t: m.cat([t.s, t.s], 1),
        "sum": lambda m, t: m.sum(t.x),
        "sum dim 0": lambda m, t: m.sum(t.s, 0),
        "sum dim 1": lambda m, t: m.sum(t.s, 1),
        "mean dim 1": lambda m, t: m.mean(t.s, 1),
        "amax dim 1": lambda m, t: m.amax(t.s, 1),
        "argmax dim 1": lambda m, t: m.argmax(t.s, 1),
        "var dim 1": lambda m, t: m.var(t.s, 1),
        "norm": lambda m, t: m.linalg.vector_norm(t.x),
        "cumsum dim 1": lambda m, t: m.cumsum(t.s, 1),
        "index_select rows": lambda m, t: m.index_select(t.s, 0, t.index),
        "gather dim 1": lambda m, t: m.gather(t.s, 1, t.places),
        "index_add rows": lambda m, t: m.index_add(t.s, 0, t.index, t.s),
        "masked_fill": lambda m, t: t.x.masked_fill(t.b, 0.0),
        "embedding": lambda m, t: m.nn.functional.embedding(t.index, t.s),
        "sort dim 1": lambda m, t: m.sort(t.s, 1)[0],
        "topk 8 dim 1": lambda m, t: m.topk(t.s, 8, 1)[0],
        "triu": lambda m, t: m.triu(t.s),
        "int64 add": lambda m, t: m.add(t.i, t.i),
    }

    def maker(fn: Callable[[Any, Any], Any]) -> Make:
        def make(m: Any) -> Call:
            t = _Operands(m, n, side)
            return lambda: fn(m, t)

        return make

    return [Case(name, one(maker(fn)), 2.0) for name, fn in calls.items()]


class _Operands:
    """Inputs of the op cases."""

    def __init__(self, m: Any, n: int, side: int) -> None:
        rng = np.random.default_rng(5)
        self.x, self.y = data(m, n), data(m, n, seed=1)
        self.p, self.b = self.x.abs() + 0.1, self.x > 0
        self.s = data(m, side, side, seed=2)
        self.row, self.column = data(m, side, seed=3), data(m, side, 1, seed=4)
        self.index = m.from_numpy(rng.permutation(side))
        self.places = m.from_numpy(rng.integers(0, side, (side, side)))
        self.i = m.from_numpy(rng.integers(0, 99, n))


# ---- small calls and a small network -----------------------------------------------------------


REPEATS = 200


def _statement(text: str) -> Make:
    """A loop over one statement: a function call around it would cost as much as the statement."""
    code = compile(
        f"def call():\n    for _ in repeat(None, {REPEATS}):\n        {text}\n", "<call>", "exec"
    )

    def make(m: Any) -> Call:
        a, b, w = (m.tensor([1.0, 2.0, 3.0, 4.0]) for _ in range(3))
        scope = {"a": a, "b": b, "w": w.requires_grad_(), "repeat": itertools.repeat}
        scope |= {"linear": m.nn.functional.linear, "x": a.view(1, 4), "square": data(m, 4, 4)}
        exec(code, scope)
        made: Call = scope["call"]
        return made

    return make


def _overhead() -> list[Case]:
    statements = {
        "a + b": "a + b",
        "a * b with grad": "a * w",
        "a[0]": "a[0]",
        "a.view(2, 2)": "a.view(2, 2)",
        "a.sum()": "a.sum()",
        "F.linear": "linear(x, square)",
    }
    return [
        Case(
            name,
            one(_statement(text)),
            0.25,
            limit_seconds=100e-9 if name == "a + b" else None,
            check=False,
            calls=REPEATS,
        )
        for name, text in statements.items()
    ]


def _cells() -> list[Case]:
    def lstm(m: Any) -> Call:
        x, h, c = data(m, 64, 128), data(m, 64, 256, seed=1), data(m, 64, 256, seed=2)
        w_ih, w_hh = data(m, 1024, 128, scale=0.1), data(m, 1024, 256, scale=0.1, seed=3)
        b = data(m, 1024, seed=4)
        return lambda: m.lstm_cell(x, (h, c), w_ih, w_hh, b, b)

    def lstm_backward(m: Any) -> Call:
        x, h, c = data(m, 64, 128), data(m, 64, 256, seed=1), data(m, 64, 256, seed=2)
        w_ih, w_hh = data(m, 1024, 128, scale=0.1), data(m, 1024, 256, scale=0.1, seed=3)
        b = data(m, 1024, seed=4)
        leaves = [t.requires_grad_() for t in (w_ih, w_hh, b)]
        return lambda: m.autograd.grad(m.lstm_cell(x, (h, c), w_ih, w_hh, b, b)[0].sum(), leaves)

    def gru(m: Any) -> Call:
        x, h = data(m, 64, 128), data(m, 64, 256, seed=1)
        w_ih, w_hh = data(m, 768, 128, scale=0.1), data(m, 768, 256, scale=0.1, seed=3)
        b = data(m, 768, seed=4)
        return lambda: m.gru_cell(x, h, w_ih, w_hh, b, b)

    return [
        Case("lstm_cell 64x128->256", one(lstm)),
        Case("lstm_cell forward+backward", one(lstm_backward)),
        Case("gru_cell 64x128->256", one(gru)),
    ]


SECTIONS = [
    Section("overhead", "Small eager calls (4 floats)", _overhead),
    Section("gemm-f32", "Matrix product, float32", lambda: _gemm("float32", 1.15, False), 1.03),
    Section("gemm-f32-packed", "... with a weight", lambda: _gemm("float32", 1.15, True), 0.98),
    Section("gemm-bf16", "Matrix product, bfloat16", lambda: _gemm("bfloat16", 1.15, False), 1.05),
    Section("gemm-bf16-packed", "... with a weight", lambda: _gemm("bfloat16", 1.15, True), 0.90),
    Section("conv-forward", "Convolution, forward", lambda: _convolutions(False)),
    Section("conv-backward", "Convolution, backward", lambda: _convolutions(True)),
    Section("attention", "Scaled dot-product attention", _attentions),
    Section("rows", "Row operations and the optimizer", _row_ops),
    Section("ops", "Other ops, a million elements", _op_cases, 0.8),
    Section("cells", "Recurrent cells", _cells),
    Section("modules", "Small modules, forward and backward, and optimizers", module_cases),
    Section("train", "Training steps", training_steps),
]
