"""Operands of several float types: torch's result type, or its refusal with its text."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

KINDS = ("float16", "bfloat16", "float32", "float64")
PLACES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-6, "float64": 2e-6}
ROWS = [[0.2, 0.7, 0.4, 0.9], [0.55, 0.15, 0.8, 0.3], [0.65, 0.25, 0.35, 0.5]]
OTHER = [[0.3, 0.6, 0.45, 0.75], [0.5, 0.1, 0.85, 0.35], [0.6, 0.2, 0.3, 0.55]]
ROW, FEW = OTHER[0], [0.2, 0.9, 0.4]
SQUARES = [[OTHER[i % 3] for i in range(4)], [ROWS[i % 3] for i in range(4)]]

Call = Callable[[Any, Any, Any], Any]


def _loss(name: str, **given: Any) -> Call:
    return lambda t, a, b: getattr(t.nn.functional, name)(a, b, **given)


def _weighted(name: str, key: str = "weight") -> Call:
    return lambda t, a, w: getattr(t.nn.functional, name)(a, a, **{key: w})


def _classes(name: str) -> Call:
    return lambda t, a, w: getattr(t.nn.functional, name)(a, t.tensor([0, 1, 2]), weight=w)


def _bilinear(t: Any, a: Any, b: Any) -> Any:
    return t.nn.functional.bilinear(a, b, t.ones(2, 4, 4, dtype=a.dtype))


def _cosine(t: Any, a: Any, b: Any) -> Any:
    return t.nn.functional.cosine_embedding_loss(a, b, t.tensor([1, -1, 1]))


def _bag(t: Any, a: Any, w: Any) -> Any:
    bag = t.tensor([[0, 1, 2, 1]])
    return t.nn.functional.embedding_bag(bag, a, mode="sum", per_sample_weights=w.reshape(1, 4))


CALLS: dict[str, tuple[Call, Any, Any]] = {
    **{
        f"{name} {how}": (_loss(name, reduction=how), ROWS, OTHER)
        for name in (
            "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
            "binary_cross_entropy_with_logits", "kl_div", "cross_entropy", "poisson_nll_loss",
            "soft_margin_loss", "hinge_embedding_loss", "multilabel_soft_margin_loss",
        )
        for how in ("mean", "none")
    },
    "bce weight": (_weighted("binary_cross_entropy"), ROWS, ROW),
    "logits weight": (_weighted("binary_cross_entropy_with_logits"), ROWS, ROW),
    "logits pos_weight": (_weighted("binary_cross_entropy_with_logits", "pos_weight"), ROWS, ROW),
    "soft margin weight": (_weighted("multilabel_soft_margin_loss"), ROWS, ROW),
    "soft classes weight": (_weighted("cross_entropy"), ROWS, ROW),
    "classes weight": (_classes("cross_entropy"), ROWS, ROW),
    "nll weight": (_classes("nll_loss"), ROWS, ROW),
    "margin": (lambda t, a, b: t.nn.functional.margin_ranking_loss(a, a, b), ROWS, OTHER),
    "cosine": (_cosine, ROWS, OTHER),
    "triplet": (lambda t, a, b: t.nn.functional.triplet_margin_loss(a, b, b), ROWS, OTHER),
    "linear": (lambda t, a, w: t.nn.functional.linear(a, w), ROWS, OTHER),
    "linear bias": (
        lambda t, a, b: t.nn.functional.linear(a, t.ones(3, 4, dtype=a.dtype), b), ROWS, FEW,
    ),
    "bilinear": (_bilinear, ROWS, OTHER),
    "addmv": (lambda t, a, v: t.addmv(v, a, a[0]), ROWS, FEW),
    "addr": (lambda t, a, v: t.addr(a, v[:3], v), ROWS, ROW),
    "addbmm": (lambda t, a, b: t.addbmm(a, b, b), SQUARES[0], SQUARES),
    "addmm": (lambda t, a, b: t.addmm(a, b, b), SQUARES[0], SQUARES[1]),
    "sdpa mask": (
        lambda t, a, m: t.nn.functional.scaled_dot_product_attention(a, a, a, attn_mask=m),
        SQUARES, SQUARES,
    ),
    "embedding_bag": (_bag, ROWS, ROW),
}  # fmt: skip


def _outcome(module: Any, name: str, kinds: tuple[str, str], compiled: bool) -> Any:
    call, *values = CALLS[name]
    a, b = (module.tensor(v).to(getattr(module, k)) for v, k in zip(values, kinds, strict=True))
    run = lucerne.compile(lambda a, b: call(module, a, b)) if compiled else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = run(a, b) if run is not None else call(module, a, b)
        except RuntimeError as error:
            return "refused", str(error).split("\n")[0]
    return str(result.dtype).removeprefix("torch."), result.double().flatten().tolist()


@pytest.mark.parametrize("name", CALLS)
def test_mixed_types_are_torchs(name: str) -> None:
    for kinds in itertools.product(KINDS, repeat=2):
        expected = _outcome(torch, name, kinds, False)
        found = _outcome(lucerne, name, kinds, False)
        assert found[0] == expected[0], (kinds, expected, found)
        if expected[0] != "refused":
            places = max(PLACES[k] for k in (*kinds, expected[0]))
            assert found[1] == pytest.approx(expected[1], rel=places, abs=places), kinds


TEXTS = ("classes weight", "bilinear", "linear", "addmv", "embedding_bag")


@pytest.mark.parametrize("name", TEXTS)
def test_refusals_have_torchs_text(name: str) -> None:
    expected, found = (_outcome(m, name, ("float16", "float32"), False) for m in (torch, lucerne))
    assert expected[0] == "refused"
    assert found == expected


@pytest.mark.parametrize(
    "name", ["mse_loss mean", "cross_entropy mean", "linear", "huber_loss mean"]
)
def test_compiled_code_has_the_same_types(name: str) -> None:
    for kinds in (("bfloat16", "float32"), ("float16", "bfloat16"), ("float32", "float16")):
        eager, compiled = (_outcome(lucerne, name, kinds, c) for c in (False, True))
        assert eager[0] == compiled[0]


def test_a_loss_of_bfloat16_against_float32_keeps_its_digits() -> None:
    x = lucerne.tensor([1.0, 2.0, 3.0]).bfloat16()
    y = lucerne.tensor([1.001, 2.5, 0.1])
    loss = lucerne.nn.functional.mse_loss(x, y)
    assert loss.dtype is lucerne.float32
    assert float(loss) == pytest.approx(2.8866670, rel=1e-6)
