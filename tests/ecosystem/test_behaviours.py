"""What libraries rely on and PyTorch does: each row was seen in one of them."""

from __future__ import annotations

import collections
import gc
import importlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne import quasirandom
from lucerne._src.as_torch import small
from lucerne.futures import Future, collect_all, wait_all
from lucerne.utils import _contextlib, _pytree, weak

real = pytest.importorskip("torch", reason="PyTorch is the oracle of these rows")


def of(module: Any, function: Any) -> str:
    """What a function of torch gives, or the error it raises, as text."""
    try:
        return repr(function(module))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Told:
    """An operand that says what its `__torch_function__` was told."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shown = tuple("told" if isinstance(a, Told) else a for a in args if not hasattr(a, "dtype"))
        return func.__name__, shown, kwargs or {}


def coordinates(t: Any) -> Any:
    return t.tensor([[0, 1], [1, 0]]), t.tensor([1.0, 2.0])


def old(kind: Any, *args: Any) -> Any:
    """Made the old way, of which PyTorch warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(*args)


def factor_gradient(t: Any, upper: bool, inverse: bool = False) -> Any:
    """Of a Cholesky factor, in both triangles."""
    low = t.tensor([[2.0, 0.0, 0.0], [0.5, 3.0, 0.0], [-1.0, 0.25, 1.5]])
    factor = (low.mT if upper else low).clone().requires_grad_()
    b = t.arange(6.0).view(3, 2).requires_grad_()
    made = t.cholesky_inverse(factor, upper) if inverse else t.cholesky_solve(b, factor, upper)
    weight = t.arange(float(made.numel())).view(made.shape)
    return t.autograd.grad((made * weight).sum(), factor)


# The library that showed it, and what is asked of both.
SAME = [
    ("gpytorch", lambda t: t.tensor([1]) == ...),
    ("gpytorch", lambda t: t.tensor([1]) != ...),
    ("gpytorch", lambda t: ... in (t.tensor([1]), ...)),
    ("gpytorch", lambda t: t.tensor([1]) == object()),
    ("gpytorch", lambda t: t.tensor([1]) == "a"),
    ("torch_geometric", lambda t: str(t.ops.aten._pin_memory.default._schema)),
    ("torch_geometric", lambda t: str(t.ops.aten._sparse_addmm.default._schema)),
    (
        "torch_geometric",
        lambda t: t.ops.aten._sparse_addmm(
            t.ones(2, 2), t.eye(2).to_sparse(), t.full((2, 2), 3.0), beta=2, alpha=0.5
        ),
    ),
    (
        "torch_geometric",
        lambda t: importlib.import_module(f"{t.__name__}._tensor_str")._tensor_str(
            t.arange(6.0).view(2, 3), indent=0
        ),
    ),
    ("linear_operator", lambda t: old(t.sparse.FloatTensor, *coordinates(t), t.Size([2, 3]))),
    ("linear_operator", lambda t: old(t.sparse.FloatTensor, *coordinates(t))),
    ("linear_operator", lambda t: old(t.sparse.DoubleTensor, 2, 3)),
    ("linear_operator", lambda t: old(t.sparse.FloatTensor)),
    ("linear_operator", lambda t: old(t.sparse.LongTensor, t.Size([2, 3]))),
    ("linear_operator", lambda t: isinstance(t.eye(2).to_sparse(), t.sparse.FloatTensor)),
    ("linear_operator", lambda t: isinstance(t.eye(2).to_sparse(), t.FloatTensor)),
    ("linear_operator", lambda t: isinstance(t.eye(2), t.sparse.FloatTensor)),
    ("linear_operator", lambda t: isinstance(t.eye(2).to_sparse().double(), t.sparse.FloatTensor)),
    ("linear_operator", lambda t: t.eye(2).to_sparse().type()),
    ("linear_operator", lambda t: t.eye(2).to_sparse().type(t.sparse.DoubleTensor)),
    ("linear_operator", lambda t: (t.sparse.HalfTensor.dtype, t.sparse.HalfTensor.layout)),
    ("linear_operator", lambda t: factor_gradient(t, False)),
    ("linear_operator", lambda t: factor_gradient(t, True)),
    ("linear_operator", lambda t: factor_gradient(t, False, inverse=True)),
    ("linear_operator", lambda t: factor_gradient(t, True, inverse=True)),
    ("accelerate", lambda t: old(lambda: t.ByteTensor(t.ByteStorage._from_buffer(b"abc")))),
    ("accelerate", lambda t: old(lambda: t.FloatTensor(t.FloatStorage([1, 2])))),
    ("tensordict", lambda t: t.utils._pytree.is_structseq_instance(sys.version_info)),
    ("tensordict", lambda t: t.utils._pytree.is_structseq_instance(os.stat("."))),
    ("tensordict", lambda t: t.utils._pytree.is_structseq_instance((1, 2))),
    ("tensordict", lambda t: t._utils._get_device_module("abacus")),
    ("keras", lambda t: t.rand(size=(2, 3)).shape),
    ("keras", lambda t: t.randn(size=(2, 3)).shape),
    ("keras", lambda t: t.zeros(size=(2,)).shape),
    ("torchaudio", lambda t: hasattr(t.ops.nothing_here, "f")),
    ("torchaudio", lambda t: t.ops.nothing_here.f),
    ("torchaudio", lambda t: t.jit.isinstance([1, 2], list[int])),
    ("torchaudio", lambda t: t.jit.isinstance({"a": 1.5}, dict[str, int])),
    ("torchaudio", lambda t: t.jit.isinstance((1, "a"), tuple[int, str])),
    ("torchinfo", lambda t: sys.getsizeof(t.zeros(384).untyped_storage())),
    ("safetensors", lambda t: t.asarray(t.ones(3).untyped_storage(), dtype=t.float32)),
    ("linear_operator", lambda t: t.ones(2) + Told()),
    ("linear_operator", lambda t: t.ones(2) - Told()),
    ("linear_operator", lambda t: t.ones(2) / Told()),
    ("linear_operator", lambda t: t.ones(2) * Told()),
    ("linear_operator", lambda t: t.ones(2) @ Told()),
    ("linear_operator", lambda t: t.add(t.ones(2), Told(), alpha=2)),
    ("linear_operator", lambda t: t.ones(2).add_(Told())),
    ("linear_operator", lambda t: t.sum(Told(), -1)),
    ("linear_operator", lambda t: t.exp(Told())),
    ("captum", lambda t: t.futures.Future[int] is not None),
    ("optim", lambda t: t._utils._flatten_dense_tensors([t.ones(1, 2), t.zeros(2)])),
    ("botorch", lambda t: t.quasirandom.SobolEngine(3).draw(5)),
    ("botorch", lambda t: t.quasirandom.SobolEngine(3, scramble=True, seed=7).draw(5)),
    ("botorch", lambda t: t.quasirandom.SobolEngine(0)),
]


