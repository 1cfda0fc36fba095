"""Mistakes of every day: the same class of error as torch's, and its text or a better one."""

from collections.abc import Callable
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROWS: dict[str, Callable[[Any], Any]] = {
    "features of a layer": lambda t: t.nn.Linear(4, 2)(t.ones(3, 5)),
    "channels of a convolution": lambda t: t.nn.Conv2d(3, 8, 3)(t.ones(1, 1, 8, 8)),
    "kernel larger than the image": lambda t: t.nn.Conv2d(3, 8, 5)(t.ones(1, 3, 3, 3)),
    "no channel dimension": lambda t: t.nn.Conv2d(3, 8, 3)(t.ones(8, 8)),
    "channels of a batch norm": lambda t: t.nn.BatchNorm2d(4)(t.ones(2, 3, 4, 4)),
    "batch norm of one sample": lambda t: t.nn.BatchNorm1d(4)(t.ones(1, 4)),
    "float class numbers": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.ones(2)),
    "class out of range": lambda t: t.nn.functional.cross_entropy(
        t.ones(2, 3), t.tensor([0, 3])
    ),
    "batch sizes of a loss": lambda t: t.nn.functional.cross_entropy(
        t.ones(2, 3), t.tensor([0, 1, 2])
    ),
    "one-hot integers": lambda t: t.nn.functional.cross_entropy(
        t.ones(2, 3), t.ones(2, 3).long()
    ),
    "logits for probabilities": lambda t: t.nn.functional.binary_cross_entropy(
        t.tensor([1.5]), t.tensor([1.0])
    ),
    "a column against a row": lambda t: t.nn.functional.binary_cross_entropy_with_logits(
        t.ones(2, 1), t.ones(2)
    ),
    "word out of range": lambda t: t.nn.Embedding(4, 2)(t.tensor([4])),
    "float words": lambda t: t.nn.Embedding(4, 2)(t.tensor([1.0])),
    "heads that do not divide": lambda t: t.nn.MultiheadAttention(10, 3),
    "features of an LSTM": lambda t: t.nn.LSTM(4, 5)(t.ones(3, 2, 6)),
    "dropout of 150 %": lambda t: t.nn.Dropout(1.5),
    "pooling a pixel": lambda t: t.nn.functional.max_pool2d(t.ones(1, 1, 1, 1), 2),
    "numpy() with a gradient": lambda t: t.ones(2, requires_grad=True).numpy(),
    "in place on a leaf": lambda t: t.ones(2, requires_grad=True).add_(1),
    "backward without a graph": lambda t: t.ones(2).sum().backward(),
    "backward of a vector": lambda t: (t.ones(2, requires_grad=True) * 2).backward(),
    "integers that need gradients": lambda t: t.tensor([1, 2], requires_grad=True),
    "grad of what was not used": lambda t: t.autograd.grad(
        t.ones(1, requires_grad=True).sum(), t.ones(1, requires_grad=True)
    ),
    "item() of many": lambda t: t.ones(2).item(),
    "if on many": lambda t: bool(t.ones(2) > 0),
    "mean of integers": lambda t: t.tensor([1, 2]).mean(),
    "view of another size": lambda t: t.ones(2, 3).view(4),
    "view of a transpose": lambda t: t.ones(2, 3).t().view(6),
    "cat of other sizes": lambda t: t.cat([t.ones(2, 3), t.ones(2, 4)]),
    "stack of other sizes": lambda t: t.stack([t.ones(2), t.ones(3)]),
    "index out of range": lambda t: t.ones(2)[3],
    "no such dimension": lambda t: t.ones(2, 3).sum(2),
    "expand to another size": lambda t: t.ones(2, 3).expand(2, 4),
    "integers times floats": lambda t: t.ones(2, 2) @ t.ones(2, 2).long(),
    "a ragged list": lambda t: t.tensor([[1, 2], [3]]),
    "from_numpy of a list": lambda t: t.from_numpy([1, 2]),
    "a number plus text": lambda t: t.ones(2) + "a",
    "names of a state_dict": lambda t: t.nn.Linear(2, 3).load_state_dict(
        t.nn.Sequential(t.nn.Linear(2, 3)).state_dict()
    ),
    "shapes of a state_dict": lambda t: t.nn.Linear(2, 3).load_state_dict(
        t.nn.Linear(3, 3).state_dict()
    ),
    "no forward": lambda t: t.nn.Module()(1),
    "a list of layers": lambda t: t.nn.Sequential([t.nn.Linear(2, 2)]),
    "a typing error in an attribute": lambda t: t.nn.Linear(2, 2).weigth,
    "a tensor for a parameter": lambda t: setattr(t.nn.Linear(2, 2), "weight", t.ones(2, 2)),
    "an unknown word of a layer": lambda t: t.nn.Linear(2, 3, biass=False),
    "no parameters": lambda t: t.optim.SGD([], lr=0.1),
    "a tensor of parameters": lambda t: t.optim.SGD(t.ones(2, requires_grad=True), lr=0.1),
    "a result as a parameter": lambda t: t.optim.SGD([t.ones(2, requires_grad=True) * 2], lr=0.1),
    "an unknown word of an optimizer": lambda t: t.optim.Adam(
        [t.ones(2, requires_grad=True)], momentum=0.9
    ),
    "a model for an optimizer": lambda t: t.optim.lr_scheduler.StepLR(t.nn.Linear(2, 2), 1),
    "samples of other sizes": lambda t: next(
        iter(t.utils.data.DataLoader([t.ones(2), t.ones(3)], batch_size=2))
    ),
    "no sample": lambda t: next(iter(t.utils.data.DataLoader([(t.ones(2), None)], batch_size=1))),
    "no such device": lambda t: t.ones(2).to("gpu"),
    "no GPU": lambda t: t.ones(2).to("cuda"),
    "no such file": lambda t: t.load("/no/such/file.pt"),
    "a value of meta": lambda t: t.ones(2, device="meta").item(),
}  # fmt: skip

