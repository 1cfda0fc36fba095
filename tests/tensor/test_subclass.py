"""Subclasses of Tensor, `__torch_function__` and function modes: the same programs under both."""

import copy

import pytest

import lucerne
from lucerne._src.tensor.subclasses.torch_function import disabled_torch_function
from tests.support.both import show

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PLAIN = """
class Sub(torch.Tensor):
    pass
x = torch.ones(2, 2).as_subclass(Sub)
"""

LOGGED = """
log = []
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)
x = torch.ones(2, 2).as_subclass(Sub)
"""

DISABLED = """
off = torch.overrides if hasattr(torch, "overrides") else None
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented
x = torch.ones(2).as_subclass(Sub)
"""

DUCK = """
handled = {}
class Diagonal:
    def __init__(self, n, value):
        self.n, self.value = n, value
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in handled:
            return NotImplemented
        return handled[func](*args, **(kwargs or {}))
def mean(input):
    return float(input.value) / input.n
def add(input, other):
    return Diagonal(input.n, input.value + other.value)
handled[torch.mean] = mean
handled[torch.add] = add
handled[torch.sum] = lambda input: input.n * input.value
handled[torch.stack] = lambda tensors: len(tensors)
d = Diagonal(5, 2)
"""

MODE = """
seen = []
class Log(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(torch.overrides.resolve_name(func).split(".")[-1])
        return func(*args, **(kwargs or {}))
"""

PROGRAMS = [
    PLAIN + "type(x).__name__, type(x + 1).__name__, type(x.sum()).__name__",
    PLAIN + "type(x[0]).__name__, type(x.t()).__name__, type(torch.ones(2) + x).__name__",
    PLAIN + "type(x.detach()).__name__, type(x.data).__name__, type(x.clone()).__name__",
    PLAIN + "[type(p).__name__ for p in x.unbind()]",
    PLAIN + "type(torch.stack([x, x])).__name__, type(torch.max(x, 0).values).__name__",
    PLAIN + "type(x.numpy()).__name__, type(x.tolist()).__name__, type(x.shape).__name__",
    PLAIN + "print(x)",
    PLAIN + "x.add_(1)\ntype(x).__name__, x.tolist()",
    PLAIN + "y = x.clone().requires_grad_()\ny.sum().backward()\ntype(y.grad).__name__",
    PLAIN + "class Two(Sub):\n    pass\ny = torch.ones(2, 2).as_subclass(Two)\n"
    "type(x + y).__name__, type(y + x).__name__",
    PLAIN + "class Other(torch.Tensor):\n    pass\ny = torch.ones(2, 2).as_subclass(Other)\nx + y",
    PLAIN + "isinstance(x, torch.Tensor), isinstance(x, Sub), torch.is_tensor(x)",
    PLAIN + "with torch._C.DisableTorchFunctionSubclass() if hasattr(torch, '_C') else "
    "torch.DisableTorchFunctionSubclass():\n    y = x + 1\ntype(y).__name__",
    PLAIN + "type(torch.nn.functional.relu(x)).__name__, type(x.softmax(0)).__name__",
    PLAIN + "type(x.to(torch.float64)).__name__, type(x == x).__name__",
    PLAIN + "type(torch.zeros_like(x)).__name__, type(x.new_zeros(2)).__name__",
    PLAIN + "type(x @ x).__name__, type(2 * x).__name__, type(-x).__name__",
    "class Sub(torch.Tensor):\n    def __new__(cls, data, note):\n"
    "        return torch.as_tensor(data).as_subclass(cls)\n"
    "    def __init__(self, data, note):\n        self.note = note\n"
    "s = Sub([1.0, 2.0], 'hi')\ns.note, s.tolist(), hasattr(s + 1, 'note')",
    LOGGED + "y = x + 1\ntype(y).__name__",
    LOGGED + "torch.exp(x)\ntorch.sum(x)\ntorch.stack([x, x])\nlog",
    LOGGED + "y = x.exp()\nlog",
    LOGGED + "y = torch.max(x, 0)\nlog, type(y.values).__name__",
    LOGGED + "x.size(), x.dim()\nlog",
    LOGGED + "x.shape\nlog",
    LOGGED + "x.add_(1)\nlog",
    LOGGED + "torch.add(x, 1, alpha=2).tolist()",
    LOGGED + "torch.where(x > 0, x, torch.zeros(2, 2)).tolist()",
    LOGGED + "x.sum(0, keepdim=True).tolist()",
    LOGGED + "torch.cat([torch.ones(1, 2), x]).shape",
    LOGGED + "float(x.sum()), bool(x[0, 0]), len(x)",
    DISABLED + "x + 1",
    DISABLED + "torch.sum(x)",
    DUCK + "torch.mean(d)",
    DUCK + "torch.add(d, Diagonal(5, 3)).value",
    DUCK + "torch.sum(d)",
    DUCK + "torch.stack([d, d])",
    DUCK + "torch.exp(d)",
    DUCK + "torch.overrides.is_tensor_like(d), torch.overrides.is_tensor_like(3)",
    DUCK + "torch.overrides.has_torch_function((d,)), torch.overrides.has_torch_function((1,))",
    MODE + "with Log():\n    torch.exp(torch.ones(2))\nseen",
    MODE + "with Log():\n    torch.sum(torch.ones(2, 3), 0)\nseen",
    MODE + "with Log(), Log():\n    torch.exp(torch.zeros(2))\nseen",
    MODE + "x = torch.ones(2)\nwith Log():\n    x.neg_()\nseen, x.tolist()",
    MODE + "with Log():\n    torch.nn.functional.softmax(torch.ones(2), 0)\nseen",
    "class Same(torch.overrides.BaseTorchFunctionMode):\n    pass\n"
    "with Same():\n    y = torch.ones(2) * 3\ny",
    "class Double(torch.overrides.TorchFunctionMode):\n"
    "    def __torch_function__(self, func, types, args=(), kwargs=None):\n"
    "        return func(*args, **(kwargs or {})) * 2\n"
    "with Double():\n    y = torch.ones(2)\ny",
    "@torch.overrides.wrap_torch_function(lambda x: (x,))\ndef f(x):\n    return 'plain'\n"
    "class T(torch.Tensor):\n    @classmethod\n"
    "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
    "        return 'taken'\n"
    "f(torch.ones(1)), f(torch.ones(1).as_subclass(T))",
    "class T(torch.Tensor):\n    @classmethod\n"
    "    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
    "        return func.__name__\n"
    "t = torch.ones(2).as_subclass(T)\nt + 1, t.exp(), torch.sum(t), t.shape, t.size(0)",
    "torch.overrides.resolve_name(torch.exp)",
    "torch.overrides.resolve_name(torch.Tensor.shape.__get__)",
    "torch.overrides.resolve_name(torch.nn.functional.gelu), torch.overrides.resolve_name(print)",
    "torch.overrides.is_tensor_method_or_property(torch.Tensor.add)",
    "torch.overrides.is_tensor_method_or_property(torch.Tensor.shape.__get__)",
    "torch.Tensor.grad.__get__ in torch.overrides.get_default_nowrap_functions()",
]


