"""Where a tensor lies in its storage is not in its meta: calls that ask are not repeated blindly,
eager or compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.tensor.eager.specialize import PlaceQuestions

Row = Callable[[Any], Any]
ROWS: dict[str, Row] = {
    "from the storage's beginning": lambda x: x.as_strided((2,), (1,), 5) * 1,
    "inside": lambda x: x.as_strided((2, 2), (1, 2)) * 1,
    "further than the tensor": lambda x: x.as_strided((3, 3), (1, 3)) * 1,
    "of a view": lambda x: x[2:].as_strided((2,), (1,), 4) * 1,
    "of something made": lambda x: (x * 2).as_strided((2,), (1,), 3) * 1,
    "elements of another size": lambda x: x.view(torch.int64) * 1,
    "the offset itself": lambda x: x + x.storage_offset(),
    "bytes of the storage": lambda x: x + x.untyped_storage().nbytes(),
    "two of them": lambda x: torch.as_strided(x, (2,), (1,), 6) + x.as_strided((2,), (1,), 5),
    "made another": lambda x: x.as_strided_((2,), (1,)),
    "its diagonal": lambda x: x.as_strided((2, 2), (2, 1)).fill_diagonal_(7) * 1,
    "copied": lambda x: torch.as_strided_copy(x, (2,), (1,), 5),
    "copied as other elements": lambda x: torch.view_copy(x, torch.int64),
    "scattered": lambda x: torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), 5),
    "scattered further": lambda x: torch.as_strided_scatter(x, torch.ones(7), (7,), (1,)),
}
PLACES: dict[str, Callable[[], Any]] = {
    "behind 4 of 20": lambda: torch.arange(20.0)[4:10],
    "behind 5 of 20": lambda: torch.arange(20.0)[5:11],
    "first of 20": lambda: torch.arange(20.0)[:6],
    "behind 2 of 8": lambda: torch.arange(8.0)[2:],
    "all of 6": lambda: torch.arange(6.0),
}


def answers(fn: Row, names: list[str]) -> list[Any]:
    found: list[Any] = []
    for name in names:
        try:
            found.append(fn(PLACES[name]()).tolist())
        except RuntimeError as error:
            found.append(str(error).partition(":")[0])
    return found


@pytest.mark.torch
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", ROWS)
def test_the_place_counts_in_eager(name: str, order: int) -> None:
    """In turn, and again: a remembered call is that of another place."""
    theirs = pytest.importorskip("torch")
    names = list(PLACES)[::order]
    ours = answers(ROWS[name], names * 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "torch", theirs)
        assert ours == answers(ROWS[name], names * 3)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ROWS)
def test_the_place_counts_compiled(name: str, dynamic: bool | None, order: int) -> None:
    names = list(PLACES)[::order]
    eager = answers(ROWS[name], names)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing of it is an internal error
        compiled = torch.compile(ROWS[name], dynamic=dynamic)
        assert answers(compiled, names * 2) == eager * 2
    assert PlaceQuestions.told is None


def test_a_tensor_that_fills_its_storage_may_have_any_size() -> None:
    compiled = torch.compile(lambda x: x.as_strided((2,), (1,), 1) + x.sum())
    for n in range(3, 40):
        x = torch.arange(float(n))
        assert torch.equal(compiled(x), x[1:3] + x.sum())
    assert compiled.traces <= 3