OWN = {
    "dtype as text": (
        lambda t: t.ones(2, dtype="float16"),
        "argument 'dtype' must be torch.dtype, not str: got 'float16'. Hint: write torch.float16",
    ),
    "an unknown word": (
        lambda t: t.sum(t.ones(2), dims=0),
        "sum() got an unexpected keyword argument 'dims'. Did you mean 'dim'? It takes: input, dim",
    ),
    "an unknown word of a front": (
        lambda t: t.nn.functional.dropout(t.ones(2), prob=0.1),
        "dropout() got an unexpected keyword argument 'prob'. Did you mean 'p'? It takes: input, p",
    ),
    "an unknown word of a function of ours by another name": (
        lambda t: t.nn.functional.softmax(t.ones(2), axes=0),
        "softmax() got an unexpected keyword argument 'axes'. It takes: input, dim",
    ),
}


def _raised(call: Callable[[Any], Any], framework: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is compared by the caller
        call(framework)
    return caught.value


def _plain(text: str) -> str:
    """Without the name of the package, which is part of some texts."""
    return text.replace("lucerne", "torch")


@pytest.mark.parametrize("name", ROWS)
def test_the_text_is_torchs(name: str) -> None:
    want, got = _raised(ROWS[name], torch), _raised(ROWS[name], lucerne)
    assert isinstance(got, type(want))
    assert _plain(str(got)).startswith(_plain(str(want)))


@pytest.mark.parametrize("name", OWN)
def test_the_text_says_more(name: str) -> None:
    call, text = OWN[name]
    want, got = _raised(call, torch), _raised(call, lucerne)
    assert isinstance(got, type(want))
    assert str(got).startswith(text)


def test_a_backward_pass_names_the_line() -> None:
    x = lucerne.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time") as caught:
        y.backward()
    assert any("test_mistakes.py" in note for note in caught.value.__notes__)


def test_a_near_name_is_known_to_python() -> None:
    with pytest.raises(AttributeError, match="no attribute 'arrange'") as caught:
        lucerne.arrange  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("arrange", lucerne)
