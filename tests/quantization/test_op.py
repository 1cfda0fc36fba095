"""`quantized_linear`: the kernels of this machine against float64, and what the op refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.backends.cpu.quantized import blocks, dots
from lucerne._src.backends.cpu.quantized import rows as rows_module
from lucerne._src.backends.cpu.rules.linalg import quantized as rule_module
from lucerne._src.backends.cpu.runtime.code import log
from lucerne._src.ops.linalg.quantized import (
    COLUMNS,
    arranged,
    arranged_scales,
    laid_out,
    numbers_of,
    quantized_linear,
)
from tests.machines.__main__ import settings

# stored, dynamic, base, bias
KINDS = [
    ("int8", False, False, True), ("int8", True, False, True), ("int4", False, True, True),
    ("int4", True, True, False), ("float8_e4m3fn", False, False, False),
]  # fmt: skip
# rows of the input, rows of the weight, columns, group: heights and widths of blocks with edges
SIZES = [((1,), 20, 16, 16), ((2, 3), 33, 64, 32), ((13,), 100, 128, 128), ((3,), 16, 24, 8)]


def _case(stored: str, base: bool, bias: bool, n: int, k: int, group: int) -> tuple[Any, ...]:
    most = {"int8": 256, "int4": 16}.get(stored, 120)
    codes = torch.randint(0, most, (n, k)).to(torch.uint8)
    scale = torch.rand(n, k // group) + 0.5
    return (
        codes, arranged(codes, stored), scale, torch.randn(n, k // group) if base else None,
        torch.randn(n) if bias else None,
    )  # fmt: skip


def _applied(
    x: Any, packed: Any, scale: Any, base: Any, bias: Any, group: int, stored: str, dynamic: bool
) -> Any:
    """The op on scales given as (rows, groups)."""
    wide = [None if t is None else arranged_scales(t) for t in (scale, base)]
    return quantized_linear(x, packed, *wide, bias, len(scale), group, stored, dynamic)


def _expected(x: Any, codes: Any, scale: Any, base: Any, bias: Any, stored: str) -> Any:
    numbers = numbers_of(codes, stored).double().numpy().reshape(*scale.shape, -1)
    weight = numbers * scale.numpy()[..., None]
    if base is not None:
        weight = weight + base.numpy()[..., None]
    made = x @ weight.reshape(len(codes), -1).T
    return made if bias is None else made + bias.numpy()


@pytest.mark.parametrize(("stored", "dynamic", "base", "bias"), KINDS)
def test_kernels(stored: str, dynamic: bool, base: bool, bias: bool) -> None:
    torch.manual_seed(0)
    for rows, n, k, group in SIZES:
        codes, packed, scale, b, c = _case(stored, base, bias, n, k, group)
        assert (laid_out(packed, n, k, stored) == codes).all()
        x = torch.randn(*rows, k)
        got = _applied(x, packed, scale, b, c, group, stored, dynamic)
        wide = x.numpy()
        if dynamic:
            most = abs(wide).max(-1, keepdims=True)
            wide = np.round(wide * (np.float32(127) / most)).astype(np.float64) * (most / 127.0)
        want = _expected(wide.astype(np.float64), codes, scale, b, c, stored)
        assert abs(got.numpy() - want).max() <= 2e-6 * abs(want).max(), (rows, n, k)
    assert any((key[0], *key[2:4]) == ("quantized", stored, dynamic) for key, *_ in log)


@pytest.mark.parametrize("dot", [dots.IntegerDot, dots.PairDot])
@pytest.mark.parametrize("stored", ["int8", "int4"])
def test_dots_of_other_processors(monkeypatch: pytest.MonkeyPatch, dot: Any, stored: str) -> None:
    """8 x 8 bits by plain integers and by pairs, of a size that no other test has planned."""
    for module in (blocks, rows_module, rule_module):
        monkeypatch.setattr(module, "dot_of", lambda stored, dynamic: dot(stored))
    n = 37 if dot is dots.PairDot else 39
    codes, packed, scale, _, c = _case(stored, False, True, n, 40, 8)
    x = torch.randn(3, 40)
    got = _applied(x, packed, scale, None, c, 8, stored, True).numpy()
    most = abs(x.numpy()).max(-1, keepdims=True)
    wide = np.round(x.numpy() * (np.float32(127) / most)).astype(np.float64) * (most / 127.0)
    want = _expected(wide, codes, scale, None, c, stored)
    assert abs(got - want).max() <= 2e-6 * abs(want).max()
    assert any(key[:2] == ("quantized", dot.__name__) for key, *_ in log)


def test_rows_that_are_not_finite() -> None:
    """Their results are nan, those of the other rows are what they were."""
    _, packed, scale, _, _ = _case("int8", False, False, 20, 32, 32)
    x = torch.randn(5, 32)
    clean = _applied(x, packed, scale, None, None, 32, "int8", True)
    x[1, 3], x[3, 31], x[4] = float("nan"), float("inf"), 0.0
    got = _applied(x, packed, scale, None, None, 32, "int8", True)
    assert got[[1, 3]].isnan().all()
    assert (got[4] == 0).all()
    assert (got[[0, 2]] == clean[[0, 2]]).all()


def test_sizes_without_a_kernel_have_a_body() -> None:
    """Columns that are no whole words, rows in 16 bits, empty batches."""
    for stored, per in COLUMNS.items():
        codes, packed, scale, _, _ = _case(stored, False, False, 5, per + 1, per + 1)
        x = torch.randn(2, per + 1)
        got = _applied(x, packed, scale, None, None, per + 1, stored, False)
        np.testing.assert_allclose(
            got.numpy(), _expected(x.double().numpy(), codes, scale, None, None, stored), rtol=1e-4,
            atol=1e-3,
        )  # fmt: skip
        half = _applied(x.bfloat16(), packed, scale, None, None, per + 1, stored, False)
        assert half.dtype is torch.bfloat16
        none = _applied(x[:0], packed, scale, None, None, per + 1, stored, False)
        assert none.shape == (0, 5)


def test_gradient_of_the_input_is_that_of_the_dense_layer() -> None:
    codes, packed, scale, b, c = _case("int4", True, True, 12, 16, 8)
    x = torch.randn(3, 16, requires_grad=True)
    g = torch.randn(3, 12)
    _applied(x, packed, scale, b, c, 8, "int4", False).backward(g)
    weight = _expected(np.eye(16), codes, scale, b, None, "int4").T
    np.testing.assert_allclose(x.grad.numpy(), g.numpy() @ weight, rtol=1e-4, atol=1e-4)


REFUSED = [
    (("int3", False, 16), "codes are"),
    (("float8_e4m3fn", True, 16), "not float8"),
    (("int8", False, 8), "are not those of a weight"),
    (("int4", False, 16), "expected codes of uint8"),
]


@pytest.mark.parametrize(("given", "says"), REFUSED)
def test_refusals(given: tuple[str, bool, int], says: str) -> None:
    stored, dynamic, group = given
    _, packed, scale, _, _ = _case("int8", False, False, 16, 16, 16)
    with pytest.raises(RuntimeError, match=says):
        _applied(torch.ones(1, 16), packed, scale, None, None, group, stored, dynamic)


@pytest.mark.nightly
@pytest.mark.parametrize("less", ["-amx,-avx512", "-avx512_vnni", "-avx512,-avx2,-avx,-fma"])
def test_processors_with_less(less: str) -> None:
    """The kernels as other processors would run them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "kernels"],
        env={**settings("this"), "LUCERNE_CPU_FEATURES": less}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
