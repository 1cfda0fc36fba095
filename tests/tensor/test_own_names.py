"""Attributes of a subclass that are called as fields of Lucerne's tensors are: as in torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import lucerne

BOTH = [lucerne, pytest.param("torch", marks=pytest.mark.torch)]


class Described:
    """As MONAI's MetaObj."""

    def __init__(self) -> None:
        self._meta: Any = {"spacing": 2}

    @property
    def meta(self) -> Any:
        return self._meta if hasattr(self, "_meta") else "none"

    @meta.setter
    def meta(self, value: Any) -> None:
        self._meta = value


def picture(torch: Any) -> Any:
    class Picture(Described, torch.Tensor):  # type: ignore[misc]
        def __new__(cls, x: Any) -> Any:
            return torch.as_tensor(x).as_subclass(cls)

        def __init__(self, x: Any) -> None:
            super().__init__()
            self._view = "sagittal"

        def view_name(self) -> Any:
            return self._view

        def forget(self) -> None:
            del self._view

    return Picture(torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize("module", BOTH)
def test_attributes_called_as_fields_are(module: Any) -> None:
    x = picture(pytest.importorskip(module) if module == "torch" else module)
    assert x.meta == {"spacing": 2}
    assert (x.ndim, x.shape, (x + 1).sum().item()) == (2, (2, 3), 21.0)
    assert x[0].shape == (3,)
    assert (x + 1).meta == "none"  # a result has none before it is given one
    x.meta = {"spacing": 3}
    assert (x.meta, x.T.shape) == ({"spacing": 3}, (3, 2))
    assert x.view_name() == "sagittal"
    x.mul_(2)
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert copy.copy(x).meta == {"spacing": 3}
    x.forget()
    with pytest.raises(AttributeError, match="'Picture' object has no attribute '_view'"):
        x.view_name()


def test_compiled() -> None:
    def described(x: Any) -> Any:
        x.meta = {**x.meta, "more": 1}
        return x * 2 + len(x.meta)

    compiled, x = lucerne.compile(described), picture(lucerne)
    for _ in range(3):
        assert compiled(x).tolist() == [[2, 4, 6], [8, 10, 12]]
    assert x.meta == {"spacing": 2, "more": 1}


def test_fields_that_are_only_read_stay_fields() -> None:
    class Reading(lucerne.Tensor):
        def kind(self) -> Any:
            return self._meta.dtype

    assert lucerne.ones(2).as_subclass(Reading).kind() is lucerne.float32