@pytest.mark.parametrize("source", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program_agrees(source: str) -> None:
    assert show(lucerne, source, errors=False) == show(torch, source, errors=False)


def test_copies_keep_the_type() -> None:
    class Sub(lucerne.Tensor):
        pass

    x = lucerne.ones(2).as_subclass(Sub)
    x.note = "kept"
    for made in (copy.deepcopy(x), copy.copy(x)):
        assert type(made) is Sub
        assert made.note == "kept"


def test_disabled_subclass_is_plain() -> None:
    class Quiet(lucerne.Tensor):
        __torch_function__ = disabled_torch_function

    x = lucerne.ones(2).as_subclass(Quiet)
    assert type(x + 1) is lucerne.Tensor


def test_overridable_functions_are_listed_and_bind() -> None:
    listed = lucerne.overrides.get_overridable_functions()
    assert lucerne.exp in listed[lucerne]
    assert lucerne.linalg.norm in listed[lucerne.linalg]
    assert lucerne.Tensor.exp in listed[lucerne.Tensor]
    fakes = lucerne.overrides.get_testing_overrides()
    assert fakes[lucerne.exp](1) == -1
    with pytest.raises(TypeError):
        fakes[lucerne.exp]()
    ignored = lucerne.overrides.get_ignored_functions()
    assert lucerne.manual_seed in ignored
    assert lucerne.exp not in ignored


def test_modes_do_not_outlive_an_error() -> None:
    class Broken(lucerne.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: object, types: object, args: object = (), kwargs: object = None
        ) -> object:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), Broken():
        lucerne.ones(2)
    assert lucerne.ones(2).tolist() == [1, 1]
    with lucerne.DisableTorchFunction(), Broken():
        pass
    with Broken(), lucerne.DisableTorchFunction():
        assert lucerne.ones(1).tolist() == [1]


def test_questions_about_overriding() -> None:
    class Sub(lucerne.Tensor):
        pass

    x, sub = lucerne.ones(1), lucerne.ones(1).as_subclass(Sub)
    assert not lucerne.overrides.has_torch_function((x, 1))
    assert lucerne.overrides.has_torch_function((x, sub))
    assert lucerne.overrides.has_torch_function_unary(sub)
    assert lucerne.overrides.has_torch_function_variadic(x, sub)
    with lucerne.DisableTorchFunctionSubclass():
        assert not lucerne.overrides.has_torch_function((sub,))
    assert lucerne.overrides.is_tensor_like(sub)
    assert lucerne.overrides.is_tensor_method_or_property(lucerne.Tensor.size)
    assert lucerne.overrides.resolve_name(lucerne.Tensor.size) == "torch.Tensor.size"
    with lucerne.overrides.BaseTorchFunctionMode():
        assert lucerne.overrides.has_torch_function((x,))
