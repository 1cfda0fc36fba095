"""What a beginner reads after a common mistake: which argument is wrong, in torch's words."""

import pickle
from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne import nn
from lucerne.nn import functional as F

X = lu.ones(2, 3)
Y = lu.tensor([0, 1])

CALLS = {
    "linear": ("input", lambda bad: F.linear(bad, X, lu.ones(2))),
    "relu": ("input", F.relu),
    "softmax": ("input", lambda bad: F.softmax(bad, dim=0)),
    "conv2d": ("input", lambda bad: F.conv2d(bad, lu.ones(1, 1, 1, 1))),
    "mean": ("input", lu.mean),
    "layer_norm": ("input", lambda bad: F.layer_norm(bad, (3,), lu.ones(3))),
    "dropout": ("input", F.dropout),
    "cross_entropy": ("target", lambda bad: F.cross_entropy(X, bad)),
    "mm": ("mat2", lambda bad: lu.mm(X, bad)),
    "matmul": ("other", lambda bad: lu.matmul(X, bad)),
    "max_pool2d": ("input", lambda bad: F.max_pool2d(bad, 2)),
    "argmax": ("input", lu.argmax),
    "nll_loss": ("input", lambda bad: F.nll_loss(bad, Y)),
    "one_hot": ("tensor", F.one_hot),
    "unsqueeze": ("input", lambda bad: lu.unsqueeze(bad, 0)),
}
WRONG = {"list": [1.0, 2.0], "NoneType": None, "str": "x", "numpy.ndarray": np.ones((2, 3))}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", CALLS)
def test_the_argument_is_named(name: str, kind: str) -> None:
    argument, call = CALLS[name]
    if (name, kind) == ("argmax", "numpy.ndarray"):
        pytest.skip("NumPy's array has an argmax of its own, and gives the number")
    with pytest.raises(TypeError, match=rf"argument '{argument}'.* must be Tensor, not {kind}"):
        call(WRONG[kind])


def test_lists_of_tensors_name_the_element() -> None:
    with pytest.raises(TypeError, match="expected Tensor as element 1 in argument 0, but got"):
        lu.stack([X, None])
    with pytest.raises(TypeError, match="expected Tensor as element 0 in argument 1, but got"):
        lu.einsum("ij->i", np.ones((2, 3)))


def test_such_an_error_is_a_plain_type_error_elsewhere() -> None:
    with pytest.raises(TypeError) as caught:
        lu.mean([1.0])
    assert type(caught.value).__name__ == "TypeError"
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is TypeError
    assert str(again) == str(caught.value)


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        lu.add(lu.ones(2), lu.ones(3))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lu.ones(2).nonsense  # noqa: B018
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        nn.Linear(4, 2)(lu.ones(3, 5))


def _linear(dtype: Any) -> Any:
    return nn.Linear(4, 2)(lu.ones(3, 4, dtype=dtype))


MESSAGES = [
    (lambda: _linear(lu.float64), RuntimeError, "same dtype, but got Double and Float"),
    (lambda: _linear(lu.int64), RuntimeError, "same dtype, but got Long and Float"),
    (lambda: F.binary_cross_entropy(lu.ones(2), lu.ones(2).long()), RuntimeError,
     "Found dtype Long but expected Float"),
    (lambda: F.nll_loss(lu.ones(2), Y), ValueError, "1D target must have size 1"),
    (lambda: X.masked_fill(X, 0), RuntimeError, "boolean masks, but got mask with dtype float"),
    (lambda: X.cuda(), AssertionError, "Torch not compiled with CUDA enabled"),
    (lambda: X.cuda(), RuntimeError, "no backend serves device 'cuda'; known devices: cpu"),
    (lambda: nn.Sequential(F.relu), TypeError, "relu is not a Module subclass"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), MESSAGES)
def test_message(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
