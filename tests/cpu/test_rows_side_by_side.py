"""Short rows share a comparison and a branch: what one needs changes nothing for the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as torch

RARE = {
    "large": 1e30, "small": 1e-30, "infinite": float("inf"), "nan": float("nan"), "zero": 0.0,
}  # fmt: skip
FUNCTIONS: dict[str, Any] = {
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "std": lambda x: x.std(1),
    "var": lambda x: x.var(1),
    "std_mean": lambda x: torch.stack(torch.std_mean(x, 1)),
    "normalized": lambda x: x.norm(dim=1) * x.sum(1) + x[:, 0],
}


def _bits(x: Any) -> bytes:
    raw: bytes = x.detach().contiguous().numpy().tobytes()
    return raw


def _rows(rows: int, columns: int, dtype: Any) -> Any:
    rng = np.random.default_rng(rows * 100 + columns)
    return torch.from_numpy(rng.uniform(-2, 2, (rows, columns))).to(dtype)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("columns", [3, 16, 70])
def test_each_row_is_as_among_its_like(name: str, dtype: Any, columns: int) -> None:
    """Every place of a rare row in groups of each length."""
    function = FUNCTIONS[name]
    for rows in (2, 5, 8):
        plain = _rows(rows, columns, dtype)
        # Among as many rows that are all like it: fewer might be summed by another kernel.
        usual = function(plain)
        for kind, factor in RARE.items():
            rare = function((plain[0] * factor).repeat(rows, 1))[..., 0]
            for at in range(rows):
                x = plain.clone()
                x[at] = plain[0] * factor
                found, others = function(x), [n for n in range(rows) if n != at]
                told = str((rows, kind, at))
                np.testing.assert_array_equal(found[..., at].numpy(), rare.numpy(), told)
                assert _bits(found[..., others]) == _bits(usual[..., others]), told


@pytest.mark.parametrize("name", ["norm", "std"])
def test_rare_rows_are_right(name: str) -> None:
    """Squares that overflow or vanish: by float64, whose squares do neither."""
    x = _rows(9, 24, torch.float32)
    x[1], x[2], x[7] = x[1] * 1e30, x[2] * 1e-30, x[7] * 0 + 1e8
    want = FUNCTIONS[name](x.double()).numpy()
    np.testing.assert_allclose(FUNCTIONS[name](x).numpy(), want, rtol=3e-6)


def test_results_with_gaps_and_rows_that_are_turned() -> None:
    whole = torch.from_numpy(np.random.default_rng(1).normal(size=(40, 12)).astype(np.float32))
    x, out = whole.t()[::2].t()[3:], torch.full((37, 3), -1.0)
    torch.linalg.vector_norm(x, dim=1, out=out[:, 1])
    np.testing.assert_allclose(out[:, 1].numpy(), np.linalg.norm(x.numpy(), axis=1), rtol=1e-6)
    assert set(out[:, [0, 2]].reshape(-1).tolist()) == {-1.0}
