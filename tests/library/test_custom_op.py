"""Custom ops against torch's: values, gradients, mutation, errors; then compile, vmap, export."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from tests.library import ops  # noqa: E402
from tests.library.ops import BY_NAME, TABLE, Row  # noqa: E402

pytestmark = pytest.mark.torch


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return [value] if hasattr(value, "detach") else []


def _run(t: Any, call: Any, args: Any, kwargs: Any) -> list[Any]:
    """Results, gradients, and what the arguments hold afterwards, as arrays."""
    result = call(*args, **kwargs)
    outs, leaves = _tensors(result), [x for x in _tensors(args) if x.requires_grad]
    smooth = [o for o in outs if o.requires_grad]
    if smooth:
        sum((o * o).sum() for o in smooth).backward()
    grads = [None if x.grad is None else x.grad.numpy() for x in leaves]
    held = [x.detach().numpy().copy() for x in _tensors(args)]
    return [[o.detach().numpy() for o in outs], grads, held, [o.requires_grad for o in outs]]


def assert_same(mine: list[Any], theirs: list[Any]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, list):
            assert_same(a, b)
        elif a is None or isinstance(a, bool):
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_assert_same_fails_on_a_difference() -> None:
    with pytest.raises(AssertionError):
        assert_same([[np.ones(2)]], [[np.zeros(2)]])
    with pytest.raises(AssertionError):
        assert_same([None], [True])


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_as_torch(row: Row) -> None:
    mine, theirs = row.make(lucerne), row.make(torch)
    calls = zip(row.calls(lucerne), row.calls(torch), strict=True)
    for (args, kwargs), (their_args, their_kwargs) in calls:
        found = _run(lucerne, mine, args, kwargs)
        assert_same(found, _run(torch, theirs, their_args, their_kwargs))


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_compiled_as_eager(row: Row) -> None:
    op = row.make(lucerne)
    for number in range(len(row.calls(lucerne))):
        compiled = lucerne.compile(lambda *a, **k: op(*a, **k), fullgraph=True)
        args, kwargs = row.calls(lucerne)[number]
        expected = _run(lucerne, op, args, kwargs)
        for _ in range(2):
            args, kwargs = row.calls(lucerne)[number]
            assert_same(_run(lucerne, compiled, args, kwargs), expected)
        assert not compiled.breaks


@pytest.mark.parametrize("name", ["sine", "times", "halves"])
def test_vmap_as_a_loop(name: str) -> None:
    op = BY_NAME[name].make(lucerne)
    args, _ = BY_NAME[name].calls(lucerne)[0]
    batch = [a.detach() if hasattr(a, "detach") else a for a in args]
    rest = [a for a in batch if not hasattr(a, "detach")]
    if name == "halves":
        rest = [0]
    tensors = [a for a in batch if hasattr(a, "detach")]
    found = lucerne.func.vmap(lambda *ts: op(*ts, *rest))(*tensors)
    each = [op(*[t[i] for t in tensors], *rest) for i in range(tensors[0].shape[0])]
    if isinstance(found, tuple):
        expected = tuple(lucerne.stack(list(p)) for p in zip(*each, strict=True))
        assert all(lucerne.equal(a, b) for a, b in zip(found, expected, strict=True))
    else:
        assert lucerne.equal(found, lucerne.stack(each))


def test_grad_of_vmap_and_vmap_of_grad() -> None:
    op = BY_NAME["sine"].make(lucerne)
    x = lucerne.arange(6.0).reshape(2, 3)
    inside = lucerne.func.vmap(lucerne.func.grad(lambda v: op(v).sum()))(x)
    outside = lucerne.func.grad(lambda v: lucerne.func.vmap(op)(v).sum())(x)
    assert lucerne.allclose(inside, 2 * x.cos())
    assert lucerne.allclose(outside, 2 * x.cos())


def test_namespaces_and_overloads() -> None:
    op = BY_NAME["sine"].make(lucerne)
    space = getattr(lucerne.ops, op._qualname.partition("::")[0])
    assert space.sine.default is op._opoverload
    assert space.sine.overloads() == ["default"]
    assert lucerne.equal(space.sine(lucerne.zeros(2)), lucerne.zeros(2))
    assert isinstance(space.sine.default, lucerne._ops.OpOverload)
    with pytest.raises(AttributeError, match="no overload name 'nope'"):
        _ = space.sine.nope
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = space.nope


def _message(t: Any, what: str) -> tuple[str, str]:
    """The error of a wrong use, its first sentence, without the name of the op."""
    op = BY_NAME["sine"].make(t)
    x = t.ones(3)
    lib = op._qualname.partition("::")[0]
    uses = {
        "missing": lambda: op(),
        "too many": lambda: op(x, 1.0, 2.0),
        "wrong kind": lambda: op("x"),
        "wrong float": lambda: op(x, "x"),
        "unknown keyword": lambda: op(x, z=1),
        "no backward": lambda: (
            BY_NAME["optional"].make(t)(x.requires_grad_(), None).sum().backward()
        ),
        "no fake": lambda: _without_fake(t)(t.ones(2, device="meta")),
        "aliases": lambda: _aliasing(t)(x),
        "mutable derivative": lambda: (
            BY_NAME["adds_into"].make(t).register_autograd(lambda c, g: g)
        ),
        "kind": lambda: t.library.Library("x", "ZZ"),
        "reserved": lambda: t.library.Library("prim", "DEF"),
        "taken": lambda: t.library.Library("aten", "DEF"),
        "unknown overload": lambda: getattr(t.ops, lib).sine.nope,
    }
    with pytest.raises(Exception) as error:  # noqa: PT011 - the kind is compared below
        uses[what]()
    kind = error.value.__class__
    names = [k.__name__ for k in kind.__mro__]
    base = next(n for n in names if n in ("RuntimeError", "ValueError", "AttributeError"))
    text = str(error.value).split("\n")[0]
    text = text.split(". Expected one")[0]
    cut = text.split(" (with implementation")[0] if what == "aliases" else text.split(". Dec")[0]
    for name in (lib, *(f"testlib{n}" for n in range(400))):
        cut = cut.replace(name + "::", "").replace(name + ".", "")
    return base, cut.partition(" mylib")[0][:60]


def _without_fake(t: Any) -> Any:
    @t.library.custom_op(f"testlib{next(ops._count)}::bare", mutates_args=())
    def bare(x: t.Tensor) -> t.Tensor:
        return x.clone()

    return bare


def _aliasing(t: Any) -> Any:
    @t.library.custom_op(f"testlib{next(ops._count)}::alias", mutates_args=())
    def alias(x: t.Tensor) -> t.Tensor:
        return x

    return alias


WRONG = [
    "missing", "too many", "wrong kind", "wrong float", "unknown keyword", "no backward",
    "no fake", "aliases", "mutable derivative", "kind", "reserved", "taken",
    "unknown overload",
]  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_errors_are_torchs(what: str) -> None:
    assert _message(lucerne, what) == _message(torch, what)


def test_opcheck_finds_what_is_wrong() -> None:
    op = BY_NAME["sine"].make(lucerne)
    x = lucerne.ones(3, requires_grad=True)
    assert set(lucerne.library.opcheck(op, (x,)).values()) == {"SUCCESS"}
    op.register_fake(lambda x, scale=2.0: lucerne.empty(1))
    found = lucerne.library.opcheck(op, (x,), raise_exception=False)
    assert isinstance(found["test_faketensor"], lucerne.library.OpCheckError)

    @lucerne.library.custom_op("testlib_liar::writes", mutates_args=())
    def writes(x: lucerne.Tensor) -> lucerne.Tensor:
        x.add_(1)
        return x.clone()

    with pytest.raises(lucerne.library.OpCheckError, match="not defined as mutable"):
        lucerne.library.opcheck(writes, (lucerne.ones(2),), test_utils="test_schema")


def test_library_defines_and_implements() -> None:
    with lucerne.library._scoped_library("testlib_scoped", "DEF") as lib:
        lib.define("plus(Tensor x, int y=3) -> Tensor")
        with pytest.raises(NotImplementedError, match="Could not run 'testlib_scoped::plus'"):
            lucerne.ops.testlib_scoped.plus(lucerne.ones(2))
        lib.impl("plus", lambda x, y=3: x + y, "CPU")
        assert lucerne.ops.testlib_scoped.plus(lucerne.ones(2), y=1).tolist() == [2.0, 2.0]
        with pytest.raises(RuntimeError, match="same name and overload name"):
            lib.define("plus(Tensor x) -> Tensor")
        lib.define("chain(Tensor x) -> Tensor")
        lib.impl("chain", lambda x: x.exp() * 2, "CompositeImplicitAutograd")
        x = lucerne.zeros(2, requires_grad=True)
        lucerne.ops.testlib_scoped.chain(x).sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]
        kernel = lucerne.library.get_kernel("testlib_scoped::plus", "CPU")
        assert kernel(None, lucerne.ones(1), 1).tolist() == [2.0]
        lib.impl("plus", lucerne.library.fallthrough_kernel, "CPU")
        with pytest.raises(NotImplementedError):
            lucerne.ops.testlib_scoped.plus(lucerne.ones(2))
    with pytest.raises(AttributeError):
        _ = lucerne.ops.testlib_scoped.plus


def test_kernels_of_devices_can_be_turned_off() -> None:
    @lucerne.library.custom_op("testlib_kernels::f", mutates_args=())
    def f(x: lucerne.Tensor) -> lucerne.Tensor:
        return x + 1

    f.register_kernel("cpu", lambda x: x + 2)
    assert f(lucerne.zeros(1)).item() == 2
    with f.set_kernel_enabled("cpu", False):
        assert f(lucerne.zeros(1)).item() == 1
    assert f(lucerne.zeros(1)).item() == 2


def test_autocast_converts_inputs() -> None:
    @lucerne.library.custom_op("testlib_autocast::kind", mutates_args=())
    def kind(x: lucerne.Tensor) -> lucerne.Tensor:
        return x.clone()

    kind.register_autocast("cpu", lucerne.bfloat16)
    assert kind(lucerne.ones(2)).dtype is lucerne.float32
    with lucerne.autocast("cpu"):
        assert kind(lucerne.ones(2)).dtype is lucerne.bfloat16
        assert kind(lucerne.ones(2, dtype=lucerne.int32)).dtype is lucerne.int32


def test_without_fake_compiled_functions_run_it_as_python() -> None:
    op = _without_fake(lucerne)
    compiled = lucerne.compile(lambda x: op(x * 2) + 1)
    assert compiled(lucerne.ones(2)).tolist() == [3.0, 3.0]
    assert "no fake impl" in compiled.breaks[0].reason


def test_a_tensor_kept_by_a_compiled_call_keeps_its_numbers() -> None:
    kept: list[Any] = []

    @lucerne.library.custom_op("testlib_kept::f", mutates_args=())
    def f(x: lucerne.Tensor) -> lucerne.Tensor:
        kept.append(x[1:])
        return x + 1

    f.register_fake(lucerne.empty_like)
    step = lucerne.compile(lambda x: (f(x * 2) * 3).exp().sum(), fullgraph=True)
    for k in range(3):
        step(lucerne.full((3,), float(k)))
    assert [x.tolist() for x in kept] == [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]


def test_profiler_and_export_name_it() -> None:
    op = BY_NAME["sine"].make(lucerne)
    with lucerne.profiler.profile() as seen:
        op(lucerne.ones(2))
    assert op._qualname in [e.key for e in seen.key_averages()]

    class Model(lucerne.nn.Module):
        def forward(self, x: Any) -> Any:
            return op(x) + 1

    program = lucerne.export.export(Model(), (lucerne.zeros(3),))
    assert program.module()(lucerne.zeros(3)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "options"), [("triton_op", {"mutates_args": ()}), ("wrap_triton", {})]
)
def test_triton_is_refused_with_a_way_out(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"lucerne\.tiles"):
        getattr(lucerne.library, name)("x::y", **options)
