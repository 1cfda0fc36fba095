"""Names of `nn.functional` that op_db does not know, against torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.nn.agree import assert_agree

pytestmark = pytest.mark.torch


def _offsets(t: Any, *ends: int) -> Any:
    return t.tensor(ends, dtype=t.int32)


def _scaled(t: Any, rows: bool, **more: Any) -> Any:
    F, f8 = t.nn.functional, t.float8_e4m3fn
    kind = F.ScalingType.RowWise if rows else F.ScalingType.TensorWise
    a, b = t.randn(16, 32).to(f8), t.randn(16, 32).to(f8).t()
    scales = (t.rand(16, 1), t.rand(1, 16)) if rows else (t.tensor(2.0), t.tensor(3.0))
    return F.scaled_mm(a, b, scales[0], kind, scales[1], kind, **more).float()


def _differentiated(t: Any) -> Any:
    a, b = t.randn(7, 4, requires_grad=True), t.randn(2, 4, 8, requires_grad=True)
    t.nn.functional.grouped_mm(a, b, offs=_offsets(t, 2, 7)).square().sum().backward()
    return [a.grad, b.grad]


def _in_place(t: Any) -> Any:
    x = t.randn(50)
    return [t.nn.functional.rrelu_(x, 0.1, 0.3, True) is x, x, t.nn.functional.rrelu_(t.randn(5))]


CASES: dict[str, Callable[[Any], Any]] = {
    "grouped rows": lambda t: t.nn.functional.grouped_mm(
        t.randn(7, 4), t.randn(2, 4, 8), offs=_offsets(t, 2, 7)
    ),
    "grouped batches": lambda t: t.nn.functional.grouped_mm(t.randn(2, 4, 8), t.randn(2, 8, 4)),
    "grouped inner": lambda t: t.nn.functional.grouped_mm(
        t.randn(4, 8), t.randn(8, 4), offs=_offsets(t, 3, 8)
    ),
    "grouped columns": lambda t: t.nn.functional.grouped_mm(
        t.randn(2, 4, 8), t.randn(8, 12), offs=_offsets(t, 4, 12)
    ),
    "grouped gradients": _differentiated,
    "scaled tensor": lambda t: _scaled(t, False),
    "scaled rows": lambda t: _scaled(t, True, output_dtype=t.float32),
    "scaled bias": lambda t: _scaled(t, False, bias=t.ones(16)),
    "native_channel_shuffle": lambda t: t.nn.functional.native_channel_shuffle(
        t.randn(2, 6, 3, 2), 3
    ),
    "rrelu_": _in_place,
    "adaptive 1d": lambda t: t.nn.functional.adaptive_max_pool1d_with_indices(t.randn(2, 3, 7), 3),
    "adaptive 2d": lambda t: t.nn.functional.adaptive_max_pool2d_with_indices(
        t.randn(2, 3, 7, 5), (3, 2)
    ),
    "adaptive 3d": lambda t: t.nn.functional.adaptive_max_pool3d_with_indices(
        t.randn(2, 3, 5, 4, 4), 2, return_indices=False
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees(name: str) -> None:
    assert_agree(CASES[name])


REFUSED: dict[str, Callable[[Any], Any]] = {
    "no offsets": lambda t: t.nn.functional.grouped_mm(t.zeros(4, 4), t.zeros(2, 4, 4)),
    "int64": lambda t: t.nn.functional.grouped_mm(
        t.zeros(4, 4), t.zeros(2, 4, 4), offs=t.tensor([2, 4])
    ),
    "float64": lambda t: t.nn.functional.grouped_mm(
        t.zeros(4, 4).double(), t.zeros(2, 4, 4).double(), offs=_offsets(t, 2, 4)
    ),
    "scales": lambda t: t.nn.functional.scaled_mm(
        t.zeros(4, 4),
        t.zeros(4, 4),
        t.ones(1),
        t.nn.functional.ScalingType.TensorWise,
        t.ones(1),
        t.nn.functional.ScalingType.TensorWise,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    def case(t: Any) -> Any:
        with pytest.raises((RuntimeError, ValueError), match=r"[a-z]") as caught:
            REFUSED[name](t)
        return [caught.type.__name__, str(caught.value)]

    assert_agree(case)


def test_scaled_grouped_undoes_the_scales() -> None:
    """Torch has no CPU kernel for it: compared with the product of what the scales mean."""
    t = importlib.import_module("lucerne")
    F = t.nn.functional
    t.manual_seed(0)
    a, b = t.randn(6, 4).to(t.float8_e4m3fn), t.randn(2, 4, 3).to(t.float8_e4m3fn)
    by_row, by_column, offs = t.rand(6), t.rand(2, 3), _offsets(t, 2, 6)
    row = F.ScalingType.RowWise
    found = F.scaled_grouped_mm(
        a, b, by_row, row, by_column, row, offs=offs, output_dtype=t.float32
    )
    plain = F.grouped_mm(a.float() * by_row[:, None], b.float() * by_column[:, None], offs=offs)
    t.testing.assert_close(found, plain)


def test_no_public_name_is_missing() -> None:
    """Every name of torch's list is here, and the deprecated ones."""
    ours = importlib.import_module("lucerne.nn.functional")
    theirs = importlib.import_module("torch.nn.functional")
    helpers = {"assert_int_or_pair", "boolean_dispatch", "handle_torch_function"}
    missing = [
        name
        for name, found in vars(theirs).items()
        if callable(found)
        and not name.startswith(("_", "has_torch_function"))
        and getattr(found, "__module__", "").startswith("torch")
        and name not in helpers
        and not hasattr(ours, name)
    ]
    assert not [n for n in missing if n not in ("Tensor", "DType", "BroadcastingList1",
                "BroadcastingList2", "BroadcastingList3")]  # fmt: skip