@pytest.mark.torch
@pytest.mark.parametrize("given", [[True], [True, False], [1]])
def test_checks_of_tensors(given: Any) -> None:
    """Transformers' prophetnet asks them of positions."""

    def asked(module: Any) -> Any:
        checks = small if module is lucerne else module
        return checks._check_tensor_all_with(ValueError, module.tensor(given), lambda: "a")

    assert of(lucerne, asked) == of(real, asked)


@pytest.mark.parametrize(("library", "asked"), SAME)
def test_as_torch(library: str, asked: Any) -> None:
    got, want = of(lucerne, asked), of(real, asked)
    assert got == want, library


def test_operator_of_a_tensor_is_told_the_method() -> None:
    seen = []

    class Keeps:
        __torch_function__ = classmethod(lambda cls, f, t, a=(), k=None: seen.append(f))

    _ = lucerne.ones(2) + Keeps()
    assert seen == [lucerne.Tensor.add]


SCHEMAS = [
    ("(Tensor! x) -> ()", (True,)),
    ("(Tensor! x, Tensor y, Tensor!? z) -> Tensor", (True, False, True)),
]


@pytest.mark.parametrize(("schema", "written"), SCHEMAS)
def test_written_arguments_without_a_letter(schema: str, written: tuple[bool, ...]) -> None:
    """bitsandbytes: `Tensor! out` is short for memory of its own that is written to."""
    with lucerne.library._scoped_library("ecosystem", "FRAGMENT") as library:
        library.define(f"f{schema}")
        arguments = lucerne.ops.ecosystem.f.default._schema.arguments
        assert tuple(a.is_write for a in arguments) == written


