"""Attributes and calls of modules in machine code: rows are what programs do with a module, laws
what must hold of each. The plain Python path, which the slots stand in front of, is the oracle."""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

import lucerne as torch
from lucerne.fx._symbolic_trace import _subclasses
from lucerne.nn.modules.module import _Slots
from lucerne.nn.utils import parametrize

nn = torch.nn
Act = Callable[[Any], Any]


class Net(nn.Module):
    """A module with one of everything."""

    shared = "of the class"

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_parameter("nothing", None)
        self.register_buffer("mean", torch.tensor([3.0, 4.0]))
        self.child = nn.Identity()
        self.plain = 5

    @property
    def fine(self) -> Any:
        return self.weight.shape

    @property
    def broken(self) -> Any:
        return self.nowhere

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.child(args), kwargs


class Chooses(Net):
    def __getattr__(self, name: str) -> Any:
        return "chosen" if name == "chosen" else super().__getattr__(name)


class Intercepts(Net):
    def __getattribute__(self, name: str) -> Any:
        return "mine" if name == "intercepted" else super().__getattribute__(name)


class Shadows(Net):
    shadow = property(lambda self: "the property's")


class Calls(Net):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "around", super().__call__(*args, **kwargs)


class Impl(Net):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return "impl", super()._call_impl(*args, **kwargs)


class Raises(Net):
    def forward(self, kind: Any) -> Any:
        try:
            return {}["cause"]
        except KeyError:
            raise kind("as it was told") from None


