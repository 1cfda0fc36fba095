"""Sizes that change: what is refused, and that messages name argument and dimension."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as lu
from lucerne.export import ArgumentError, Dim, ExportError, dims, export
from tests.export.rows import Fn

batch = Dim("batch", min=2, max=8)


def _program(fn: Any, args: Any, spec: Any) -> Any:
    return export(Fn(fn), args, dynamic_shapes={f"args_{k}": s for k, s in enumerate(spec)})


def _loops(x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = x * 2
    return x


def _decides(x: Any) -> Any:
    return x * 2 if x.shape[0] > 5 else x


two = lu.ones(4, 3), lu.ones(4, 3)
REFUSED = [
    (
        "size one",
        lambda: _program(lambda x: x, (lu.ones(1, 3),), [{0: Dim("n")}]),
        "args_0, dimension 0 is 1 in the example",
    ),
    (
        "outside",
        lambda: _program(lambda x: x, (lu.ones(9, 3),), [{0: batch}]),
        "outside the range 2 to 8",
    ),
    (
        "no such dimension",
        lambda: _program(lambda x: x, (lu.ones(4),), [{3: batch}]),
        "no dimension 3",
    ),
    (
        "wrong count",
        lambda: _program(lambda x: x, (lu.ones(4),), [(batch, None)]),
        "1 dimensions, 2 are given",
    ),
    ("no Dim", lambda: _program(lambda x: x, (lu.ones(4),), [{0: "batch"}]), "a Dim, Dim.AUTO"),
    (
        "unequal",
        lambda: _program(lambda x, y: x, (lu.ones(4), lu.ones(5)), [{0: batch}, {0: batch}]),
        "one Dim have one size",
    ),
    (
        "two ranges",
        lambda: _program(lambda x, y: x, two, [{0: batch}, {0: Dim("batch")}]),
        "different ranges",
    ),
    (
        "must be equal",
        lambda: _program(lambda x, y: x + y, two, [{0: batch}, {0: Dim("rows")}]),
        "does not take batch = .*one Dim",
    ),
    (
        "a loop",
        lambda: _program(_loops, (lu.ones(4),), [{0: batch}]),
        "not one program for all sizes",
    ),
    (
        "a decision",
        lambda: _program(_decides, (lu.ones(7),), [{0: batch}]),
        r"batch > 5.*not so for batch = 2.*min=6",
    ),
    (
        "not derived",
        lambda: _program(lambda x: x, (lu.ones(5),), [{0: 2 * batch}]),
        r"not 2\*batch for any whole number",
    ),
    (
        "unknown name",
        lambda: export(Fn(lambda x: x), (lu.ones(4),), dynamic_shapes={"y": None}),
        "names 'y'",
    ),
    (
        "too few",
        lambda: export(lu.nn.Bilinear(3, 3, 2), two, dynamic_shapes=({0: batch},)),
        "1 entries for 2 arguments",
    ),
    ("a number", lambda: _program(lambda n: lu.ones(2) * n, (3,), [{0: batch}]), "is no tensor"),
    (
        "fixed size is another",
        lambda: _program(lambda x: x, (lu.ones(4),), [{0: 5}]),
        "dynamic_shapes says 5",
    ),
    ("bad name", lambda: Dim("no name"), "a name like a variable's"),
    ("bad range", lambda: Dim("n", min=3, max=2), "less than min"),
]


@pytest.mark.parametrize(("make", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_export_refuses(make: Any, text: str) -> None:
    with pytest.raises((ExportError, ValueError), match=f"(?s){text}"):
        make()


CALLS = [
    (
        "too large",
        (lu.ones(9, 3), lu.ones(9, 2)),
        "a, dimension 0, is 9: the program was exported for batch from 2 to 8",
    ),
    ("too small", (lu.ones(1, 3), lu.ones(1, 2)), "a, dimension 0, is 1"),
    (
        "unequal",
        (lu.ones(5, 3), lu.ones(6, 2)),
        "b, dimension 0, is 6: it must be batch, which is 5",
    ),
    (
        "fixed",
        (lu.ones(5, 4), lu.ones(5, 2)),
        "a, dimension 1, is 4: the program was exported for 3",
    ),
    ("dimensions", (lu.ones(5), lu.ones(5, 2)), "2 dimensions are expected, not 1"),
    (
        "dtype",
        (lu.ones(5, 3).double(), lu.ones(5, 2)),
        "torch.float32 on cpu is expected, not torch.float64",
    ),
    ("no tensor", (1.0, lu.ones(5, 2)), "a tensor is expected, not float"),
    ("one missing", (lu.ones(5, 3),), r"\(a, b\) is expected"),
    ("one too many", (lu.ones(5, 3), lu.ones(5, 2), 1), r"\(a, b\) is expected"),
]


class Join(lu.nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return lu.cat([a, b], 1).sum(0)


@pytest.fixture(scope="module")
def joined() -> Any:
    args = lu.ones(4, 3), lu.ones(4, 2)
    return export(Join(), args, dynamic_shapes={"a": {0: batch}, "b": {0: batch}}).module()


@pytest.mark.parametrize(("args", "text"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_call_names_argument_and_dimension(joined: Any, args: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        joined(*args)


def test_arguments_by_name_and_position(joined: Any) -> None:
    a, b = lu.rand(5, 3), lu.rand(5, 2)
    want = Join()(a, b)
    assert (joined(a, b=b) == want).all()
    assert (joined(b=b, a=a) == want).all()


def test_numbers_are_part_of_the_program() -> None:
    module = export(Fn(lambda x, n, flag: x * n if flag else x), (lu.ones(3), 2, True)).module()
    assert module(lu.ones(3), 2, True).tolist() == [2.0] * 3
    with pytest.raises(ArgumentError, match="args_1: the program was exported for 2, not 3"):
        module(lu.ones(3), 3, True)


def test_auto_finds_what_may_change() -> None:
    program = export(
        Join(), (lu.ones(4, 3), lu.ones(4, 2)), dynamic_shapes={"a": Dim.AUTO, "b": Dim.AUTO}
    )
    found = program.module()
    assert found(lu.ones(9, 5), lu.ones(9, 1)).tolist() == [9.0] * 6
    decides = export(Fn(_decides), (lu.ones(7),), dynamic_shapes={"args": ({0: Dim.AUTO},)})
    [known] = decides.range_constraints.values()
    assert known.least == 6
    assert known.most > 1000
    fixed = export(Fn(_loops), (lu.ones(3),), dynamic_shapes={"args_0": {0: Dim.AUTO}})
    assert not fixed.range_constraints


def test_dynamic_must_change() -> None:
    with pytest.raises(ExportError, match="not one program"):
        export(Fn(_loops), (lu.ones(3),), dynamic_shapes={"args_0": {0: Dim.DYNAMIC}})


def test_dims_share_a_range() -> None:
    rows, columns = dims("rows", "columns", min=3)
    assert (rows.min, columns.name) == (3, "columns")
    assert repr(rows * 2 - 1) == "2*rows - 1"
