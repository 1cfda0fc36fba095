"""Transforms of sparse and nested tensors, of modules with buffers, and of random functions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
import lucerne.autograd.forward_ad as fwAD
from lucerne.func import grad, jacrev, jvp, vjp, vmap

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TABLE = [[0.0, 1.0, 2.0], [3.0, 0.0, 5.0]]
F = lucerne.nn.functional

# ---- sparse ------------------------------------------------------------------------------------

SPARSE: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("sum", lambda s, v: s.sum()),
    ("abs", lambda s, v: s.abs() * 2),
    ("twice", lambda s, v: s + s),
    ("times dense", lambda s, v: s * v),
    ("dense", lambda s, v: s.to_dense()),
    ("dot", lambda s, v: (s.to_dense() * v).sum()),
]


def dense(t: Any) -> Any:
    return (t.to_dense() if t.layout not in (torch.strided, lucerne.strided) else t).numpy()


@pytest.mark.parametrize("f", [f for _, f in SPARSE], ids=[n for n, _ in SPARSE])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch, which loops
def test_vmap_over_sparse_tensors(f: Callable[..., Any]) -> None:
    found = [
        vmapped(f)(lib.tensor(TABLE).to_sparse(), lib.tensor(TABLE) + 1)
        for lib, vmapped in ((lucerne, vmap), (torch, torch.func.vmap))
    ]
    assert np.allclose(dense(found[0]), dense(found[1]))
    assert str(found[0].layout) == str(found[1].layout)


def test_vmap_over_columns_of_a_sparse_tensor() -> None:
    got = vmap(lambda s: s * 2, in_dims=1)(lucerne.tensor(TABLE).to_sparse())
    assert np.allclose(dense(got), 2 * np.array(TABLE).T)


def test_sparse_tensors_from_outside() -> None:
    s, x = lucerne.tensor(TABLE).to_sparse(), lucerne.ones(4, 3)
    want = np.stack([np.array(TABLE).sum(1)] * 4)
    assert np.allclose(vmap(lambda v: lucerne.mv(s, v))(x).numpy(), want)
    value, tangent = jvp(lambda v: lucerne.mv(s, v), (x[0],), (x[0] * 2,))
    assert np.allclose(tangent.numpy(), 2 * value.numpy())
    assert np.allclose(grad(lambda v: lucerne.mv(s, v).sum())(x[0]).numpy(), np.sum(TABLE, 0))


def test_gradients_by_a_sparse_tensor() -> None:
    for lib in (lucerne, torch):
        s, d = lib.tensor(TABLE).to_sparse(), lib.tensor(TABLE)
        got = lib.func.grad(lambda s: (s.to_dense() * d).sum())(s)  # noqa: B023
        assert got.is_sparse
        assert np.allclose(dense(got), TABLE)
        (pulled,) = lib.func.vjp(lambda s: s.to_dense() * 2, s)[1](lib.ones(2, 3))
        assert np.allclose(dense(pulled), 2 * (np.array(TABLE) != 0))


def test_what_sparse_tensors_can_not_do() -> None:
    s = lucerne.tensor(TABLE).to_sparse()
    for attempt in (
        lambda: jvp(lambda s: s * 2, (s,), (s,)),
        lambda: _dual(s),
    ):
        with pytest.raises(NotImplementedError, match="forward mode by a tensor that is sparse"):
            attempt()
    with pytest.raises(NotImplementedError, match=r"to_dense\(\) first"):
        jacrev(lambda s: s.to_dense())(s)
    with pytest.raises(RuntimeError, match="dynamic shape"):
        vmap(lambda x: x.to_sparse())(lucerne.ones(2, 3))


def _dual(x: Any) -> Any:
    with fwAD.dual_level():
        return fwAD.make_dual(x, x)


# ---- nested ------------------------------------------------------------------------------------

NESTED: list[tuple[str, Callable[[Any, Any, Any], Any]]] = [
    ("pointwise", lambda lib, t, v: t.sin() + t),
    ("folded", lambda lib, t, v: t.sum()),
    ("with a number", lambda lib, t, v: t * v),
    ("product", lambda lib, t, v: t @ lib.ones(2, 2)),
]


def nested(lib: Any, layout: str) -> Any:
    parts = [lib.ones(2, 2), 2 * lib.ones(3, 2)]
    return lib.nested.nested_tensor(parts, layout=getattr(lib, layout))


@pytest.mark.parametrize("layout", ["strided", "jagged"])
@pytest.mark.parametrize("f", [f for _, f in NESTED], ids=[n for n, _ in NESTED])
@pytest.mark.filterwarnings("ignore::UserWarning")  # of torch: slow, and a prototype
def test_vmap_over_nested_tensors(f: Callable[..., Any], layout: str) -> None:
    got, want = (
        lib.func.vmap(lambda t, v: f(lib, t, v))(nested(lib, layout), lib.tensor([1.0, 3.0]))  # noqa: B023
        for lib in (lucerne, torch)
    )
    assert got.is_nested
    for a, b in zip(got.unbind(), want.unbind(), strict=True):
        assert np.allclose(a.numpy(), b.numpy())


def test_vmap_of_grad_over_nested_tensors() -> None:
    got = vmap(grad(lambda t: (t**2).sum()))(nested(lucerne, "strided"))
    assert [tuple(t.shape) for t in got.unbind()] == [(2, 2), (3, 2)]
    assert [float(t.sum()) for t in got.unbind()] == [8.0, 24.0]


def test_gradients_go_through_vmap_over_nested_tensors() -> None:
    parts = [lucerne.ones(2, requires_grad=True), lucerne.ones(3, requires_grad=True)]
    made = vmap(lambda t: (t * 3).sum())(lucerne.nested.as_nested_tensor(parts))
    sum(made.unbind()).backward()
    assert [p.grad.tolist() for p in parts] == [[3.0] * 2, [3.0] * 3]


def test_what_nested_tensors_can_not_do() -> None:
    t = nested(lucerne, "strided")
    with pytest.raises(RuntimeError, match="Given dimension 1 is irregular"):
        vmap(lambda t: t, in_dims=1)(t)
    with pytest.raises(RuntimeError, match="whose batch is in front"):
        vmap(lambda t: t, out_dims=1)(t)
    with pytest.raises(RuntimeError, match=r"returned \(\*, \*\) for one entry"):
        vmap(lambda t: t.unbind())(t)
    with pytest.raises(NotImplementedError, match="differentiate by nested tensors"):
        grad(lambda t: t.sum())(t)
    with pytest.raises(NotImplementedError, match="differentiate by nested tensors"):
        vjp(lambda t: t * 2, t)
    with pytest.raises(NotImplementedError, match="forward mode by a tensor that is nested"):
        jvp(lambda t: t * 2, (t,), (t,))


# ---- modules with buffers ----------------------------------------------------------------------

KEEPING = [("BatchNorm1d", (2, 4, 3)), ("BatchNorm2d", (2, 4, 3, 2, 2))]


@pytest.mark.parametrize(("name", "shape"), KEEPING, ids=[k[0] for k in KEEPING])
def test_a_normalization_that_would_write_is_refused_as_by_torch(name: str, shape: Any) -> None:
    for lib in (lucerne, torch):
        module = getattr(lib.nn, name)(3)
        text = "Batch norm got a batched tensor as input while the running_mean or running_var"
        with pytest.raises(RuntimeError, match=text):
            lib.func.vmap(module)(lib.ones(*shape))
        module.eval()
        assert tuple(lib.func.vmap(module)(lib.ones(*shape)).shape) == shape


def test_buffers_of_the_batch_are_written() -> None:
    found = []
    x = np.random.RandomState(0).standard_normal((2, 4, 3)).astype(np.float32)
    for lib in (lucerne, torch):
        norm = lib.nn.BatchNorm1d(3)
        buffers = {k: lib.stack([b, b]) for k, b in norm.named_buffers()}
        parameters = {k: p.detach() for k, p in norm.named_parameters()}
        run = lib.func.vmap(lambda b, x: lib.func.functional_call(norm, (parameters, b), (x,)))  # noqa: B023
        outputs = run(buffers, lib.tensor(x))
        found.append([outputs.numpy(), *(b.numpy() for b in buffers.values())])
    for a, b in zip(*found, strict=True):
        assert np.allclose(a, b, atol=1e-5)


# ---- random numbers ----------------------------------------------------------------------------

DRAWS: list[tuple[str, Callable[[Any], Any]]] = [
    ("rand", lambda x: x + lucerne.rand(8)),
    ("randn_like", lambda x: x + lucerne.randn_like(x)),
    ("dropout", lambda x: F.dropout(x + 1, 0.5)),
    ("randint", lambda x: x + lucerne.randint(0, 100, (8,))),
    ("randperm", lambda x: x + lucerne.randperm(8)),
]


@pytest.mark.parametrize("f", [f for _, f in DRAWS], ids=[n for n, _ in DRAWS])
def test_randomness_compiled(f: Callable[[Any], Any]) -> None:
    x = lucerne.zeros(3, 8)
    for compiled in (False, True):
        lucerne.manual_seed(0)

        def run(mode: str) -> Any:
            g = vmap(f, randomness=mode)
            return lucerne.compile(g) if compiled else g  # noqa: B023

        same = run("same")
        for _ in range(2):
            first = same(x).numpy()
            assert (first == first[0]).all()
        assert (same(x).numpy() != first).any(), "the next call draws other numbers"
        different = run("different")(x).numpy()
        assert (different[0] != different[1]).any()
        with pytest.raises(RuntimeError, match="randomness error mode"):
            run("error")(x)


def test_permutations_of_a_batch_are_torchs() -> None:
    found = []
    for lib in (lucerne, torch):
        lib.manual_seed(0)
        made = lib.func.vmap(lambda x: lib.randperm(5), randomness="different")(lib.zeros(4))  # noqa: B023
        found.append(made.numpy())
    assert np.array_equal(*found)
    assert (np.sort(found[0], 1) == np.arange(5)).all()