class Multiplies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 3), nn.Linear(2, 3))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Computed(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return "computed", key


def _with(change: Callable[[Any], Any], then: Act) -> Act:
    def act(m: Any) -> Any:
        handle = change(m)
        try:
            return then(m)
        finally:
            if hasattr(handle, "remove"):
                handle.remove()

    return act


def _set(**attributes: Any) -> Callable[[Any], None]:
    def change(m: Any) -> None:
        for name, value in attributes.items():
            setattr(m, name, value)

    return change


def _own(name: str, value: Any) -> Callable[[Any], None]:
    return lambda m: m.__dict__.__setitem__(name, value)


def _told(m: Any) -> Any:
    """What a module's hooks were told by a call."""
    return m(1), m.told


def _tells(register: str, **options: Any) -> Callable[[Any], Any]:
    def change(m: Any) -> Any:
        m.told = []
        return getattr(m, register)(lambda *given: m.told.append(len(given)), **options)

    return change


def _global(register: Any) -> Callable[[Any], Any]:
    def change(m: Any) -> Any:
        m.told = []
        return register(lambda one, *given: m.told.append(type(one).__name__))

    return change


def _grads(m: Any) -> Any:
    x = torch.ones(2, requires_grad=True)
    (m(x)[0][0] * 2).sum().backward()
    return x.grad


def _no_init(m: Any) -> Any:
    return Net.__new__(type(m)).weight


def _no_init_call(m: Any) -> Any:
    return Net.__new__(type(m))(1)


def _replaced(m: Any) -> Any:
    before = Net.forward
    Net.forward = lambda self, x: ("another", x)  # type: ignore[assignment,method-assign]
    try:
        return m(1)
    finally:
        Net.forward = before  # type: ignore[method-assign]


def _removed(register: str) -> Act:
    def act(m: Any) -> Any:
        _tells(register)(m).remove()
        return _told(m)

    return act


def _parametrized(m: Any) -> Any:
    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    parametrize.register_parametrization(m, "weight", Twice())
    return m.weight, type(m).__name__, m(1)


def _lazy(m: Any) -> Any:
    layer = nn.LazyLinear(2)
    before = type(layer).__name__
    return before, layer(torch.ones(1, 3)).shape, type(layer).__name__, layer.weight.shape


def _deleted(m: Any) -> Any:
    del m.weight, m.mean, m.child
    return [getattr(m, name, "gone") for name in ("weight", "mean", "child", "plain")]


class Row(NamedTuple):
    act: Act
    fast: bool
    """Whether machine code must do all of it (else Python's functions must be asked)."""
    make: Callable[[], Any] = Net


ROWS = {
    "parameter": Row(lambda m: m.weight, True),
    "no parameter": Row(lambda m: m.nothing, True),
    "buffer": Row(lambda m: m.mean, True),
    "child": Row(lambda m: type(m.child), True),
    "plain": Row(lambda m: (m.plain, m.shared, m.training, m.fine), True),
    "set to the tables": Row(
        _with(lambda m: m._parameters.update(weight=7), lambda m: m.weight), True
    ),
    "own before tables": Row(_with(_own("weight", 7), lambda m: m.weight), True),
    "property before tables": Row(
        _with(lambda m: m._parameters.update(shadow=7), lambda m: m.shadow), True, Shadows
    ),
    "dict": Row(_with(_own("_parameters", {"weight": 7}), lambda m: m.weight), True),
    "ordered": Row(_with(_own("_parameters", OrderedDict(weight=7)), lambda m: m.weight), True),
    "computed": Row(_with(_own("_parameters", Computed(weight=7)), lambda m: m.weight), False),
    "missing": Row(lambda m: m.nowhere, False),
    "asked for": Row(lambda m: (hasattr(m, "nowhere"), getattr(m, "nowhere", 3)), False),
    "broken property": Row(lambda m: m.broken, False),
    "before init": Row(_no_init, False),
    "deleted": Row(_deleted, False),
    "own getattr": Row(lambda m: (m.chosen, m.weight), False, Chooses),
    "own getattribute": Row(lambda m: (m.intercepted, m.mean), False, Intercepts),
    "parametrized": Row(_parametrized, False),
    "call": Row(lambda m: m(1), True),
    "call of nothing": Row(lambda m: m(), True),
    "eight": Row(lambda m: m(*range(8)), True),
    "nine": Row(lambda m: m(*range(9)), True),
    "names": Row(lambda m: m(1, a=2), True),
    "names alone": Row(lambda m: m(a=2), True),
    "forward of the instance": Row(_with(_set(forward=lambda x: x + 1), lambda m: m(1)), True),
    "forward of the class": Row(_replaced, True),
    "forward is a module": Row(_with(_own("forward", nn.Identity()), lambda m: m(1)), True),
    "own call": Row(lambda m: m(1), False, Calls),
    "own call_impl": Row(lambda m: m(1), False, Impl),
    "lazy": Row(_lazy, False),
    "pre hook": Row(_with(_tells("register_forward_pre_hook"), _told), False),
    "hook": Row(_with(_tells("register_forward_hook"), _told), False),
    "hook with names": Row(_with(_tells("register_forward_hook", with_kwargs=True), _told), False),
    "backward hook": Row(_with(_tells("register_full_backward_hook"), _grads), False),
    "backward pre hook": Row(_with(_tells("register_full_backward_pre_hook"), _grads), False),
    "hook removed": Row(_removed("register_forward_hook"), True),
    "pre hook removed": Row(_removed("register_forward_pre_hook"), True),
    "global hook": Row(
        _with(_global(nn.modules.module.register_module_forward_hook), _told), False
    ),
    "global pre hook": Row(
        _with(_global(nn.modules.module.register_module_forward_pre_hook), _told), False
    ),
    "before init, called": Row(_no_init_call, False),
    "raises": Row(lambda m: m(ValueError), True, Raises),
    "stops": Row(lambda m: m(StopIteration), True, Raises),
    "interrupted": Row(lambda m: m(KeyboardInterrupt), True, Raises),
    "an attribute's error": Row(lambda m: m(AttributeError), True, Raises),
    "too many": Row(lambda m: m(1, 2, 3), True, Raises),
    "too few": Row(lambda m: m(), True, Raises),
    "unknown name": Row(lambda m: m(other=1), True, Raises),
    "no forward": Row(lambda m: m(1), True, nn.Module),
    "shapes": Row(lambda m: m(torch.ones(1, 2)), True, Multiplies),
    "shapes by name": Row(lambda m: m(x=torch.ones(1, 2)), True, Multiplies),
    "too many inside": Row(lambda m: m.layers(torch.ones(1, 2), 3), True, Multiplies),
}
rows = pytest.mark.parametrize("name", ROWS)


def _put_back() -> None:
    """Slots for all classes: assigning to `Module.__call__` gives them Python's."""
    assert _Slots.patch is not None
    for cls in _subclasses(nn.Module):
        _Slots.patch(cls)


@pytest.fixture(autouse=True)
def _slots() -> None:
    if _Slots.patch is None:
        assert torch.backends.host != "cpu", "the slots must be there where machine code runs"
        pytest.skip("this host's engine has no machine code for modules")
    _put_back()  # (another test of this process may have replaced a method)


@contextmanager
def python_path() -> Iterator[None]:
    """Attributes and calls go through Python's functions, whatever class is made inside."""
    patch, _Slots.patch = _Slots.patch, None
    try:
        for name in ("__getattr__", "__call__"):
            setattr(nn.Module, name, nn.Module.__dict__[name])
        yield
    finally:
        _Slots.patch = patch
        _put_back()


def _plain(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return type(x).__name__, x.tolist()
    if isinstance(x, (tuple, list)):
        return type(x).__name__, [_plain(v) for v in x]
    return x


def outcome(row: Row) -> Any:
    """The result, or the error with everything that is shown of it."""
    model = row.make()
    try:
        return _plain(row.act(model))
    except BaseException as error:
        lines, trace = [], error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == __file__:
                lines.append((code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        notes = list(getattr(error, "__notes__", ()))
        shown = error.__cause__, type(error.__context__), error.__suppress_context__
        return type(error), str(error), notes, lines, shown


def _asked(act: Callable[[], Any]) -> list[str]:
    """Which of Python's functions that the slots stand for have run."""
    codes = {
        nn.Module.__dict__["__getattr__"].__code__: "__getattr__",
        nn.Module.__dict__["_call_impl"].__code__: "_call_impl",
    }
    found: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            found.append(codes[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


@rows
def test_like_the_python_path(name: str) -> None:
    row = ROWS[name]
    with python_path():
        wanted = outcome(row)
    assert outcome(row) == wanted


@rows
def test_machine_code_does_it(name: str) -> None:
    """A row that is the usual case must not go through Python: else it costs three times as much,
    and nothing but a clock would tell."""
    row = ROWS[name]
    model = row.make()

    def act() -> None:
        try:
            row.act(model)
        except BaseException as error:
            del error

    asked = _asked(act)
    special = type(model).__getattribute__ is not object.__getattribute__
    assert not asked if row.fast else asked or special, asked


def test_references() -> None:
    """Neither results nor errors keep or lose what was given."""
    kinds = (Net, Raises, Multiplies, nn.Identity, nn.Parameter)
    shared = [None, (), ValueError, TypeError, AttributeError, *kinds]

    def ten_rounds() -> None:
        for _ in range(10):
            for row in ROWS.values():
                outcome(row)

    def counts() -> list[int]:
        gc.collect()
        things = [type(x) for x in gc.get_objects()]
        return [*map(things.count, kinds), *map(sys.getrefcount, shared)]

    for _ in range(3):  # (caches fill, and what other tests have left goes)
        before = counts()
        ten_rounds()
    grown = [b - a for a, b in zip(before, counts(), strict=True)]
    assert max(map(abs, grown)) < 10, grown


def test_a_hook_set_while_threads_call() -> None:
    """Each call sees the hooks that are there when it begins."""
    model, told, wrong = Net(), [], []
    stop = threading.Event()

    def call() -> None:
        while not stop.is_set():
            if model(1) != ((1,), {}) or model.weight is not model._parameters["weight"]:
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(50):
        handle = model.register_forward_hook(lambda *given: told.append(threading.get_ident()))
        model(1)
        handle.remove()
    stop.set()
    for t in threads:
        t.join()
    assert not wrong
    assert told.count(threading.get_ident()) == 50


def test_a_method_of_the_base_class_is_replaced() -> None:
    call, model = nn.Module.__call__, Net()
    nn.Module.__call__ = lambda self, *args: ("replaced", call(self, *args))  # type: ignore[method-assign]
    try:
        assert model(1)[0] == "replaced"
        assert model.child(1) == ("replaced", 1)
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
    assert model(1) == ((1,), {})


def test_tracing_leaves_the_slots() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    torch.fx.symbolic_trace(model)
    assert not _asked(lambda: model(torch.ones(1, 2)))


def test_what_explains_an_error_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an `except` clause: its error goes on, with the first one as its context."""

    def fails(*given: Any, **options: Any) -> None:
        raise MemoryError("no room for a note")

    monkeypatch.setattr("lucerne.nn.modules.module.module_failed", fails)
    for way in (python_path(), _nothing()):
        with way, pytest.raises(MemoryError, match="no room") as caught:
            Raises()(ValueError)
        assert type(caught.value.__context__) is ValueError
    assert sys.exc_info() == (None, None, None)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def test_a_handled_error_stays_the_one_at_hand() -> None:
    inner: Any = None
    outer = OSError("outer")
    try:
        raise outer
    except OSError:
        with pytest.raises(ValueError, match="told") as caught:
            Raises()(ValueError)
        at_hand = sys.exc_info()[1]
        inner = caught.value.__context__
    assert at_hand is outer
    assert isinstance(inner, KeyError)
    assert inner.__context__ is outer
