"""wrap: global functions that stay single nodes."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne


def leaf_function(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


lucerne.fx.wrap("leaf_function")
lucerne.fx.wrap("len")


def test_wrapped_functions_stay_whole() -> None:
    def f(x: Any) -> Any:
        return leaf_function(x) * len(x)

    ours = lucerne.fx.symbolic_trace(f)
    assert [n.name for n in ours.graph.nodes] == ["x", "leaf_function", "len_1", "mul", "output"]
    assert 'wrap("tests_fx_test_wrap_leaf_function")' in ours.code
    assert ours(lucerne.tensor([-1.0, -2.0])).tolist() == [2.0, 4.0]
    assert leaf_function(lucerne.tensor([2.0])).tolist() == [2.0]


def test_wrap_belongs_at_module_level() -> None:
    with pytest.raises(NotImplementedError, match="top level"):
        lucerne.fx.wrap("leaf_function")
