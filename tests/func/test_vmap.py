"""vmap: arguments, messages, randomness, writes, values, Functions; torch says the same."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from lucerne.func import grad, vmap, vmap_fallbacks  # noqa: E402

pytestmark = pytest.mark.torch


def same(ours: Any, theirs: Any) -> bool:
    return bool(np.allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-6))


def pair(*shape: int) -> tuple[Any, Any]:
    """The same numbers on both sides."""
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)
    return lucerne.from_numpy(values.copy()), torch.from_numpy(values.copy())


def test_same_fails_when_it_should() -> None:
    ours, theirs = pair(3)
    assert same(ours, theirs)
    assert not same(ours + 1, theirs)


# ---- in_dims and out_dims ------------------------------------------------------------------------

PLACES = [
    ("front", {"in_dims": 0}),
    ("middle", {"in_dims": 1}),
    ("end", {"in_dims": -1}),
    ("out at the end", {"in_dims": 0, "out_dims": -1}),
    ("out in the middle", {"in_dims": (1,), "out_dims": 1}),
]


@pytest.mark.parametrize(("name", "options"), PLACES, ids=[p[0] for p in PLACES])
def test_places(name: str, options: dict[str, Any]) -> None:
    ours, theirs = pair(2, 3, 4)
    got = vmap(lambda x: x.sin().cumsum(0), **options)(ours)
    want = torch.vmap(lambda x: x.sin().cumsum(0), **options)(theirs)
    assert got.shape == want.shape
    assert same(got, want)


def test_containers() -> None:
    (a, ta), (b, tb) = pair(2, 3), pair(3, 2)

    def f(d: Any, s: Any, n: int) -> Any:
        return {"sum": d["x"] + s[0], "twice": (d["x"] * n,)}

    options: dict[str, Any] = {"in_dims": ({"x": 0}, 1, None), "out_dims": {"sum": 1, "twice": 0}}
    got = vmap(f, **options)({"x": a}, [b], 2)
    want = torch.vmap(f, **options)({"x": ta}, [tb], 2)
    assert same(got["sum"], want["sum"])
    assert same(got["twice"][0], want["twice"][0])


def test_results_that_do_not_depend_on_the_batch() -> None:
    a, ta = pair(2, 3)
    ours, theirs = vmap(lambda x: lucerne.ones(2))(a), torch.vmap(lambda x: torch.ones(2))(ta)
    assert ours.shape == theirs.shape == (2, 2)
    assert vmap(lambda x: lucerne.ones(2), out_dims=None)(a).shape == (2,)


def test_keyword_arguments_are_whole() -> None:
    a, _ = pair(2, 3)
    assert vmap(lambda x, *, w: x * w)(a, w=lucerne.ones(3)).shape == (2, 3)


def test_chunks_give_the_same() -> None:
    a, ta = pair(7, 3)
    for size in (1, 2, 3, 7, 9):
        got = vmap(lambda x: (x * 2, x.sum()), chunk_size=size, out_dims=(1, 0))(a)
        want = torch.vmap(lambda x: (x * 2, x.sum()), chunk_size=size, out_dims=(1, 0))(ta)
        assert all(same(g, w) for g, w in zip(got, want, strict=True))


def test_a_batch_of_none() -> None:
    assert vmap(lambda x: x.sin().sum())(lucerne.zeros(0, 3)).shape == (0,)


# ---- messages ------------------------------------------------------------------------------------


def _add(x: Any, y: Any) -> Any:
    return x + y


MISTAKES: list[tuple[str, Any]] = [
    ("no inputs", lambda t, f: f.vmap(t.sin)()),
    ("in_dims a list", lambda t, f: f.vmap(t.sin, in_dims=[0])(t.ones(3))),
    ("in_dims a string", lambda t, f: f.vmap(t.sin, in_dims=("x",))(t.ones(3))),
    ("a number", lambda t, f: f.vmap(_add)(t.ones(3), 1)),
    ("dim too large", lambda t, f: f.vmap(t.sin, in_dims=1)(t.ones(3))),
    ("dim too small", lambda t, f: f.vmap(t.sin, in_dims=-2)(t.ones(3))),
    ("0-dim", lambda t, f: f.vmap(t.sin)(t.ones(()))),
    ("sizes differ", lambda t, f: f.vmap(_add)(t.ones(3), t.ones(2))),
    ("nothing to map", lambda t, f: f.vmap(_add, (None, None))(t.ones(3), t.ones(3))),
    ("no tensor returned", lambda t, f: f.vmap(_two)(t.ones(3))),
    ("None for a batched result", lambda t, f: f.vmap(_same, out_dims=None)(t.ones(3))),
    ("out_dims a string", lambda t, f: f.vmap(_same, out_dims="x")(t.ones(3))),
    ("randomness", lambda t, f: f.vmap(_same, randomness="all")(t.ones(3))),
    ("chunk_size", lambda t, f: f.vmap(_same, chunk_size=0)(t.ones(3))),
    ("random", lambda t, f: f.vmap(lambda x: x + t.rand(1))(t.ones(3))),
    ("item", lambda t, f: f.vmap(lambda x: x.item())(t.ones(3))),
    ("if", lambda t, f: f.vmap(lambda x: x if x > 0 else -x)(t.ones(3))),
    ("nonzero", lambda t, f: f.vmap(lambda x: x.nonzero())(t.ones(3, 2))),
]


def _two(x: Any) -> Any:
    return 2


def _same(x: Any) -> Any:
    return x


@pytest.mark.parametrize(("name", "call"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistakes_are_told_as_torch_tells_them(name: str, call: Any) -> None:
    with pytest.raises((ValueError, RuntimeError, TypeError, IndexError)) as theirs:
        call(torch, torch.func)
    with pytest.raises(type(theirs.value)) as ours:
        call(lucerne, lucerne.func)
    told, expected = (str(e.value).replace("lucerne", "torch") for e in (ours, theirs))
    assert told.split(". ")[0] == expected.split(". ")[0]


STRUCTURES: list[tuple[str, Any]] = [
    ("in_dims", lambda: vmap(_add, in_dims=(0,))(lucerne.ones(3), lucerne.ones(3))),
    ("out_dims", lambda: vmap(_same, out_dims=(0, 1))(lucerne.ones(3))),
]


@pytest.mark.parametrize(("name", "call"), STRUCTURES, ids=[s[0] for s in STRUCTURES])
def test_structures_that_do_not_fit(name: str, call: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} is not compatible with the structure of"):
        call()


def test_errors_have_the_shapes_the_function_sees() -> None:
    with pytest.raises(RuntimeError, match=r"tensor a \(3\) must match .* tensor b \(4\)"):
        vmap(_add)(lucerne.ones(2, 3), lucerne.ones(2, 4))


# ---- what a tensor of the batch is ---------------------------------------------------------------


def test_a_tensor_inside_looks_like_one_of_the_batch() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        seen.append((tuple(x.shape), x.ndim, x.dtype, x.stride(), len(x), repr(x)))
        return x

    vmap(f, in_dims=1)(lucerne.zeros(3, 2))
    shape, ndim, dtype, strides, length, text = seen[0]
    assert (shape, ndim, dtype, strides, length) == ((3,), 1, lucerne.float32, (2,), 3)
    assert text.startswith("BatchedTensor(lvl=1, bdim=0, value=\n    tensor(")


def test_what_does_not_depend_on_the_batch_may_be_looked_at() -> None:
    def f(x: Any) -> Any:
        n = lucerne.arange(4).sum()
        return x * int(n) if n > 5 else x

    assert vmap(f)(lucerne.ones(2)).tolist() == [6, 6]


def test_dtypes_follow_the_dimensions_inside() -> None:
    rows = [
        (lucerne.float64, (), lucerne.float32, (3,)),
        (lucerne.int64, (), lucerne.uint8, (3,)),
        (lucerne.float32, (), lucerne.int64, ()),
        (lucerne.float64, (), lucerne.float32, ()),
    ]
    for kind, shape, other, size in rows:
        plain = lucerne.ones(shape, dtype=kind) + lucerne.ones(size, dtype=other)
        for dims in ((0, None), (None, 0), (0, 0)):
            given = [
                lucerne.ones((2,) * (d is not None) + s, dtype=k)
                for d, s, k in zip(dims, (shape, size), (kind, other), strict=True)
            ]
            assert vmap(_add, dims)(*given).dtype is plain.dtype


def test_leaks() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.extend([x.detach(), x * 2, lucerne.zeros(3) + 1])
        return x

    vmap(f)(lucerne.ones(2, 3))
    assert kept[2].tolist() == [1, 1, 1]  # it does not depend on the batch: an ordinary tensor
    for t in kept[:2]:
        assert "left by a transform" in repr(t)
        with pytest.raises(RuntimeError, match="Return it from the function"):
            t + 1


# ---- writes --------------------------------------------------------------------------------------


def test_writes_reach_what_was_given() -> None:
    x = lucerne.zeros(2, 3)

    def f(row: Any) -> Any:
        row[1] = 5
        row[1:].add_(1)
        return row.sum()

    assert vmap(f)(x).tolist() == [7, 7]
    assert x.tolist() == [[0, 6, 1], [0, 6, 1]]


def test_a_batch_does_not_fit_into_one() -> None:
    def f(x: Any, y: Any) -> Any:
        return y.add_(x)

    with pytest.raises(RuntimeError, match=r"vmap: inplace arithmetic.* at level 1\. Please try"):
        vmap(f, (0, None))(lucerne.ones(3, 2), lucerne.ones(2))


def test_tensors_made_inside_may_be_written_to() -> None:
    def f(x: Any) -> Any:
        out = lucerne.zeros(3)
        part = out[1:]
        out[0] = x.sum()
        part.copy_(x * 2)
        return out

    assert vmap(f)(lucerne.arange(4.0).view(2, 2)).tolist() == [[1, 0, 2], [5, 4, 6]]


def test_writes_inside_are_recorded() -> None:
    def f(x: Any) -> Any:
        y = x * 1
        y[0] = y[1] * 3
        return (y * y).sum()

    x = lucerne.arange(6.0).view(3, 2)
    want = lucerne.stack([grad(f)(row) for row in x])
    assert vmap(grad(f))(x).tolist() == want.tolist()
    assert grad(lambda x: vmap(f)(x).sum())(x).tolist() == want.tolist()


# ---- random numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["different", "same"])
def test_random_numbers_are_those_of_torch(mode: str) -> None:
    found = []
    for lib in (lucerne, torch):
        lib.manual_seed(3)
        x = lib.ones(2, 4)
        found.append(lib.func.vmap(lambda x: x + lib.randn(4), randomness=mode)(x))  # noqa: B023
        dropout = lib.nn.functional.dropout
        found.append(lib.func.vmap(lambda x: dropout(x, 0.5), randomness=mode)(x))  # noqa: B023
    assert same(found[0], found[2])
    assert same(found[1], found[3])
    rows = found[0].tolist()
    assert (rows[0] == rows[1]) == (mode == "same")


# ---- a user's own Functions ----------------------------------------------------------------------


def make(lib: Any, generate: bool) -> Any:
    class Scaled(lib.autograd.Function):  # type: ignore[misc]
        """x * x * w, with a gradient that nothing else would give."""

        generate_vmap_rule = generate

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x * x * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return g * x * w * 7, g * x

    if not generate:

        def rule(info: Any, in_dims: Any, x: Any, w: Any) -> Any:
            assert in_dims == (0, None)
            assert info.batch_size == 2
            return Scaled.apply(x, w), 0

        Scaled.vmap = staticmethod(rule)
    return Scaled


@pytest.mark.parametrize("generate", [True, False])
def test_functions(generate: bool) -> None:
    found = []
    (x, tx), (w, tw) = pair(2, 3), pair(3)
    for lib, a, b in ((lucerne, x, w), (torch, tx, tw)):
        scaled, func = make(lib, generate), lib.func

        def f(x: Any, w: Any) -> Any:
            return scaled.apply(x, w).sum()  # noqa: B023

        found.append(
            (
                func.vmap(f, (0, None))(a, b),
                *func.vmap(func.grad(f, argnums=(0, 1)), (0, None))(a, b),
                func.grad(lambda a: func.vmap(f, (0, None))(a, b).sum())(a),  # noqa: B023
            )
        )
    assert all(same(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_two_ways_at_once_are_refused() -> None:
    both = make(lucerne, True)
    both.vmap = staticmethod(lambda *_: None)
    with pytest.raises(RuntimeError, match="has both generate_vmap_rule=True"):
        vmap(both.apply)(lucerne.ones(2), lucerne.ones(2))


# ---- what is around ------------------------------------------------------------------------------


def test_no_grad_inside_reaches_outside() -> None:
    x = lucerne.ones(2, 3, requires_grad=True)

    def f(row: Any) -> Any:
        with lucerne.no_grad():
            fixed = row * 2
        return (row * fixed).sum()

    vmap(f)(x).sum().backward()
    assert x.grad.tolist() == [[2] * 3] * 2


def test_detach_inside_cuts_outside() -> None:
    x = lucerne.ones(2, 3)
    found = grad(lambda x: vmap(lambda r: (r.detach() * r).sum())(x).sum())(x)
    assert found.tolist() == [[1] * 3] * 2


def test_parameters_of_a_module_get_gradients() -> None:
    layer = lucerne.nn.Linear(3, 2)
    x = lucerne.randn(4, 3)
    vmap(layer)(x).sum().backward()
    assert same(layer.weight.grad, torch.from_numpy(x.sum(0).numpy()).expand(2, 3))


def test_autocast() -> None:
    a, b = lucerne.randn(2, 3, 4), lucerne.randn(2, 4, 5)
    with lucerne.autocast("cpu", dtype=lucerne.bfloat16):
        got, want = vmap(lucerne.mm)(a, b), lucerne.bmm(a, b)
    assert got.dtype is want.dtype is lucerne.bfloat16
    assert bool((got == want).all())


def test_checkpoint() -> None:
    x = lucerne.randn(3, 4)

    def f(x: Any) -> Any:
        block = lucerne.utils.checkpoint.checkpoint
        return block(lambda v: v.sin().exp(), x, use_reentrant=False).sum()

    want = lucerne.stack([grad(f)(row) for row in x])
    assert vmap(grad(f))(x).tolist() == want.tolist()


def test_hooks_see_tensors_of_the_batch() -> None:
    shapes: list[Any] = []

    def f(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda g: shapes.append(tuple(g.shape)))
        return y.sum()

    vmap(grad(f))(lucerne.ones(2, 3))
    assert shapes == [(3,)]


def test_fallbacks_are_counted() -> None:
    vmap_fallbacks(reset=True)
    got = vmap(lucerne.bincount)(lucerne.tensor([[0, 1, 1], [1, 0, 0]]))
    assert got.tolist() == [[1, 2], [2, 1]]
    assert vmap_fallbacks(reset=True) == {"bincount": 1}
    assert vmap_fallbacks() == {}
