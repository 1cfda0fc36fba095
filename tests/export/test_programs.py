"""Exported programs do what their modules do: at once, from a file, at other sizes, compiled."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import lucerne as lu
from lucerne._src.capture.trace.pytree import flatten
from lucerne.export import export, load, save
from tests.export.rows import ROWS, Row

_HEAVY = {
    "resnet in training",
    "resnet",
    "image sizes",
    "encoder",
    "lstm",
    "gru, all of it",
    "both sizes",
}


def run(module: Any, args: Any, kwargs: Any, grad: bool = False) -> list[Any]:
    """Leaves of the result, of the arguments afterwards, of the state, then gradients."""
    module = copy.deepcopy(module)
    lu.manual_seed(3)
    given: list[Any] = []
    flatten(args, given)
    with lu.set_grad_enabled(grad):
        result = module(*args, **(kwargs or {}))
    found: list[Any] = []
    flatten(result, found)
    if grad:
        ends = [p for _, p in sorted(module.named_parameters())]
        outs = [x for x in found if isinstance(x, lu.Tensor) and x.requires_grad]
        if outs and ends:
            total = sum((x.float() * x.detach().float().cos()).sum() for x in outs)
            found += lu.autograd.grad(total, ends, allow_unused=True)
    state = [t for _, t in sorted(module.state_dict().items())]
    return [*found, *given, *state]


def same(got: list[Any], want: list[Any], tolerance: float = 0.0) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, lu.Tensor):
            assert a == b
        else:
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            lu.testing.assert_close(a.detach(), b.detach(), rtol=tolerance, atol=tolerance)


def fresh(row: Row, n: int) -> Any:
    lu.manual_seed(n)
    return copy.deepcopy(row.args(n))


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_file_does_what_module_does(row: Row) -> None:
    lu.manual_seed(0)
    module = row.make()
    program = export(module, fresh(row, 4), row.kwargs, dynamic_shapes=_spec(row))
    file = io.BytesIO()
    save(program, file)
    loaded = load(io.BytesIO(file.getvalue()))
    for n in (4, *row.sizes):
        want = run(module, fresh(row, n), row.kwargs)
        same(run(program.module(), fresh(row, n), row.kwargs), want)
        same(run(loaded.module(), fresh(row, n), row.kwargs), want)
    assert list(loaded.state_dict) == list(module.state_dict())
    assert loaded.graph_signature == program.graph_signature


def _spec(row: Row) -> Any:
    """`Fn` takes *args, whose entries are named by their numbers."""
    if row.dynamic and isinstance(row.dynamic, tuple) and type(row.make()).__name__ == "Fn":
        return {f"args_{k}": x for k, x in enumerate(row.dynamic)}
    return row.dynamic


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.name not in {"autograd inside"}], ids=lambda r: r.name
)
def test_gradients_flow(row: Row) -> None:
    lu.manual_seed(0)
    module = row.make()
    program = export(module, fresh(row, 4), row.kwargs, check=False)
    want = run(module, fresh(row, 4), row.kwargs, grad=True)
    same(run(program.module(), fresh(row, 4), row.kwargs, grad=True), want, 1e-5)


_ON_REFERENCE = {"mlp", "attention", "counter", "regions", "cond", "checked index"}


def _is_long(row: Row, backend: str) -> bool:
    return row.name not in _ON_REFERENCE if backend == "reference" else row.name in _HEAVY


_COMPILED = [
    pytest.param(r, b, marks=[pytest.mark.nightly] if _is_long(r, b) else [])
    for r in ROWS
    for b in ("cpu", "reference")
    if r.name not in ("noise", "dropout")
]


@pytest.mark.parametrize(("row", "backend"), _COMPILED, ids=lambda x: getattr(x, "name", x))
def test_pipeline_does_what_module_does(row: Row, backend: str) -> None:
    lu.manual_seed(0)
    module = row.make()
    program = export(module, fresh(row, 4), row.kwargs, dynamic_shapes=_spec(row), check=False)
    for n in (4, *row.sizes[-1:]):
        want = run(module, fresh(row, n), row.kwargs)
        got = program.module().compiled(backend)
        tolerance = 2e-2 if row.name == "bfloat16" else 2e-5
        same(_run_as_it_is(got, fresh(row, n), row.kwargs), _without_state(want, module), tolerance)


def _run_as_it_is(module: Any, args: Any, kwargs: Any) -> list[Any]:
    """`run` without a copy of the module, whose buffers are shared with the original."""
    before = [t.clone() for t in module.state_dict().values()]
    lu.manual_seed(3)
    given: list[Any] = []
    flatten(args, given)
    with lu.no_grad():
        result = module(*args, **(kwargs or {}))
        for t, old in zip(module.state_dict().values(), before, strict=True):
            t.copy_(old)
    found: list[Any] = []
    flatten(result, found)
    return [*found, *given]


def _without_state(leaves: list[Any], module: Any) -> list[Any]:
    return leaves[: len(leaves) - len(module.state_dict())]


def test_comparison_notices_a_difference() -> None:
    with pytest.raises(AssertionError):
        same([lu.ones(2)], [lu.ones(2) + 1e-3])
    with pytest.raises(AssertionError):
        same([lu.ones(2)], [lu.ones(2, dtype=lu.float64)])
