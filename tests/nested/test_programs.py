"""Programs over ragged batches against loops over the entries, padded batches, and torch."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lucerne
from lucerne import nn

F = nn.functional
QUICK = (Phase.explicit, Phase.generate)
LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)
WIDE = 4


def entries_of(lengths: list[int], grad: bool = False) -> list[Any]:
    lucerne.manual_seed(sum(lengths) + len(lengths))
    made = [lucerne.randn(n, WIDE, dtype=lucerne.float64) for n in lengths]
    return [t.requires_grad_(grad) for t in made]


def jagged(entries: list[Any]) -> Any:
    return lucerne.nested.as_nested_tensor(entries, layout=lucerne.jagged)


def same(nested: Any, wanted: list[Any]) -> None:
    """Entry by entry."""
    found = nested.unbind()
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-9)


def test_same_sees_a_difference() -> None:
    with pytest.raises(AssertionError):
        same(jagged([lucerne.ones(2, 2)]), [lucerne.zeros(2, 2)])


weight = lucerne.arange(float(WIDE * WIDE), dtype=lucerne.float64).reshape(WIDE, WIDE) / 10
EACH: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: x.exp(),
    "gelu": lambda x: F.gelu(x),
    "sigmoid": lambda x: x.sigmoid() * x,
    "add": lambda x: x + x * 2 - 1,
    "row": lambda x: x * weight[0],
    "where": lambda x: lucerne.where(x > 0, x, x * 0.1),
    "matmul": lambda x: x @ weight,
    "linear": lambda x: F.linear(x, weight, weight[1]),
    "layer_norm": lambda x: F.layer_norm(x, (WIDE,), weight[0] + 1, weight[1]),
    "rms_norm": lambda x: F.rms_norm(x, (WIDE,)),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "sum": lambda x: x.sum(-1),
    "kept": lambda x: x.mean(-1, keepdim=True),
    "largest": lambda x: x.amax(-1),
    "chunk": lambda x: x.chunk(2, -1)[1],
    "split": lambda x: x.split([1, 3], -1)[0],
    "cat": lambda x: lucerne.cat([x, x * 2], -1),
    "heads": lambda x: x.unflatten(-1, (2, 2)).flatten(-2, -1),
    "selected": lambda x: x.select(-1, 1),
    "narrow": lambda x: x.narrow(-1, 1, 2),
    "unsqueezed": lambda x: x.unsqueeze(-1).squeeze(-1),
    "clamped": lambda x: x.clamp(-0.5, 0.5),
    "typed": lambda x: x.to(lucerne.float32).double(),
    "sliced": lambda x: x[..., 1:],
}


@pytest.mark.parametrize("name", EACH)
@settings(max_examples=6, deadline=None, phases=QUICK)
@given(LENGTHS)
def test_as_a_loop_over_entries(name: str, lengths: list[int]) -> None:
    function = EACH[name]
    ours, theirs = entries_of(lengths, grad=True), entries_of(lengths, grad=True)
    found = function(jagged(ours))
    wanted = [function(t) for t in theirs]
    same(found, wanted)
    (found * found).sum().backward()
    sum((t * t).sum() for t in wanted).backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-8)


ROWS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "mean": lambda x, d: x.mean(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "prod": lambda x, d: x.prod(d),
    "kept": lambda x, d: x.sum(d, keepdim=True),
    "any": lambda x, d: (x > 1).any(d),
    "all": lambda x, d: (x > -1).all(d),
    "softmax": lambda x, d: x.softmax(d),
    "log_softmax": lambda x, d: x.log_softmax(d),
}


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=6, deadline=None, phases=QUICK)
@given(LENGTHS)
def test_over_the_ragged_dimension(name: str, lengths: list[int]) -> None:
    function = ROWS[name]
    ours, theirs = entries_of(lengths, grad=True), entries_of(lengths, grad=True)
    found = function(jagged(ours), 1)
    wanted = [function(t, 0) for t in theirs]
    same(found, wanted)
    if name in ("any", "all"):
        return
    (found * found).sum().backward()
    sum((t * t).sum() for t in wanted).backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-8, atol=1e-8)


@settings(max_examples=20, deadline=None, phases=QUICK)
@given(LENGTHS)
def test_padding_and_back(lengths: list[int]) -> None:
    entries = entries_of(lengths)
    nt = jagged(entries)
    padded = nt.to_padded_tensor(7.0)
    assert padded.shape == (len(lengths), max(lengths), WIDE)
    for row, t in zip(padded, entries, strict=True):
        assert row[: len(t)].equal(t)
        assert bool((row[len(t) :] == 7).all())
    listed = lucerne.nested.nested_tensor(entries)
    assert listed.to_padded_tensor(7.0).equal(padded)
    again = lucerne.nested.narrow(padded, 1, 0, lucerne.tensor(lengths), layout=lucerne.jagged)
    same(again.contiguous(), entries)
    same(nt.transpose(1, 2), [t.t() for t in entries])
    same(lucerne.cat([nt, nt]), entries + entries)
    assert lucerne.allclose(nt, nt.clone())
    assert lucerne.equal(nt, nt.clone())


@pytest.mark.parametrize("causal", [False, True])
@settings(max_examples=10, deadline=None, phases=QUICK)
@given(LENGTHS)
def test_attention_as_a_loop_over_entries(causal: bool, lengths: list[int]) -> None:
    def heads(x: Any) -> Any:
        return x.unflatten(-1, (2, 2)).transpose(-3, -2)

    ours, theirs = entries_of(lengths, grad=True), entries_of(lengths, grad=True)
    nt = jagged(ours)
    q, k, v = (heads(nt * n) for n in (1, 2, 3))
    found = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2, 3)
    wanted = []
    for t in theirs:
        a, b, c = (heads(t.unsqueeze(0) * n) for n in (1, 2, 3))
        made = F.scaled_dot_product_attention(a, b, c, is_causal=causal)
        wanted.append(made.transpose(1, 2).flatten(2, 3).squeeze(0))
    same(found, wanted)
    (found * found).sum().backward()
    sum((t * t).sum() for t in wanted).backward()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-7, atol=1e-7)


# ---- a transformer layer ----------------------------------------------------------------------


def make_layer(t: Any, width: int = 16, heads: int = 2) -> Any:
    """A pre-norm layer whose forward takes a ragged batch, or a padded one with its mask."""
    fn = t.nn.functional

    class Layer(t.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = t.nn.Embedding(11, width)
            self.before, self.between = t.nn.LayerNorm(width), t.nn.LayerNorm(width)
            self.qkv, self.out = t.nn.Linear(width, 3 * width), t.nn.Linear(width, width)
            self.up, self.down = t.nn.Linear(width, 4 * width), t.nn.Linear(4 * width, width)

        def forward(self, tokens: Any, mask: Any = None) -> Any:
            x = self.table(tokens)
            parts = self.qkv(self.before(x)).chunk(3, -1)
            q, k, v = (
                p.contiguous().unflatten(-1, (heads, width // heads)).transpose(1, 2) for p in parts
            )
            y = fn.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + self.out(y.transpose(1, 2).flatten(2, 3))
            return x + self.down(fn.gelu(self.up(self.between(x))))

    return Layer()


SENTENCES = [[1, 2, 3], [4, 5, 6, 7, 8], [9], [10, 1, 4]]


def ragged_run(t: Any, layer: Any) -> tuple[Any, list[Any]]:
    tokens = t.nested.nested_tensor([t.tensor(s) for s in SENTENCES], layout=t.jagged)
    made = layer(tokens)
    (made * made).values().sum().backward()
    return made.values(), [p.grad for p in layer.parameters()]


def padded_run(t: Any, layer: Any) -> tuple[Any, list[Any]]:
    longest = max(map(len, SENTENCES))
    tokens = t.tensor([s + [0] * (longest - len(s)) for s in SENTENCES])
    real = t.tensor([[i < len(s) for i in range(longest)] for s in SENTENCES])
    made = layer(tokens, real[:, None, None, :])[real]
    (made * made).sum().backward()
    return made, [p.grad for p in layer.parameters()]


def test_a_ragged_layer_is_the_padded_one() -> None:
    lucerne.manual_seed(0)
    layer = make_layer(lucerne)
    other = copy.deepcopy(layer)
    found, grads = ragged_run(lucerne, layer)
    wanted, padded = padded_run(lucerne, other)
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-5
    )
    for a, b in zip(grads, padded, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_ragged_layer_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer, other = make_layer(torch), make_layer(lucerne)
    other.load_state_dict({k: lucerne.tensor(v.numpy()) for k, v in layer.state_dict().items()})
    wanted, theirs = ragged_run(torch, layer)
    found, ours = ragged_run(lucerne, other)
    np.testing.assert_allclose(
        found.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)


def test_a_compiled_function_takes_nested_tensors() -> None:
    """At least it runs, and gives the same."""
    nt = jagged([t.detach() for t in entries_of([3, 1, 2])])

    def program(x: Any) -> Any:
        return (x * 2 + 1).softmax(-1).sum(1)

    found = lucerne.compile(program)(nt)
    np.testing.assert_allclose(found.numpy(), program(nt).numpy(), rtol=1e-12)


# ---- the object -------------------------------------------------------------------------------


def test_copies_and_pickles() -> None:
    nt = jagged([t.detach() for t in entries_of([3, 1])]).requires_grad_()
    listed = lucerne.nested.nested_tensor([lucerne.ones(2), lucerne.ones(3)])
    for x in (nt, listed):
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
            assert type(made) is type(x)
            same(made, list(x.unbind()))
            assert made.requires_grad == x.requires_grad


def test_gradients_of_a_leaf() -> None:
    nt = lucerne.nested.nested_tensor(
        [[1.0, 2.0], [3.0]], layout=lucerne.jagged, requires_grad=True
    )
    assert nt.grad is None
    (nt * nt).backward(lucerne.ones_like(nt.detach()))
    assert nt.grad.values().tolist() == [2.0, 4.0, 6.0]
    nt.grad = None
    assert nt.values().grad is None


def test_gradients_by_function() -> None:
    nt = lucerne.nested.nested_tensor(
        [[1.0, 2.0], [3.0]], layout=lucerne.jagged, requires_grad=True
    )
    dense = lucerne.tensor(2.0, requires_grad=True)
    made, other = lucerne.autograd.grad((nt * nt * dense).sum(), (nt, dense))
    assert made.is_nested
    assert made.values().tolist() == [4.0, 8.0, 12.0]
    assert float(other) == 14.0
    (made,) = lucerne.autograd.grad(nt * 3, nt, lucerne.ones_like(nt.detach()))
    assert made.values().tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="not have been used"):
        lucerne.autograd.grad(dense * 2, nt)


def test_in_place() -> None:
    nt = lucerne.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=lucerne.jagged)
    before = nt.values().data_ptr()
    nt.mul_(2).add_(1)
    nt += 1
    assert nt.values().tolist() == [4.0, 6.0, 8.0]
    assert nt.values().data_ptr() == before


def test_the_ragged_size_is_no_number() -> None:
    nt = lucerne.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=lucerne.jagged)
    assert nt.size(1) == (nt * 2).size(1)
    assert nt.view(2, nt.size(1)).values().tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="ragged dimension and no number"):
        range(nt.size(1))


def test_refusals_name_the_line() -> None:
    nt = lucerne.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=lucerne.jagged)
    with pytest.raises(
        NotImplementedError, match=r"cumsum has no form for nested(?s:.)*test_programs"
    ):
        nt.cumsum(1)
