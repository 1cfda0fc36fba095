"""`torch.ops.aten.*._schema`: torch's own, to the letter, for every overload that is there."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from lucerne._src.ir.schema import parse  # noqa: E402
from lucerne.ops import aten  # noqa: E402

pytestmark = pytest.mark.torch


def _overloads() -> list[tuple[str, str]]:
    return [(name, over) for name, known in aten._written().items() for over in known]


def test_schemas_are_torchs() -> None:
    wrong = []
    for name, over in _overloads():
        ours: Any = getattr(getattr(lucerne.ops.aten, name), over)._schema
        want = str(torch._C._get_schema(f"aten::{name}", "" if over == "default" else over))
        if str(ours) != want:
            wrong.append((str(ours), want))
    assert len(_overloads()) > 1700
    assert not wrong


NAMED = ["add", "mul", "sum", "mm", "native_layer_norm", "convolution", "split", "max", "flatten"]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_has_torchs_overloads(name: str) -> None:
    ours, want = getattr(lucerne.ops.aten, name), getattr(torch.ops.aten, name)
    assert set(ours.overloads()) <= set(want.overloads())  # (it has some of Python numbers, too)
    for over in ours.overloads():
        have, told = getattr(ours, over)._schema, getattr(want, over)._schema
        assert [a.name for a in have.arguments] == [a.name for a in told.arguments]
        assert have.is_mutable == told.is_mutable
        assert [a.has_default_value() for a in have.arguments] == [
            a.has_default_value() for a in told.arguments
        ]


TEXTS = [
    "f(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
    "f(Tensor(a!) self, float eps=1.0000000000000001e-05) -> Tensor(a!)",
    "f(Tensor? x, int[1]? dim=None, *, ScalarType? dtype=None) -> (Tensor, Tensor)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_schemas_are_printed_as_they_are_read(text: str) -> None:
    assert str(parse(text)) == text
