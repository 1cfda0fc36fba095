"""The dtypes of results under autocast, op by op, against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402
from lucerne._src.ir import op as op_  # noqa: E402
from lucerne._src.ir.define import fronts  # noqa: E402

pytestmark = pytest.mark.torch

Call = Callable[[Any, Any, Any], Any]
"""Takes the framework and two functions that make ones: in the first dtype, in the second."""

PRODUCTS: dict[str, Call] = {
    "matmul": lambda t, a, b: t.matmul(a(2, 2), b(2, 2)),
    "@": lambda t, a, b: a(2, 2) @ b(2, 2),
    "vectors": lambda t, a, b: t.matmul(a(3), b(3)),
    "mm": lambda t, a, b: t.mm(a(2, 2), b(2, 2)),
    "bmm": lambda t, a, b: t.bmm(a(1, 2, 2), b(1, 2, 2)),
    "addmm": lambda t, a, b: t.addmm(a(2), b(2, 2), a(2, 2)),
    "baddbmm": lambda t, a, b: t.baddbmm(a(1, 2, 2), b(1, 2, 2), a(1, 2, 2)),
    "addbmm": lambda t, a, b: t.addbmm(a(2, 2), b(1, 2, 2), a(1, 2, 2)),
    "linear": lambda t, a, b: t.nn.functional.linear(a(2, 3), b(4, 3), b(4)),
    "einsum": lambda t, a, b: t.einsum("ij,jk->ik", a(2, 2), b(2, 2)),
    "vecdot": lambda t, a, b: t.linalg.vecdot(a(2, 2), b(2, 2)),
    "conv1d": lambda t, a, b: t.nn.functional.conv1d(a(1, 2, 5), b(3, 2, 2), b(3)),
    "conv2d": lambda t, a, b: t.nn.functional.conv2d(a(1, 2, 5, 5), b(3, 2, 2, 2)),
    "conv3d": lambda t, a, b: t.nn.functional.conv3d(a(1, 2, 3, 3, 3), b(3, 2, 2, 2, 2)),
    "conv_transpose1d": lambda t, a, b: t.nn.functional.conv_transpose1d(a(1, 2, 5), b(2, 3, 2)),
    "conv_transpose2d": lambda t, a, b: t.nn.functional.conv_transpose2d(
        a(1, 2, 3, 3), b(2, 3, 2, 2), a(3)
    ),
    "prelu": lambda t, a, b: t.nn.functional.prelu(a(2, 2), b(1)),
    "attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(
        a(1, 1, 2, 4), b(1, 1, 2, 4), b(1, 1, 2, 4)
    ),
    "masked attention": lambda t, a, b: t.nn.functional.scaled_dot_product_attention(
        a(1, 1, 2, 4), a(1, 1, 2, 4), b(1, 1, 2, 4), attn_mask=a(2, 2)
    ),
}
FULL: dict[str, Call] = {
    **{
        name: lambda t, a, b, name=name: getattr(t.nn.functional, name)(a(2, 3), b(2, 3))
        for name in (
            "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div",
            "binary_cross_entropy_with_logits", "soft_margin_loss", "hinge_embedding_loss",
            "poisson_nll_loss",
        )
    },
    "cross_entropy": lambda t, a, b: t.nn.functional.cross_entropy(a(2, 3), t.tensor([0, 1]), b(3)),
    "cross_entropy soft": lambda t, a, b: t.nn.functional.cross_entropy(a(2, 3), b(2, 3)),
    "nll_loss": lambda t, a, b: t.nn.functional.nll_loss(a(2, 3), t.tensor([0, 1]), b(3)),
    "triplet": lambda t, a, b: t.nn.functional.triplet_margin_loss(a(2, 3), b(2, 3), a(2, 3)),
    "margin": lambda t, a, b: t.nn.functional.margin_ranking_loss(a(2), b(2), a(2)),
    "cosine": lambda t, a, b: t.nn.functional.cosine_embedding_loss(a(2, 3), b(2, 3), a(2)),
    "ctc_loss": lambda t, a, b: t.nn.functional.ctc_loss(
        a(4, 1, 3), t.tensor([[1, 2]]), t.tensor([4]), t.tensor([2])
    ),
    "prod": lambda t, a, b: [a(2, 3).prod(), a(2, 3).prod(1)],
    "trace": lambda t, a, b: a(2, 2).trace(),
    "quantile": lambda t, a, b: t.quantile(a(4), 0.5),
    "cdist": lambda t, a, b: t.cdist(a(2, 3), b(2, 3)),
    "polar": lambda t, a, b: t.polar(a(2), b(2)),
    "fft": lambda t, a, b: [t.fft.fft(a(4)), t.fft.rfft(a(4)), t.fft.irfft(a(4))],
    "solve": lambda t, a, b: t.linalg.solve(t.eye(2), a(2, 1)),
    "svd": lambda t, a, b: list(t.linalg.svd(a(2, 2))),
    "grid_sample": lambda t, a, b: t.nn.functional.grid_sample(a(1, 1, 2, 2), b(1, 1, 1, 2)),
    "max_pool3d": lambda t, a, b: t.nn.functional.max_pool3d(a(1, 1, 4, 4, 4), 2),
    "avg_pool3d": lambda t, a, b: t.nn.functional.avg_pool3d(a(1, 1, 4, 4, 4), 2),
    "reflect": lambda t, a, b: t.nn.functional.pad(a(1, 1, 4), (1, 1), mode="reflect"),
    "replicate": lambda t, a, b: t.nn.functional.pad(a(1, 1, 4), (1, 1), mode="replicate"),
}  # fmt: skip
OTHERS: dict[str, Call] = {
    "cat": lambda t, a, b: [t.cat([a(2), b(2)]), t.stack([a(2), b(2)]), t.cat([a(2), a(2)])],
    "index_copy": lambda t, a, b: t.index_copy(a(2), 0, t.tensor([0]), b(1)),
    "mv, dot": lambda t, a, b: [t.mv(a(2, 2), a(2)), t.dot(a(2), a(2)), t.inner(a(2), a(2))],
    "outer": lambda t, a, b: [t.outer(a(2), a(2)), t.kron(a(2), a(2))],
    "einsum without sums": lambda t, a, b: t.einsum("i,j->ij", a(2), a(3)),
    "pointwise": lambda t, a, b: [a(2) + b(2), a(2) * b(2), a(2).exp()],
    "where": lambda t, a, b: t.where(a(2) > 0, a(2), b(2)),
    "layer_norm": lambda t, a, b: t.nn.functional.layer_norm(a(2, 3), (3,), b(3), b(3)),
    "group_norm": lambda t, a, b: t.nn.functional.group_norm(a(2, 3), 1, b(3), b(3)),
    "softmax": lambda t, a, b: [a(2, 3).softmax(-1), a(2, 3).log_softmax(-1), a(2, 3).sum()],
    "max_pool2d": lambda t, a, b: t.nn.functional.max_pool2d(a(1, 1, 4, 4), 2),
    "gelu": lambda t, a, b: t.nn.functional.gelu(a(3)),
    "matrix_power": lambda t, a, b: t.linalg.matrix_power(a(2, 2), 3),
    "tensordot": lambda t, a, b: t.tensordot(a(2, 2), a(2, 2), 1),
    "cov": lambda t, a, b: t.cov(a(2, 3)),
    "constant pad": lambda t, a, b: t.nn.functional.pad(a(1, 1, 4), (1, 1)),
    "integers": lambda t, a, b: t.ones(2, 2, dtype=t.int64) @ t.ones(2, 2, dtype=t.int64),
    "out": lambda t, a, b: t.mm(a(2, 2), a(2, 2), out=a(2, 2)),
    "in place": lambda t, a, b: a(2, 2).addmm_(a(2, 2), a(2, 2)),
}  # fmt: skip
CALLS = PRODUCTS | FULL | OTHERS
DTYPES = [
    ("float32", "float32"), ("bfloat16", "bfloat16"), ("float32", "bfloat16"),
    ("bfloat16", "float32"), ("float64", "float64"),
]  # fmt: skip


def _outcome(module: Any, call: Call, dtypes: tuple[str, str], lower: str) -> Any:
    """The dtypes of the results, or that there was an error."""
    first, second = (getattr(module, d) for d in dtypes)

    def a(*shape: int) -> Any:
        return module.full(shape, 0.5, dtype=first)

    def b(*shape: int) -> Any:
        return module.full(shape, 0.5, dtype=second)

    with warnings.catch_warnings(), module.autocast("cpu", dtype=getattr(module, lower)):
        warnings.simplefilter("ignore")
        try:
            found = call(module, a, b)
        except (RuntimeError, NotImplementedError):
            return "error"
    return [str(x.dtype) for x in (found if isinstance(found, list) else [found])]


@pytest.mark.parametrize("name", CALLS)
def test_dtypes(name: str) -> None:
    for lower in ("bfloat16", "float16"):
        for dtypes in DTYPES if lower == "bfloat16" else DTYPES[:1]:
            theirs = _outcome(torch, CALLS[name], dtypes, lower)
            mine = _outcome(lu, CALLS[name], dtypes, lower)
            if theirs != "error":  # some kernels of PyTorch lack a dtype
                assert mine == theirs, f"{name} of {dtypes} under {lower}"


@pytest.mark.parametrize("name", CALLS)
def test_calls_remembered_outside_do_not_leak_in(name: str) -> None:
    """The same call before, inside and after: each time what it is there."""
    ones = ("float32", "float32")

    def plain() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = CALLS[name](lu, lu.ones, lu.ones)
        return [str(x.dtype) for x in (made if isinstance(made, list) else [made])]

    outside = plain()
    plain()
    inside = _outcome(lu, CALLS[name], ones, "bfloat16")
    assert _outcome(lu, CALLS[name], ones, "bfloat16") == inside
    assert plain() == outside


def test_every_listed_op_exists() -> None:
    told = [op.autocast for op in op_.table().values()]
    assert {x for x in told if type(x) is str} == set(op_.AUTOCAST)
    assert {x[0] for x in told if type(x) is tuple} <= set(op_.AUTOCAST)
    assert {front.autocast for front in fronts().values()} == {"", "lower", "full"}
