"""`compile(backend=...)`: devices by name, PyTorch's names, and functions of the user's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends, fx, nn
from lucerne._src.backends.null import NullBackend
from lucerne.nn import functional as F
from tests.capture import rows_training, rows_values
from tests.capture.scene import Row

Tensors = tuple[Any, ...]
Function = Callable[..., Any]


def given(*shapes: tuple[int, ...]) -> Callable[[], Tensors]:
    return lambda: tuple(torch.randn(*s) for s in shapes)


def integers(n: int, *shape: int) -> Any:
    return torch.randint(0, n, shape)


SQUARE, ROWS3, IMAGE = given((5, 5)), given((4, 6)), given((2, 3, 8, 8))
FUNCTIONS: dict[str, tuple[Function, Callable[[], Tensors]]] = {
    "sum of products": (lambda x, y: (x * y).sum(0), given((4, 6), (4, 6))),
    "broadcast": (lambda x, y: x - y.exp(), given((4, 6), (6,))),
    "softmax": (lambda x: x.softmax(1), ROWS3),
    "log softmax": (lambda x: x.log_softmax(0), ROWS3),
    "matmul": (lambda x, y: x @ y, given((4, 6), (6, 3))),
    "batched matmul": (lambda x, y: x @ y, given((2, 4, 6), (2, 6, 3))),
    "linear": (lambda x, w, b: F.linear(x, w, b), given((4, 6), (3, 6), (3,))),
    "gelu": (lambda x: F.gelu(x) + F.silu(x), ROWS3),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), given((4, 6), (6,), (6,))),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        given((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
    ),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), given((2, 3, 8, 8), (4, 3, 3, 3))),
    "max pool": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "average pool": (lambda x: F.avg_pool2d(x, 2), IMAGE),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "cross entropy": (
        lambda x, y: F.cross_entropy(x, y), lambda: (torch.randn(4, 6), integers(6, 4)),
    ),
    "embedding": (
        lambda w, i: F.embedding(i, w), lambda: (torch.randn(9, 4), integers(9, 3, 2)),
    ),
    "gather": (
        lambda x, i: x.gather(1, i), lambda: (torch.randn(4, 6), integers(6, 4, 2)),
    ),
    "index put": (lambda x: x.index_fill(0, torch.tensor([0, 2]), 1.0), ROWS3),
    "cumsum": (lambda x: x.cumsum(1), ROWS3),
    "sort": (lambda x: x.sort(1), ROWS3),
    "top": (lambda x: x.topk(2, 1), ROWS3),
    "argmax": (lambda x: (x.argmax(1), x.amax(0)), ROWS3),
    "views": (lambda x: (x.T[1:], x.reshape(-1)[::2], x[:, None]), ROWS3),
    "cat": (lambda x, y: torch.cat([x, y, x]), given((4, 6), (2, 6))),
    "where": (lambda x: torch.where(x > 0, x, x * 0.1), ROWS3),
    "triangles": (lambda x: x.tril() + x.triu(1) * 2, SQUARE),
    "variance": (lambda x: (x.var(0), x.std(), x.mean(1)), ROWS3),
    "arange": (lambda x: x + torch.arange(6) * 2, ROWS3),
    "in place": (lambda x: x.add_(1).mul_(2), ROWS3),
    "types": (lambda x: (x.double() + 1, x.to(torch.int32), x > 0), ROWS3),
    "norms": (lambda x: (x.norm(dim=1), x.norm(1), F.normalize(x)), SQUARE),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), given((4, 6), (3, 6))),
}  # fmt: skip


def flat(x: Any) -> list[Any]:
    return [x] if isinstance(x, torch.Tensor) else [t for y in x for t in flat(y)]


def both(fn: Function, make: Callable[[], Tensors], **options: Any) -> tuple[list[Any], list[Any]]:
    """Results (and arguments afterwards) as it is, and compiled: the second call as well."""
    torch.manual_seed(0)
    args = make()
    compiled = torch.compile(fn, fullgraph=True, **options)
    mine, theirs = ([a.clone() for a in args] for _ in range(2))
    for _ in range(2):
        want, have = flat(fn(*mine)), flat(compiled(*theirs))
    return [*want, *mine], [*have, *theirs]


def assert_same(want: list[Any], have: list[Any]) -> None:
    assert len(want) == len(have)
    for a, b in zip(want, have, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5)


def test_the_comparison_fails() -> None:
    with pytest.raises(AssertionError):
        assert_same([torch.ones(2)], [torch.zeros(2)])
    with pytest.raises(AssertionError):
        assert_same([torch.ones(2)], [])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reference_runs(name: str) -> None:
    assert_same(*both(*FUNCTIONS[name], backend="reference"))


@pytest.mark.parametrize("name", list(FUNCTIONS)[::3])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor", "cpu"])
def test_names_of_the_host(name: str, backend: str) -> None:
    assert_same(*both(*FUNCTIONS[name], backend=backend))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_users(name: str) -> None:
    seen = []

    def compiler(module: Any, inputs: Any) -> Any:
        assert isinstance(module, fx.GraphModule)
        assert isinstance(module(*inputs), tuple)
        seen.append(len(inputs))
        return module.forward

    assert_same(*both(*FUNCTIONS[name], backend=compiler))
    assert len(seen) == 1


@pytest.mark.parametrize("row", [*rows_values.ROWS, *rows_training.ROWS], ids=lambda r: r.__name__)
def test_null_compiles_everything(row: Row) -> None:
    """It computes nothing: what comes out is whatever the memory held."""
    torch.manual_seed(0)
    scene = row()
    if scene.fallback:
        pytest.skip("it is not compiled: " + scene.fallback)
    null: Any = backends.get("null")
    before = len(null.compiled)
    compiled = scene.compile(scene.fn, fullgraph=True, backend="null", dynamic=False)
    try:
        compiled(*scene.calls[0], **scene.kwargs)
    except (RuntimeError, IndexError, AssertionError, ValueError, TypeError):
        with pytest.raises(Exception):  # noqa: B017, PT011 - it raises without being compiled too
            scene.fn(*scene.calls[0], **scene.kwargs)
    assert isinstance(null, NullBackend)
    assert len(null.compiled) >= before


def test_op_by_op() -> None:
    def steps(backend: str) -> int:
        fn = torch.compile(lambda x: ((x + 1) * 2).exp(), backend=backend)
        fn(torch.ones(3))
        return len(fn.entries[0].stages.program.steps)

    assert steps("eager") == 3
    assert steps("inductor") == 1


def test_backward_is_a_graph_of_its_own() -> None:
    modules = []

    def compiler(module: Any, inputs: Any) -> Any:
        modules.append(module)
        return module

    model, twin = nn.Linear(4, 3), nn.Linear(4, 3)
    twin.load_state_dict(model.state_dict())
    compiled = torch.compile(twin, backend=compiler, fullgraph=True)
    x = torch.randn(2, 4)
    for fn in (model, compiled):
        fn(x).square().sum().backward()
    assert len(modules) == 2
    assert_same([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_training_step_with_a_function() -> None:
    models = [nn.Linear(4, 1), nn.Linear(4, 1)]
    models[1].load_state_dict(models[0].state_dict())
    steps = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        steps.append(step)
    steps[1] = torch.compile(steps[1], backend=lambda m, _: m.forward, fullgraph=True)
    for _ in range(3):
        x = torch.randn(5, 4)
        want, have = (s(x) for s in steps)
        assert_same([want], [have])
    assert_same(list(models[0].state_dict().values()), list(models[1].state_dict().values()))


def test_registered_functions_have_names() -> None:
    @torch.compiler.register_backend(name="doubling", tags=("experimental",))
    def compiler(module: Any, inputs: Any, options: Any = None) -> Any:
        factor = 2 if options is None else options["factor"]
        return lambda *args: tuple(t * factor for t in module(*args))

    assert "doubling" not in torch.compiler.list_backends()
    assert "doubling" in torch.compiler.list_backends(exclude_tags=())
    x = torch.ones(2)
    assert torch.compile(lambda t: t + 1, backend="doubling")(x).tolist() == [4.0, 4.0]
    three = torch.compile(lambda t: t + 1, backend="doubling", options={"factor": 3})
    assert three(x).tolist() == [6.0, 6.0]
    with pytest.raises(AssertionError, match="duplicate"):
        torch.compiler.register_backend(lambda m, _: m, name="doubling")


def test_names() -> None:
    assert {"cpu", "inductor"} <= set(torch.compiler.list_backends())
    every = set(torch.compiler.list_backends(exclude_tags=None))
    assert {"cpu", "inductor", "eager", "aot_eager", "reference", "null"} <= every
    with pytest.raises(RuntimeError, match="Invalid backend: 'nothing'"):
        torch.compile(lambda x: x, backend="nothing")


def test_a_function_that_returns_too_little() -> None:
    compiled = torch.compile(lambda x: (x + 1, x * 2), backend=lambda m, _: lambda *a: m(*a)[:1])
    with pytest.raises(RuntimeError, match="returned 1 results, its graph has 2"):
        compiled(torch.ones(2))


def test_out_of_tree_backends() -> None:
    class Mine(NullBackend):
        """Counts what it compiles."""

    mine = Mine()
    backends.register("mine", mine)
    assert "mine" in torch.compiler.list_backends()
    torch.compile(lambda x: (x + 1) * 2, backend="mine", fullgraph=True)(torch.ones(3))
    assert len(mine.compiled) == 2


def test_tensors_without_bytes_run_as_they_are() -> None:
    """There is nothing to compute, so nothing is compiled, and nobody is told of an error."""
    layer = nn.Linear(3, 4, device="meta")
    x = torch.ones(2, 3, device="meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for f in (torch.compile(layer), torch.compile(lambda x: layer(x) * 2, fullgraph=True)):
            y = f(x)
            assert (y.shape, y.device.type, y.requires_grad) == ((2, 4), "meta", True)
            y.sum().backward()
    assert layer.weight.grad.shape == (4, 3)
    made = torch.compile(lambda: torch.ones(3, device="meta") * 2)
    with pytest.warns(UserWarning, match="runs uncompiled: tensors on the device 'meta' have no"):
        assert made().shape == (3,)