def test_kernels_for_autocast() -> None:
    """torchvision: a kernel for `AutocastCPU` runs under autocast, and calls the op below it."""
    with lucerne.library._scoped_library("ecosystem", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        twice = lucerne.ops.ecosystem.twice
        library.impl("twice", lambda x: twice(x.float()), "AutocastCPU")
        library.impl("twice", lambda x: x * 0, "AutocastCUDA")
        x = lucerne.ones(2, dtype=lucerne.bfloat16)
        assert twice(x).dtype is lucerne.bfloat16
        with lucerne.autocast("cpu"):
            assert twice(x).dtype is lucerne.float32
        assert twice(x).tolist() == [2.0, 2.0]


def test_storage_of_a_file(tmp_path: Path) -> None:
    """safetensors: a file's bytes as a storage, mapped; with `shared`, writes go to it."""
    file = tmp_path / "bytes"
    file.write_bytes(bytes(range(8)))
    private = lucerne.UntypedStorage.from_file(str(file), False, 8)
    assert private.tolist() == list(range(8))
    shared = lucerne.UntypedStorage.from_file(str(file), shared=True, nbytes=16)
    lucerne.asarray(shared, dtype=lucerne.uint8)[0] = 9
    assert file.read_bytes()[0] == 9
    assert len(file.read_bytes()) == 16
    with pytest.raises(RuntimeError, match="holds 16 bytes, needs 99"):
        lucerne.UntypedStorage.from_file(str(file), False, 99)


def test_weak_dictionaries_compare_by_identity() -> None:
    """tensordict: tensors as keys."""
    a, b = lucerne.ones(2), lucerne.ones(2)
    kept = weak.WeakIdKeyDictionary({a: 1})
    assert a in kept
    assert b not in kept
    assert weak.WeakIdRef(a) == weak.WeakIdRef(a) != weak.WeakIdRef(b)
    del a
    gc.collect()
    assert len(kept) == 0


def test_contexts_that_decorate() -> None:
    """tensordict: subclasses of torch's context decorators."""
    seen = []

    class Noted(_contextlib._NoParamDecoratorContextManager):
        def __enter__(self) -> None:
            seen.append("in")

        def __exit__(self, *exc: object) -> None:
            seen.append("out")

    @Noted
    def once() -> int:
        return 1

    @Noted()
    def several() -> Any:
        yield 1
        yield 2

    assert once() == 1
    assert list(several()) == [1, 2]
    assert seen == ["in", "out"] * 4


def test_futures() -> None:
    first: Future[int] = Future()
    second = first.then(lambda f: f.value() + 1)
    both = collect_all([first, second])
    assert not both.done()
    first.set_result(1)
    assert wait_all([first, second]) == [1, 2]
    assert both.done()
    with pytest.raises(RuntimeError, match="complete"):
        first.set_result(2)


def test_sobol_goes_on_where_it_was() -> None:
    whole = quasirandom.SobolEngine(4, True, 3).draw(20)
    parts = quasirandom.SobolEngine(4, True, 3)
    found = [parts.draw(1), parts.draw(6)]
    parts.fast_forward(5)
    found += [whole[7:12], parts.draw(8)]
    assert np.array_equal(lucerne.cat(found).numpy(), whole.numpy())


Pair = collections.namedtuple("Pair", "a b")
TREES = [
    1, None, [], {}, [1, 2], (1, [2, {"a": 3, "b": []}]), {"z": 1, "a": (2, 3)}, Pair(1, [2]),
    collections.OrderedDict(b=1, a=[2]), collections.defaultdict(list, {"a": 1}),
    collections.deque([1, 2], maxlen=4), [None, (1,)],
]  # fmt: skip
TREE_CALLS = [
    lambda m, t: m.tree_flatten(t),
    lambda m, t: m.tree_structure(t).num_nodes,
    lambda m, t: [(m.keystr(p), v) for p, v in m.tree_leaves_with_path(t)],
    lambda m, t: m.tree_map(lambda x: (x,), t),
    lambda m, t: m.tree_map_only(int, lambda x: -x, t),
    lambda m, t: m.tree_map(lambda a, b: (a, b), t, t),
    lambda m, t: m.tree_map(lambda a, b: (a, b), [1, {"a": 2}], t),
    lambda m, t: m.tree_unflatten([1], m.tree_structure(t)),
    lambda m, t: m.treespec_pprint(m.tree_structure(t)),
    lambda m, t: m.treespec_dumps(m.tree_structure(t)),
    lambda m, t: m.tree_leaves(t, is_leaf=lambda x: isinstance(x, list)),
    lambda m, t: m._broadcast_to_and_flatten(0, m.tree_structure(t)),
    lambda m, t: m.tree_is_leaf(t),
]


@pytest.mark.torch
@pytest.mark.parametrize("call", TREE_CALLS)
def test_trees_as_torch(call: Any) -> None:
    theirs = pytest.importorskip("torch.utils._pytree", reason="PyTorch is the oracle")
    for tree in TREES:
        got = of(_pytree, lambda m, t=tree: call(m, t))
        want = of(theirs, lambda m, t=tree: call(m, t))
        if want.startswith("NotImplementedError"):  # the advice is our own
            got, want = got.partition(":")[0], want.partition(":")[0]
        assert got == want, tree
