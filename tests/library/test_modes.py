"""Dispatch modes, flop counting and subclasses, where both sides can be compared: as torch."""

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402

pytestmark = pytest.mark.torch
SIDES = {"lucerne": lucerne, "torch": torch}


def _part(t: Any, name: str) -> Any:
    return importlib.import_module(f"{t.__name__}.{name}")


def _logging(t: Any) -> Any:
    base = _part(t, "utils._python_dispatch").TorchDispatchMode

    class Log(base):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Log()


PROGRAMS = {
    "product": lambda t, a: a @ a.t(),
    "arithmetic": lambda t, a: (a + 1) * a - a / 2,
    "functions": lambda t, a: a.exp().tanh().sigmoid(),
    "softmax": lambda t, a: a.softmax(-1).sum(0),
    "log_softmax": lambda t, a: a.log_softmax(1).mean(),
    "views": lambda t, a: a.t().unsqueeze(0).expand(2, 3, 3),
    "slices": lambda t, a: a[1:] + a[0],
    "join": lambda t, a: t.cat([a, a], 1),
    "compare": lambda t, a: t.where(a > 0, a, a * 2),
    "folds": lambda t, a: a.sum(1) + a.amax(0),
    "copies": lambda t, a: a.clone().to(t.float64),
    "gather": lambda t, a: a.gather(1, t.zeros(3, 1, dtype=t.int64)),
    "indexed": lambda t, a: a[t.tensor([0, 2])] * 2,
    "gelu": lambda t, a: t.nn.functional.gelu(a).relu(),
    "in place": lambda t, a: a.clone().add_(1).mul_(a).relu_().exp_(),
}
SKIPPED = {
    "aten.detach.default",
    "aten.zeros.default",
    "aten.full.default",
    "aten.lift_fresh.default",
}
"""How tensors are made and kept differs."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_logging_mode_sees_torchs_names(name: str) -> None:
    seen = {}
    for side, t in SIDES.items():
        a = (t.arange(9.0) - 4).reshape(3, 3)
        with _logging(t) as log:
            PROGRAMS[name](t, a)
        seen[side] = [x for x in log.seen if x not in SKIPPED]
    assert seen["lucerne"] == seen["torch"]


def test_mode_stands_below_autograd() -> None:
    a = lucerne.ones(2, 2, requires_grad=True)
    with _logging(lucerne) as log:
        (a @ a).sum().backward()
    assert log.seen.count("aten.mm.default") == 3
    assert a.grad is not None


def test_mode_may_answer_and_modes_nest() -> None:
    base = lucerne.utils._python_dispatch.TorchDispatchMode

    class Constant(base):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if func is lucerne.ops.aten.exp.default:
                return lucerne.full_like(args[0], 7.0)
            return func(*args, **(kwargs or {}))

    with _logging(lucerne) as outer, Constant():
        assert lucerne.zeros(2).exp().tolist() == [7.0, 7.0]
        assert len(lucerne.utils._python_dispatch._get_current_dispatch_mode_stack()) == 2
    assert "aten.exp.default" not in outer.seen
    with _logging(lucerne) as off, lucerne.utils._python_dispatch._disable_current_modes():
        lucerne.zeros(2).exp()
    assert off.seen == []


def test_mode_sees_custom_ops() -> None:
    @lucerne.library.custom_op("testlib_modes::f", mutates_args=())
    def f(x: lucerne.Tensor) -> lucerne.Tensor:
        return x.exp()

    f.register_fake(lucerne.empty_like)
    x = lucerne.ones(2)
    with _logging(lucerne) as log:
        f(x)
    assert log.seen == ["testlib_modes.f.default"]


MODELS = {
    "linear": (lambda n: n.Linear(6, 4), (3, 6)),
    "conv": (lambda n: n.Conv2d(3, 4, 3, padding=1), (2, 3, 7, 7)),
    "strided": (lambda n: n.Conv2d(4, 5, 3, stride=2), (2, 4, 9, 9)),
    "net": (
        lambda n: n.Sequential(n.Conv1d(2, 4, 3), n.ReLU(), n.Flatten(), n.Linear(24, 5)),
        (2, 2, 8),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_flops_as_torch_counts_them(name: str) -> None:
    totals = {}
    for side, t in SIDES.items():
        make, shape = MODELS[name]
        model = make(t.nn)
        x = t.ones(*shape, requires_grad=True)
        with _part(t, "utils.flop_counter").FlopCounterMode(display=False) as forward:
            y = model(x)
        with _part(t, "utils.flop_counter").FlopCounterMode(display=False) as both:
            y.sum().backward()
        by_module = {k: sum(v.values()) for k, v in forward.get_flop_counts().items()}
        totals[side] = forward.get_total_flops(), both.get_total_flops(), by_module
    assert totals["lucerne"] == totals["torch"]


def test_flop_formula_of_a_custom_op() -> None:
    @lucerne.library.custom_op("testlib_modes::flops", mutates_args=())
    def f(x: lucerne.Tensor) -> lucerne.Tensor:
        return x + 1

    f.register_fake(lucerne.empty_like)
    packet = lucerne.ops.testlib_modes.flops
    counter = lucerne.utils.flop_counter

    @counter.register_flop_formula(packet)
    def formula(x_shape: Any, *, out_shape: Any) -> int:
        return 10 * int(x_shape[0])

    try:
        with counter.FlopCounterMode(display=False) as counted:
            f(lucerne.ones(3))
    finally:
        del counter.flop_registry[packet]
    assert counted.get_flop_counts()["Global"] == {packet: 30}


def test_trees() -> None:
    for t in SIDES.values():
        tree = _part(t, "utils._pytree")
        given = {"a": [1, (2, "x")], "b": 3}
        assert tree.tree_map_only(int, lambda x: -x, given) == {"a": [-1, (-2, "x")], "b": -3}
        leaves, spec = tree.tree_flatten(given)
        assert leaves == [1, 2, "x", 3]
        assert tree.tree_unflatten(leaves, spec) == given
        assert tree.tree_any(lambda x: x == 3, given)
        assert tree.tree_map(lambda a, b: a + b, [1, 2], [3, 4]) == [4, 6]


def test_flop_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with lucerne.utils.flop_counter.FlopCounterMode():
        lucerne.nn.Linear(2, 3)(lucerne.ones(4, 2))
    assert "Linear" in capsys.readouterr().out


# ---- subclasses ---------------------------------------------------------------------------------


def _quantised(t: Any) -> Any:
    """Weights in eight bits: a wrapper that becomes floats where it is computed with."""
    aten = t.ops.aten

    class Quantised(t.Tensor):
        @staticmethod
        def __new__(cls, ints: Any, scale: float) -> Any:
            return t.Tensor._make_wrapper_subclass(cls, ints.shape, dtype=t.float32)

        def __init__(self, ints: Any, scale: float) -> None:
            self.ints, self.scale = ints, scale

        __torch_function__ = t._C._disabled_torch_function_impl

        def floats(self) -> Any:
            return self.ints.to(t.float32) * self.scale

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if func is aten.detach.default:
                return cls(args[0].ints, args[0].scale)
            if func is aten.t.default:
                return cls(args[0].ints.t(), args[0].scale)
            plain = [a.floats() if isinstance(a, cls) else a for a in args]
            return func(*plain, **(kwargs or {}))

    return Quantised


@pytest.mark.parametrize("side", SIDES)
def test_quantised_weight(side: str) -> None:
    t = SIDES[side]
    cls = _quantised(t)
    ints = (t.arange(12) - 5).reshape(4, 3).to(t.int8)
    layer = t.nn.Linear(3, 4, bias=False)
    layer.weight = t.nn.Parameter(cls(ints, 0.5), requires_grad=False)
    x = t.ones(2, 3, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    weight = ints.to(t.float32) * 0.5
    assert t.allclose(y, t.ones(2, 3) @ weight.t())
    assert t.allclose(x.grad, weight.sum(0).expand(2, 3))
    assert type(layer.state_dict()["weight"]) is cls
    assert isinstance(layer.weight, t.nn.Parameter)
    assert type(y) is t.Tensor


def test_wrapper_without_answer_says_so() -> None:
    class Silent(lucerne.Tensor):
        __torch_function__ = lucerne._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return NotImplemented

    made = lucerne.Tensor._make_wrapper_subclass(Silent, (2, 3))
    assert made.shape == (2, 3)
    assert "Silent" in repr(made)
    with pytest.raises(
        TypeError, match=r"no implementation found for 'torch.ops.aten.exp.default'"
    ):
        made.exp()
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
        lucerne.Tensor._make_wrapper_subclass(type("Plain", (lucerne.Tensor,), {}), (2,))


def _counting(t: Any) -> Any:
    """A wrapper that counts what runs on it, and stays a wrapper; it has in-place forms."""
    correct = _part(t, "utils._python_dispatch").return_and_correct_aliasing

    class Counted(t.Tensor):
        calls = 0

        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        __torch_function__ = t._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            cls.calls += 1
            plain = [a.inner if isinstance(a, cls) else a for a in args]
            return correct(func, args, kwargs or {}, cls(func(*plain, **(kwargs or {}))))

    return Counted


@pytest.mark.parametrize("side", SIDES)
def test_counting_wrapper(side: str) -> None:
    t = SIDES[side]
    cls = _counting(t)
    a = cls(t.ones(3))
    b = (a * 2).exp()
    assert type(b) is cls
    assert cls.calls == 2
    same = a.add_(1)
    assert same is a
    assert a.inner.tolist() == [2.0, 2.0, 2.0]


class Image(lucerne.Tensor):
    """A subclass that only retypes results."""


def test_subclass_through_compile_loader_and_state_dict() -> None:
    image = lucerne.ones(2, 2).as_subclass(Image)
    compiled = lucerne.compile(lambda x: x * 2 + 1)
    assert type(compiled(image)) is Image
    assert compiled(image).tolist() == [[3.0, 3.0], [3.0, 3.0]]

    class Images:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, k: int) -> Any:
            return lucerne.full((2,), float(k)).as_subclass(Image)

    batches = list(lucerne.utils.data.DataLoader(Images(), batch_size=2))
    assert [type(b) for b in batches] == [Image, Image]
    module = lucerne.nn.Linear(1, 1)
    module.register_buffer("image", image)
    assert type(module.state_dict()["image"]) is Image
    module.load_state_dict(module.state_dict())
    assert type(module.image) is Image


def test_registered_dispatch_of_a_custom_op_wins() -> None:
    cls = _counting(lucerne)

    @lucerne.library.custom_op("testlib_modes::g", mutates_args=())
    def g(x: lucerne.Tensor) -> lucerne.Tensor:
        return x.exp()

    @g.register_torch_dispatch(cls)
    def on_counted(kind: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return cls(args[0].inner + 100)

    assert g(cls(lucerne.zeros(1))).inner.tolist() == [100.0]


def test_in_place_calls_are_recorded_under_a_mode() -> None:
    x = lucerne.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    with _logging(lucerne) as log:
        y.mul_(x)
    y.sum().backward()
    assert log.seen[-1] == "aten.mul_.Tensor"
    assert x.grad.tolist() == [6.0, 12.0]
    assert y._version == 1
