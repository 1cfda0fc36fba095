"""Compiled functions without a schema, and the way of tensors into them and back."""

import gc
import weakref
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.tensor.storage import FAST
from lucerne.utils._python_dispatch import TorchDispatchMode
from tests.cpp.sources import extension, needs_compiler

pytestmark = needs_compiler

# a call, its result
CALLS = [
    (lambda e: e.stride(torch.zeros(3, 4), 0), 4),
    (lambda e: e.stride(torch.zeros(3, 4).t(), 0), 1),
    (lambda e: e.stride(torch.zeros(4, 6)[1:, ::2], 1), 2),
    (lambda e: e.first(torch.arange(6.0)[2:]), 2.0),
    (lambda e: e.first(torch.nn.Parameter(torch.ones(2)).detach()), 1.0),
    (lambda e: e.sizes([torch.zeros(3), torch.zeros(2, 2)]), 7),
    (lambda e: e.sizes([]), 0),
    (lambda e: e.greet("you"), "hello you"),
    (lambda e: e.doubled(torch.arange(3.0)).tolist(), [0.0, 2.0, 4.0]),
    (lambda e: e.doubled(torch.tensor(3.0)).item(), 6.0),
    (lambda e: list(e.doubled(torch.empty(2, 0)).shape), [2, 0]),
    (lambda e: e.doubled(torch.ones(2)).add_(1).tolist(), [3.0, 3.0]),
    (lambda e: e.doubled.__doc__, "doubled"),
]


@pytest.mark.parametrize(("call", "result"), CALLS)
def test_functions_are_called(call: Any, result: Any) -> None:
    assert call(extension()) == result


@pytest.mark.parametrize("name", [
    "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool", "complex64", "complex32",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
])  # fmt: skip
def test_every_type_goes_in_and_comes_back(name: str) -> None:
    dtype = getattr(torch, name)
    x = torch.ones(2, 3).to(dtype).t()
    back = extension().itself(x)
    assert back.dtype is dtype
    assert (back.shape, back.stride()) == (x.shape, x.stride())
    assert back.data_ptr() == x.data_ptr()


def test_what_comes_back_keeps_its_memory() -> None:
    x = torch.arange(1000.0)
    memory = weakref.ref(x._storage.buffer) if FAST is not None else None
    back = extension().itself(x)
    del x
    gc.collect()
    assert back.sum().item() == 499500.0
    assert memory is None or memory() is not None
    del back
    gc.collect()
    assert memory is None or memory() is None


def test_memory_survives_another_one_in_its_place() -> None:
    x = torch.arange(4.0)
    back = extension().itself(x)
    x.set_(torch.zeros(9))
    torch.ones(4)
    assert back.tolist() == [0.0, 1.0, 2.0, 3.0]


# what is given, the error, what it says
REFUSED = [
    (lambda e: e.first(torch.ones(2, requires_grad=True)), "gradient"),
    (lambda e: e.first(torch.ones(2, requires_grad=True) * 2), "gradient"),
    (lambda e: e.itself(torch.ones(2, dtype=torch.complex64).conj()), "conj"),
    (lambda e: e.first(torch.ones(2, device="meta")), "meta|no data"),
    (lambda e: e.first(torch.ones(0)), "there is no first element"),
    (lambda e: e.first(1.5), "float|Expected"),
    (lambda e: e.first(), "0 arguments|0 args|Expected|Mismatched number"),
    (lambda e: e.nothing(torch.ones(1)), "exports no function 'nothing'"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_what_would_go_wrong_is_refused(call: Any, says: str) -> None:
    with pytest.raises(Exception, match=says):
        call(extension())


def test_without_gradients_parameters_are_taken() -> None:
    with torch.no_grad():
        assert extension().first(torch.nn.Parameter(torch.ones(2))) == 1.0


class _Watcher(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_a_mode_does_not_change_what_a_function_sees() -> None:
    with _Watcher() as watcher:
        assert extension().first(torch.ones(2)) == 1.0
    assert watcher.seen


def test_compiled_functions_break_for_it() -> None:
    e = extension()
    assert torch.compile(lambda x: x * e.first(x))(torch.full((2,), 3.0)).tolist() == [9.0, 9.0]
    with pytest.raises(Exception, match="first"):
        torch.compile(lambda x: x * e.first(x), fullgraph=True)(torch.ones(2))
