"""`_foreach_*` against PyTorch: every function, in each form of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne as lu  # noqa: E402
from lucerne._src.tensor import foreach  # noqa: E402
from tests.optim.bridge import assert_close, to_lucerne  # noqa: E402

pytestmark = pytest.mark.torch


UNARY, BINARY = foreach.UNARY, foreach.BINARY
FLOATS = (torch.float32, torch.bfloat16, torch.float64)


def _tensors(dtype: Any, low: float = 0.1) -> list[Any]:
    """Three tensors: a matrix, a number, none."""
    rng = np.random.default_rng(0)
    shapes = ((3, 4), (), (0, 2))
    made = [torch.tensor(rng.uniform(low, 3.0, s)) for s in shapes]
    return [t.to(dtype) for t in made]


def _rows() -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Name, dtype, other arguments."""
    rows: list[tuple[str, Any, tuple[Any, ...]]] = []
    for dtype in (*FLOATS, torch.int64):
        lists = _tensors(dtype, 1.0)
        rows += [(name, dtype, ()) for name in (*UNARY, "clone", "zero")]
        for name in BINARY:
            rows += [(name, dtype, (2,)), (name, dtype, (1.5,)), (name, dtype, (lists,))]
            rows.append((name, dtype, ([1, 2, 3],)))
        rows += [(name, dtype, (torch.tensor(2.0),)) for name in ("add", "mul", "div")]
        rows.append(("copy", dtype, (lists,)))
        rows += [(name, dtype, (lists, [0.5, 1.0, 2.0])) for name in ("lerp",)]
        rows += [("lerp", dtype, (lists, 0.3)), ("lerp", dtype, (lists, lists))]
        for name in ("addcmul", "addcdiv"):
            rows.append((name, dtype, (lists, lists)))
            if dtype is not torch.int64:  # PyTorch truncates the factor
                rows.append((name, dtype, (lists, lists, 0.5)))
            rows.append((name, dtype, (lists, lists, [1, 2, 3])))
            rows.append((name, dtype, (lists, lists, torch.tensor([1.0, 2.0, 3.0]))))
        rows += [("norm", dtype, (p,)) for p in (1, 2, float("inf"))]
        rows += [("powsum", dtype, (3,)), ("max", dtype, ())]
    return rows


def _outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except (RuntimeError, TypeError, NotImplementedError, ValueError) as error:
        return type(error)


def _check(name: str, dtype: Any, args: tuple[Any, ...], suffix: str) -> None:
    name = f"_foreach_{name}{suffix}"
    theirs = getattr(torch, name, None)
    if theirs is None:
        return
    tensors = _tensors(dtype)
    tensors = tensors[:2] if "max" in name and not args else tensors
    mine = to_lucerne(tensors)
    expected = _outcome(theirs, tensors, *args)
    got = _outcome(getattr(lu, name), mine, *to_lucerne(args))
    if isinstance(expected, type):
        assert isinstance(got, type), f"torch raises {expected}, lucerne gives {got}"
        return
    assert not isinstance(got, type), f"lucerne raises {got}"
    if suffix:
        got, expected = mine, tensors
    tolerance = {torch.bfloat16: 1.6e-2, torch.float64: 1e-10}.get(dtype, 2e-5)
    assert_close(list(got), list(expected), tolerance, tolerance, name)


def _shown(row: Any) -> str:
    name, dtype, args = row
    kinds = [type(a[0] if isinstance(a, list) else a).__name__ for a in args]
    return f"{name}-{dtype}-{'-'.join(kinds)}"


@pytest.mark.parametrize("row", _rows(), ids=_shown)
def test_foreach(row: Any) -> None:
    for suffix in ("", "_"):
        _check(*row, suffix)


def test_every_name_of_torch_is_there() -> None:
    names = [n for n in dir(torch) if n.startswith("_foreach")]
    assert len(names) > 80
    assert [n for n in names if not hasattr(lu, n)] == []


ERRORS = [
    (lambda t: t._foreach_add([t.ones(2)], [t.ones(2)] * 2), "same number of tensors, got 1 and 2"),
    (lambda t: t._foreach_exp([]), "at least one tensor"),
    (lambda t: t._foreach_add([t.ones(2)], [1.0, 2.0]), "same number of elements as scalar list"),
    (lambda t: t._foreach_abs(t.ones(2)), "must be tuple of Tensors, not Tensor"),
    (lambda t: t._foreach_max([t.ones(0)]), "maximum of an empty tensor"),
    (
        lambda t: t._foreach_addcmul([t.ones(2)], [t.ones(2)], [t.ones(2)], t.ones(2)),
        "Expected length of scalars to match input of length 1 but got 2",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors_say_what_torchs_say(call: Any, message: str) -> None:
    for module in (torch, lu):
        with pytest.raises((RuntimeError, TypeError), match=message):
            call(module)


def test_results_are_recorded_and_in_place_is_in_place() -> None:
    x = lu.ones(2, requires_grad=True)
    lu._foreach_mul([x, x], 3.0)[1].sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    given = [lu.zeros(2)]
    assert lu._foreach_add_(given, 1) is given
    assert given[0].tolist() == [1.0, 1.0]
