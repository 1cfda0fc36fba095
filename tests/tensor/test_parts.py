"""Parts of complex tensors as views: returned beside their base, and written through."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

BESIDE: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "imag": lambda y: (y, y.imag),
    "some real": lambda y: (y, y.real[1:]),
    "imag of the conjugate": lambda y: (y, y.conj().imag),
    "some of the conjugate": lambda y: (y, y.conj()[1:]),
    "of a conjugate": lambda y: (y.conj(), y.conj().imag, y.conj().real),
    "of a view": lambda y: (y[1:], y[1:].imag),
    "complex of pairs": lambda y: (p := torch.view_as_real(y) * 1, torch.view_as_complex(p)[1:]),
}


def _given() -> Any:
    return torch.tensor([1 + 2j, 3 - 1j, 2 + 0.5j], requires_grad=True)


def _values(found: Any) -> list[Any]:
    return [x.resolve_conj().resolve_neg().tolist() for x in found]


@pytest.mark.parametrize("name", BESIDE)
def test_a_part_beside_its_base(name: str) -> None:
    """Compiled, the part is made anew as a view of the result: with no word of an error."""

    def fn(z: Any) -> Any:
        return BESIDE[name](z * 2)

    found = []
    for call in (fn, torch.compile(fn)):
        z = _given()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = call(z)
            sum((x.abs() ** 2).sum() for x in results).backward()
        apart = results[1].data_ptr() - results[0].data_ptr()
        found.append((_values(results), z.grad.tolist(), apart))
    assert found[1] == found[0]


def _of_its_own(z: Any) -> Any:
    y = z * 2
    y.imag.mul_(3)
    y.real[1:].add_(1)
    y.conj().imag.sub_(2)
    return y


def _given_ones(z: Any) -> Any:
    z.imag.mul_(3)
    z.conj().imag.add_(1)
    z.conj()[1:].mul_(1j)
    return z * 1


@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("fn", [_of_its_own, _given_ones])
@pytest.mark.parametrize("around", [torch.func.functionalize, torch.compile])
def test_writes_through_parts(around: Any, fn: Any, conj: bool) -> None:
    found = []
    for call in (fn, around(fn)):
        z = _given().detach()
        z = z.conj() if conj else z
        found.append(_values([call(z), z]))
    assert found[1] == found[0]


def test_a_view_with_another_dtype_is_refused() -> None:
    def fn(x: Any) -> Any:
        y = x * 1
        y.view(torch.int32).add_(1)
        return y

    with pytest.raises(NotImplementedError, match=r"through a torch.int32 view of a torch.float32"):
        torch.func.functionalize(fn)(torch.ones(2))
