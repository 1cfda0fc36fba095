"""Lines out of users' programs that `compile` has stumbled over: each does what Python does."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.capture.trace.composites import Composites

CALLS = 3


def op_that_breaks_after_ops(x: Any) -> Any:
    """The function to be called lies on the stack while its argument is computed."""
    y = x * 2
    (chosen,) = torch.where(y > 0)
    found = torch.nonzero(y < 0)
    counts = torch.bincount((y > 0).long(), minlength=2)
    return y[chosen], found, counts + 1


def named_arguments_of_a_call_that_raised(x: Any) -> Any:
    try:
        int("not a number", base=10)
    except ValueError:
        kind = isinstance(x, torch.Tensor)
    if x.sum() > 1e9:
        return x
    return x + int(kind)


def a_model_made_inside(x: Any) -> Any:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    return model, x + 1


def a_layer_replaced_inside(x: Any) -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0] = nn.Linear(4, 2)
    return model[0].weight.shape, x + 1


def tensors_of_the_meta_device(x: Any) -> Any:
    if x.sum() > 1e9:
        return x
    shape = torch.zeros(3, device="meta").shape
    return x * 2, shape


def a_random_choice(x: Any) -> Any:
    out = torch.zeros(4)
    for k in range(3):
        out = out + (x[k] if random.random() < 0.5 else x[k].flip(0))
    return out


LINES: list[Callable[[Any], Any]] = [
    op_that_breaks_after_ops,
    named_arguments_of_a_call_that_raised,
    a_layer_replaced_inside,
    tensors_of_the_meta_device,
    a_random_choice,
]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("line", LINES, ids=lambda f: f.__name__)
def test_compiled_as_it_is(line: Callable[[Any], Any]) -> None:
    compiled = torch.compile(line)
    for call in range(CALLS):
        torch.manual_seed(call)
        x = torch.randn(4, 4)[0] if line is not a_random_choice else torch.randn(4, 4)
        random.seed(call)
        want = line(x)
        random.seed(call)
        assert _same(want, compiled(x))


def test_the_comparison_can_fail() -> None:
    assert not _same((torch.ones(2),), (torch.zeros(2),))
    assert not _same((torch.ones(2),), ())


def test_a_model_made_inside_is_real() -> None:
    compiled = torch.compile(a_model_made_inside)
    for _ in range(CALLS):
        want, _ = a_model_made_inside(torch.ones(2, 4))
        got, _ = compiled(torch.ones(2, 4))
        assert torch.equal(want(torch.ones(2, 4)), got(torch.ones(2, 4)))


def test_a_generator_function() -> None:
    @torch.compile
    def batches(count: int) -> Iterator[Any]:
        for k in range(count):
            yield torch.ones(2) * k

    for _ in range(CALLS):
        assert [t.sum().item() for t in batches(3)] == [0.0, 2.0, 4.0]


def test_an_iterator_is_not_used_up() -> None:
    @torch.compile
    def collate(samples: Any) -> Any:
        words, labels = zip(*samples, strict=True)
        lengths = torch.tensor([0, *itertools.accumulate(len(w) for w in words[:-1])])
        return torch.tensor(list(itertools.chain(*words))), lengths, torch.tensor(labels)

    for _ in range(CALLS):
        samples = [([1, 2], 1.0), ([3], 0.0), ([4, 5], 1.0)]
        words, lengths, labels = collate(itertools.islice(samples, 2))
        assert (words.tolist(), lengths.tolist(), labels.tolist()) == ([1, 2, 3], [0, 2], [1, 0])


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(4, 4)

    def forward(self, token: Any, hidden: Any) -> Any:
        return self.step(hidden) + token[:, None].float()


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, target: Any) -> Any:
        hidden, out = torch.zeros(3, 4), torch.zeros(3, target.shape[1], 4)
        token = target[:, 0]
        for t in range(1, target.shape[1]):
            hidden = self.cell(token, hidden)
            out[:, t] = hidden
            token = target[:, t] if random.random() < 0.5 else hidden.argmax(1)
        return out


def test_a_compiled_layer_inside_a_compiled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, target = Decoder(), torch.randint(0, 4, (3, 5))
    random.seed(0)
    wanted = [model(target).detach() for _ in range(CALLS)]
    monkeypatch.setattr(Cell, "forward", torch.compile(Cell.forward))
    monkeypatch.setattr(Decoder, "forward", torch.compile(Decoder.forward))
    random.seed(0)
    for want in wanted:
        torch.testing.assert_close(model(target).detach(), want)


def test_backward_through_what_was_computed_before() -> None:
    """REINFORCE: the episode leaves its log-probabilities in a list that the update reads."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(2, 2)
            self.saved: list[Any] = []

    def update(model: Any, optimizer: Any, rate: float) -> Any:
        loss = torch.stack(model.saved).sum()
        if loss.item() > 1e9:
            return loss
        optimizer.zero_grad()
        (loss * rate).backward()
        optimizer.step()
        return loss

    def run(step: Any) -> list[float]:
        torch.manual_seed(0)
        model = Policy()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(CALLS):
            model.saved = [
                model.head(torch.randn(2)).log_softmax(0).gather(0, torch.tensor([k % 2])).sum()
                for k in range(4)
            ]
            losses.append(step(model, optimizer, 0.5).item())
        return losses

    assert run(torch.compile(update)) == pytest.approx(run(update), rel=1e-5)


def test_bodies_of_composites_for_sizes_that_were_not_traced() -> None:
    """`bitwise` keeps softmax whole; a program for other sizes asks for its body."""
    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1) + 1, mode="bitwise")
    compiled(torch.ones(4, 3))
    nodes = [n for e in compiled.entries for n in e.captured.graph.nodes]
    whole = [n for n in nodes if compiled.options.whole.graph_of(n) is not None]
    assert whole
    fresh = Composites("cpu", bitwise=True)
    assert [fresh.graph_of(n) is not None for n in whole] == [True] * len(whole)
