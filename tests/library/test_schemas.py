"""`torch.ops.aten.*._schema`: torch's own, to the letter, for every overload that is there."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from lucerne._src.ir import op as op_  # noqa: E402
from lucerne._src.ir.schema import parse  # noqa: E402
from lucerne._src.ops import aten  # noqa: E402

pytestmark = pytest.mark.torch


def _torchs() -> dict[tuple[str, str], str]:
    """By name and overload: every schema of torch's dispatcher."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, over = rest.partition(".")
        if space == "aten":
            found[name, over or "default"] = str(torch._C._get_schema(f"aten::{name}", over))
    return found


def test_schemas_are_torchs(record_property: Any) -> None:
    """Every overload that is here, under a name that torch has too, has torch's schema."""
    torchs = _torchs()
    names = {name for name, _ in torchs}
    packets = [p for p in map(aten._space_or_none, sorted(names)) if p is not None]
    ours = {(p.__name__, over): str(getattr(p, over)._schema) for p in packets for over in p}
    wrong = [(text, torchs.get(key)) for key, text in ours.items() if text != torchs.get(key)]
    report = {"torch's": len(torchs), "ours": len(ours), "equal": len(ours) - len(wrong)}
    record_property("aten overloads", report)
    print(f"overloads of aten: {report}")
    assert wrong == []
    assert len(ours) >= 1756
    assert set(ours) == {(n, over) for n, known in aten._written().items() for over in known}


def test_a_name_has_all_overloads_of_torchs() -> None:
    listed = aten._written()
    missing = [key for key in _torchs() if key[0] in listed and key[1] not in listed[key[0]]]
    assert missing == []


@pytest.mark.parametrize("name", ["abs__", "amax_", "no_such_op"])
def test_names_that_torch_lacks_are_refused(name: str) -> None:
    with pytest.raises(AttributeError):
        getattr(torch.ops.aten, name)
    with pytest.raises(AttributeError):
        getattr(lucerne.ops.aten, name)


def test_a_schema_reads_as_torchs() -> None:
    text = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    ours, want = lucerne.ops.aten.add.Tensor._schema, torch.ops.aten.add.Tensor._schema
    assert str(ours) == str(want) == text
    assert (ours.name, ours.overload_name) == (want.name, want.overload_name)
    for mine, theirs in zip(ours.arguments, want.arguments, strict=True):
        for field in ("name", "kwarg_only", "default_value"):
            if field != "default_value" or theirs.has_default_value():
                assert getattr(mine, field) == getattr(theirs, field)
        assert str(mine.type) == {"number": "Scalar"}.get(str(theirs.type), str(theirs.type))
    assert [str(r.type) for r in ours.returns] == [str(r.type) for r in want.returns]


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


def test_a_building_block_takes_keywords_whoever_asked_first() -> None:
    op = op_.get("add2")
    aten._internal(op)  # what a mode is shown of it
    assert lucerne.ops.lucerne.add2(lucerne.ones(2), other=1).tolist() == [2.0, 2.0]
