"""Laws: random programs are what they are exported as, at any size, and their text parses back."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as lu
from lucerne._src.ir.graph import verify
from lucerne._src.ir.text import parse
from lucerne.control_flow import cond, scan
from lucerne.export import Dim, export, load, save
from tests.export.rows import Fn

STEPS: dict[str, Any] = {
    "sin": lambda x: x.sin(),
    "scale": lambda x: x * x.shape[0] + 1,
    "flip": lambda x: x.flip(0),
    "roll": lambda x: lu.cat([x[1:], x[:1]]),
    "twice": lambda x: lu.cat([x, -x]),
    "half": lambda x: x.reshape(-1, 2).repeat(1, 2),
    "centre": lambda x: x - x.mean(0),
    "softmax": lambda x: x.softmax(0),
    "gram": lambda x: x @ (x.t() @ x).tanh(),
    "write": lambda x: _written(x),
    "decide": lambda x: cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)),
    "loop": lambda x: scan(lambda c, v: (c + v, c * v), lu.ones(4), x)[1],
    "count": lambda x: x + lu.arange(x.shape[0]).unsqueeze(1),
}
FOR_ONE_SIZE = {"loop"}
"""Steps whose number follows from a size: another program for each."""


def _written(x: Any) -> Any:
    y = x.clone()
    y[1:, :2] = y[:-1, 2:] * 3
    y[:, 3].add_(1)
    return y


def _through(names: list[str]) -> Any:
    def run(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x

    return run


names = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(names, st.integers(2, 9), st.integers(1, 12), st.integers(0, 99))
def test_exported_at_one_size_runs_at_others(chosen: list[str], n: int, m: int, seed: int) -> None:
    fixed = bool(FOR_ONE_SIZE & set(chosen))
    lu.manual_seed(seed)
    module = Fn(_through(chosen))
    spec = None if fixed else {"args_0": {0: Dim("n", min=1)}}
    program = export(module, (lu.randn(n, 4),), dynamic_shapes=spec)
    file = io.BytesIO()
    save(program, file)
    loaded = load(io.BytesIO(file.getvalue())).module()
    sizes = [n] if fixed else [n, m]
    for size in sizes:
        if size >= next(iter(program.range_constraints.values())).least if not fixed else True:
            x = lu.randn(size, 4)
            lu.testing.assert_close(loaded(x.clone()), module(x.clone()))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(names, st.integers(2, 6))
def test_text_of_a_graph_parses_back(chosen: list[str], n: int) -> None:
    graph = export(Fn(_through(chosen)), (lu.randn(n, 4),), check=False).plan.graph
    again = parse(str(graph))
    assert str(again) == str(graph)
    verify(again, deep=True)
