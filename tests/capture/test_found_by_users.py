"""What programs of users found: a compiled function does to gradients, flags, containers and
attributes what it does uncompiled, call after call. A row is a function of a world it changes."""

from __future__ import annotations

import collections
import contextlib
import textwrap
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import nn

ROWS: list[Callable[..., Any]] = []


def row(fn: Callable[..., Any]) -> Callable[..., Any]:
    ROWS.append(fn)
    return fn


class Thing:
    pass


class World:
    """What rows work with, made anew for each run; `step` tells the calls apart."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 0.1)
        self.p, self.q = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        self.queue = torch.arange(4.0)
        self.counts, self.lists = collections.Counter("abc"), collections.defaultdict(list)
        self.thing, self.log = Thing(), []

    def before(self, step: int) -> None:
        self.p.grad, self.q.grad = torch.full((2,), 3.0 + step), torch.full((2,), 9.0)

    def state(self) -> Any:
        tensors = [self.p, self.q, self.queue, *self.model.parameters()]
        seen = [(t.detach().tolist(), t.requires_grad) for t in tensors]
        grads = [None if t.grad is None else t.grad.tolist() for t in tensors]
        held = dict(self.counts), dict(self.lists), vars(self.thing), self.log
        held = *held, vars(self.p), vars(self.q)
        return repr((seen, grads, *held))


# ---- gradients as objects -----------------------------------------------------------------------


@row
def the_old_gradient_is_kept(w: World, x: Any, p: Any) -> Any:
    old, p.grad = p.grad, None
    w.log.append(old.sum())
    return old, old * 2


@row
def the_old_gradient_beside_the_new(w: World, x: Any, p: Any) -> Any:
    old, p.grad = p.grad, None
    (p * p * x).sum().backward()
    return old, p.grad, w.p.grad


@row
def gradients_change_places(w: World, x: Any, p: Any) -> Any:
    w.p.grad, w.q.grad = w.q.grad, w.p.grad
    return w.p.grad


@row
def the_data_of_a_gradient(w: World, x: Any, p: Any) -> Any:
    w.q.grad.data.clamp_(-8, 8)
    return w.p.grad.data.norm(), p.grad.data * x, p.grad.detach(), w.q.grad.data[:1]


@row
def gradients_by_loss(w: World, x: Any, p: Any) -> Any:
    found = []
    for k in range(3):
        w.q.grad = None
        (w.q * x * k).sum().backward()
        found.append(w.q.grad)
    w.q.grad = None
    return found


# ---- what hangs on tensors ----------------------------------------------------------------------


@row
def hung_on_an_argument(w: World, x: Any, p: Any) -> Any:
    x.tag = (getattr(x, "tag", 0), "seen")
    w.log.append(x.tag)
    return x * 2


@row
def hung_on_a_result(w: World, x: Any, p: Any) -> Any:
    y = x * 2
    y.tag = "doubled"
    return y, y.tag


@row
def hung_on_a_parameter(w: World, x: Any, p: Any) -> Any:
    w.q.steps = getattr(w.q, "steps", 0) + 1
    return w.q * x, w.q.steps


@row
def written_into_what_hangs(w: World, x: Any, p: Any) -> Any:
    x.__dict__["tag"] = 3
    setattr(w.p, "other", w.p.__dict__.get("other", 0) + 2)  # noqa: B010
    return x + w.p.other, x.tag


# ---- flags --------------------------------------------------------------------------------------


@row
def frozen_in_between(w: World, x: Any, p: Any) -> Any:
    found = []
    for k in range(3):
        w.optimizer.zero_grad()
        w.model(x).sum().backward()
        w.optimizer.step()
        w.model[0].weight.requires_grad_(k == 1)
        found.append(w.model[0].weight.detach().sum())
    w.model[0].weight.requires_grad_(True)
    return [f.item() for f in found]


@row
def frozen_afterwards(w: World, x: Any, p: Any) -> Any:
    w.q.requires_grad_(True)
    y = (w.q * x).sum()
    w.q.requires_grad_(False)
    return y, y.requires_grad


@row
def an_error_after_a_change_of_type(w: World, x: Any, p: Any) -> Any:
    w.model(x).sum().backward()
    w.model.double()
    try:
        w.model(x)
    except RuntimeError:
        w.log.append("other type")
    w.model.float()
    return w.model(x)


# ---- containers and attributes ------------------------------------------------------------------


@row
def counters(w: World, x: Any, p: Any) -> Any:
    w.counts.update("aab")
    w.counts.subtract("c")
    return x * w.counts["a"], w.counts.most_common(1)


@row
def counter_given(w: World, x: Any, p: Any) -> Any:
    def count(found: Any) -> Any:
        found.subtract("a")
        return x * found["a"]

    return count(w.counts)


@row
def missing_keys(w: World, x: Any, p: Any) -> Any:
    w.lists["a"].append(len(w.lists))
    w.lists[len(w.lists)]
    return x * len(w.lists["a"])


@row
def an_attribute_that_is_not_there_yet(w: World, x: Any, p: Any) -> Any:
    w.thing.n = getattr(w.thing, "n", 0) + 1
    return x * w.thing.n


@row
def iterators_in_containers(w: World, x: Any, p: Any) -> Any:
    groups = [{"params": w.model[0].parameters(), "lr": 0.5}, {"params": w.model[1].parameters()}]
    made = torch.optim.SGD(groups, 0.1)
    w.model(x).sum().backward()
    made.step()
    return [len(g["params"]) for g in made.param_groups]


@pytest.mark.parametrize("mode", [None, "bitwise"])
@pytest.mark.parametrize("fn", ROWS, ids=lambda f: f.__name__)
def test_as_uncompiled(fn: Callable[..., Any], mode: str | None) -> None:
    seen = []
    for run in (fn, torch.compile(fn, mode=mode)):
        world, found = World(), []
        for step in range(3):
            world.before(step)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(repr(run(world, torch.ones(1, 2), world.p)))
            found.append(world.state())
        seen.append([text.partition("grad_fn")[0] for text in found])
    assert seen[0] == seen[1]


# ---- arguments ----------------------------------------------------------------------------------


def bump(thing: Any, x: Any) -> Any:
    thing.n = getattr(thing, "n", 0) + 1
    return x * thing.n


def bump_or(thing: Any, x: Any) -> Any:
    try:
        n = thing.n
    except AttributeError:
        n = 0
    thing.n = n + 1
    return x * n


def subtract(counts: Any, x: Any) -> Any:
    counts.subtract("ab")
    return x * counts["a"]


def append_to_missing(lists: Any, x: Any) -> Any:
    lists["n"].append(x)
    return x * len(lists["n"]) + len(lists)


def to_the_end(ordered: Any, x: Any) -> Any:
    ordered["z"] = 1
    ordered.move_to_end("a")
    ordered.popitem(last=False)
    ordered["a"] = ordered["a"] + 1
    return x * ordered["a"], list(ordered)


def look_at_missing(lists: Any, x: Any) -> Any:
    lists["m"]
    return x * 2, list(lists)


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (bump, Thing), (bump_or, Thing), (subtract, lambda: collections.Counter("abc")),
        (append_to_missing, lambda: collections.defaultdict(list)),
        (to_the_end, lambda: collections.OrderedDict(a=1, b=2, c=3, d=4, e=5, f=6)),
        (look_at_missing, lambda: collections.defaultdict(list)),
    ],
)  # fmt: skip
def test_arguments_that_change(fn: Callable[..., Any], make: Callable[[], Any]) -> None:
    compiled = torch.compile(fn)
    one, other = make(), make()
    for step in range(4):
        x = torch.full((2,), float(step))
        assert repr(compiled(one, x)) == repr(fn(other, x))
        if isinstance(one, Thing):
            assert vars(one) == vars(other)
        else:
            assert repr(one) == repr(other)
    assert not compiled.faults


# ---- what backward reads ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, "bitwise"])
def test_a_queue_is_written_before_backward(mode: str | None) -> None:
    """The derivative reads a copy, which eager keeps: the queue itself is free to change."""
    queue, w = torch.arange(6.0).reshape(2, 3), torch.ones(2, requires_grad=True)
    fn = torch.compile(lambda x: (x * w) @ queue.clone().detach(), mode=mode)
    loss = fn(torch.ones(2)).sum()
    queue.zero_()
    loss.backward()
    assert w.grad.tolist() == [3, 12]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.mean(), lambda x: (x * 2).relu().sum(), lambda x: x.logsumexp(0),
        lambda x: x.norm(),
    ],
)  # fmt: skip
def test_composites_of_bitwise_mode_have_other_sizes(fn: Callable[..., Any]) -> None:
    compiled = torch.compile(fn, mode="bitwise")
    for n in (3, 4, 5, 8):
        a, b = torch.linspace(-1, 1, n), torch.linspace(-1, 1, n)
        a.requires_grad_(), b.requires_grad_()
        one, other = compiled(a), fn(b)
        one.backward(), other.backward()
        assert torch.equal(one, other)
        assert torch.equal(a.grad, b.grad)
    assert not compiled.faults


def test_a_guessed_index_is_no_error_of_the_function() -> None:
    def walk(x: Any, order: Any) -> list[float]:
        found = []
        while order.numel() > 0:
            at = order[0]
            found.append(int(at))
            order = order[1:][x[at] <= x[order[1:]]]
        return found

    compiled = torch.compile(walk)
    for k in range(3):
        x = torch.tensor([0.3, 0.1, 0.7, 0.9, 0.2, 0.5]).roll(k)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert compiled(x, x.argsort()) == walk(x, x.argsort())
    assert not compiled.faults


# ---- errors that the function handles -----------------------------------------------------------


def jittered(a: Any, log: list[Any]) -> Any:
    jitter = 0.0
    while True:
        try:
            return torch.linalg.cholesky(a + jitter * torch.eye(2))
        except torch.linalg.LinAlgError:
            jitter = max(jitter * 10, 0.1)
            log.append(jitter)


def written_before(a: Any, log: list[Any]) -> Any:
    a.add_(1)
    try:
        return torch.linalg.cholesky(a)
    except RuntimeError:
        log.append("not definite")
        return a * 2
    finally:
        log.append("done")


def other_error(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        return x[at] * 2
    except TypeError:
        return x


def put_back(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        return x[at] * 2
    finally:
        x = x + 1


def of_two(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        return x[at] * 2
    except TypeError:
        return x
    except (KeyError, IndexError):
        return x.sum()


def any_error(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        return x[at] * 2
    except:  # noqa: E722
        return x.sum()


def outer_catches(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        try:
            return x[at] * 2
        except TypeError:
            return x
    except IndexError:
        return x.sum()


def outer_of_finally(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        try:
            return x[at] * 2
        finally:
            x = x + 1
    except IndexError:
        return x.sum()


def outer_lets_through(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        try:
            return x[at] * 2
        finally:
            x = x + 1
    except KeyError:
        return x.sum()


def in_a_group(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        x = x[at] * 2
    except* IndexError:
        x = x.sum()
    return x


def comprehension_in_a_try(written: Any, x: Any, at: Any) -> Any:
    written.add_(1)
    try:
        return sum([x[at] * k for k in range(2)])
    except IndexError:
        return x.sum()


def _from_text(name: str, text: str) -> Callable[..., Any]:
    """(Python 3.14 warns of these where it compiles a file.)"""
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(textwrap.dedent(text), found)
    made: Callable[..., Any] = found[name]
    return made


finally_returns = _from_text(
    "finally_returns",
    """
    def finally_returns(written, x, at):
        written.add_(1)
        try:
            return x[at] * 2
        finally:
            return x.sum()
    """,
)
finally_goes_on = _from_text(
    "finally_goes_on",
    """
    def finally_goes_on(written, x, at):
        for _ in range(2):
            written.add_(1)
            try:
                x = x[at] * 2
            finally:
                continue
        return x.sum()
    """,
)
HANDLERS = [
    (other_error, 0), (put_back, 0), (of_two, 1), (any_error, 1), (outer_catches, 1),
    (outer_of_finally, 1), (outer_lets_through, 0), (in_a_group, 1), (comprehension_in_a_try, 1),
    (finally_returns, 1), (finally_goes_on, 1),
]  # fmt: skip


class Swallows:
    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        return kind is IndexError


class LetsThrough(Swallows):
    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        return False


class SaysNothing(Swallows):
    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        self.kind = kind


@contextlib.contextmanager
def catching() -> Any:
    try:
        yield
    except IndexError:
        pass


@contextlib.contextmanager
def cleaning() -> Any:
    try:
        yield
    finally:
        sum([1, 2])


@contextlib.contextmanager
def plain() -> Any:
    yield


@contextlib.contextmanager
def around_another() -> Any:
    with contextlib.suppress(IndexError):
        yield


def stack_of(*managers: Any) -> Any:
    stack = contextlib.ExitStack()
    for each in managers:
        stack.enter_context(each)
    return stack


MANAGERS: list[tuple[str, Callable[[], Any], int]] = [
    ("suppress", lambda: contextlib.suppress(IndexError), 1),
    ("swallows", Swallows, 1),
    ("lets through", LetsThrough, 0),
    ("says nothing", SaysNothing, 0),
    ("catching", catching, 1),
    ("cleaning", cleaning, 0),
    ("plain", plain, 0),
    ("around another", around_another, 1),
    ("stack of suppress", lambda: stack_of(plain(), contextlib.suppress(IndexError)), 1),
    ("empty stack", stack_of, 1),  # (its own code, which asks what is being handled, is a break)
    ("lock", threading.Lock, 1),  # (who holds it is nothing that a guard compares)
    ("no_grad", torch.no_grad, 0),
    ("nullcontext", contextlib.nullcontext, 0),
]


def _same_each_time(fn: Callable[..., Any], breaks: int) -> None:
    compiled, found = torch.compile(fn), []
    for at in (1, 2, 7):
        for call in (compiled, fn):
            written = torch.zeros(2)
            try:
                result: Any = call(written, torch.arange(5.0), torch.tensor([at]))
                result = result if result is None else result.tolist()
            except IndexError:
                result = "IndexError"
            found.append((result, written.tolist()))
    assert found[::2] == found[1::2]
    assert bool(compiled.breaks) == bool(breaks)


@pytest.mark.parametrize(("fn", "breaks"), HANDLERS, ids=lambda f: getattr(f, "__name__", f))
def test_only_handlers_of_what_ops_raise_count(fn: Callable[..., Any], breaks: int) -> None:
    """Others (and the package's own) leave a function that writes to tensors one graph."""
    _same_each_time(fn, breaks)


@pytest.mark.parametrize("made", ["inside", "outside"])
@pytest.mark.parametrize(
    ("manager", "breaks"), [m[1:] for m in MANAGERS], ids=[m[0] for m in MANAGERS]
)
def test_only_managers_that_may_end_an_error_count(
    manager: Callable[[], Any], breaks: int, made: str
) -> None:
    def inside(written: Any, x: Any, at: Any) -> Any:
        written.add_(1)
        with manager():
            x = x[at] * 2
        return x

    def outside(written: Any, x: Any, at: Any, entered: Any) -> Any:
        written.add_(1)
        with entered:
            x = x[at] * 2
        return x

    if made == "inside":
        _same_each_time(inside, breaks)
        return
    fn = torch.compile(outside)
    for at in (1, 7):
        found = []
        for call in (fn, outside):
            written = torch.zeros(2)
            try:
                result: Any = call(written, torch.arange(5.0), torch.tensor([at]), manager())
                result = result.tolist()
            except IndexError:
                result = "IndexError"
            found.append((result, written.tolist()))
        assert found[0] == found[1]


@pytest.mark.parametrize("fn", [jittered, written_before], ids=lambda f: f.__name__)
def test_errors_that_the_data_cause_come_to_the_handler(fn: Callable[..., Any]) -> None:
    compiled = torch.compile(fn)
    logs: list[list[Any]] = [[], []]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a in (torch.eye(2), torch.ones(2, 2), -3 * torch.eye(2), torch.eye(2) * 4):
            one, other = a.clone(), a.clone()
            assert torch.equal(compiled(one, logs[0]), fn(other, logs[1]))
            assert torch.equal(one, other)
    assert logs[0] == logs[1]
    assert not compiled.faults
    assert compiled.given_up is None


def test_a_number_beside_what_nobody_reads() -> None:
    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(lambda k: (x * k).sum().backward(), mode="bitwise")
    for k in (1.0, 2.0, 3.0):
        compiled(k)
    assert x.grad.tolist() == [6.0] * 3
    assert not compiled.faults


def test_nothing_is_recorded_in_inference_mode() -> None:
    w = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        with torch.enable_grad():
            assert torch.is_grad_enabled()
            assert not (torch.ones(2) * w).requires_grad
        with torch.inference_mode(False):
            assert torch.is_grad_enabled()
            assert (w * 1).requires_grad
    assert (w * 1).requires_grad


# ---- functions that native code calls -----------------------------------------------------------

READ, WRITTEN = np.ones(2), np.ones(3)


class Layer(nn.Module):
    def forward(self, x: Any) -> Any:
        np.vectorize(lambda i: WRITTEN.__setitem__(i, WRITTEN[i] + 0.5))(np.arange(1))
        return x * float(WRITTEN[0])


class Reader:
    def by_vectorize(self, x: Any) -> Any:
        return x * float(np.vectorize(lambda i: READ[i] * 2)(np.arange(2)).sum())

    def by_ufunc(self, x: Any) -> Any:
        return x * float(np.frompyfunc(lambda i: READ[i], 1, 1)(0))


LAYER, READER = Layer(), Reader()


@pytest.mark.parametrize(
    "fn",
    [lambda x: LAYER(x), lambda x: READER.by_vectorize(x), lambda x: READER.by_ufunc(x)],
    ids=["written", "vectorize", "frompyfunc"],
)
def test_arrays_of_the_module_behind_a_method(fn: Callable[..., Any]) -> None:
    seen = []
    for run in (fn, torch.compile(fn)):
        found = []
        for k in (1, 2, 2, 3):
            READ[0] = WRITTEN[0] = k
            found.append((run(torch.ones(1)).item(), WRITTEN.tolist()))
        seen.append(found)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_of_an_optimizer_is_one_graph(kind: Any) -> None:
    """(Its own code, with hooks and switches of the process, is not entered.)"""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        optimizer = kind(model.parameters(), 0.1)
        step = torch.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
        for k in range(5):
            model(torch.ones(1, 2)).pow(2).sum().backward()
            step()
            if k == 1:
                optimizer.param_groups[0]["lr"] = 0.5
        seen.append(model.weight.tolist())
        assert not compiled or not step.faults
    assert seen[0] == seen[1]


MOVED = torch.ones(1)


@pytest.mark.parametrize(
    "hook",
    [
        lambda g: g * MOVED.set_(MOVED + 0.5).sum(), lambda g: g * MOVED.resize_(1).sum(),
        lambda g: g * MOVED.unsqueeze_(0).squeeze_(0).sum(),
    ],
    ids=["set_", "resize_", "unsqueeze_"],
)  # fmt: skip
def test_hooks_that_give_a_tensor_other_memory(hook: Callable[..., Any]) -> None:
    """(It is reached by the backward pass alone.)"""

    def fn(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * 3

    seen = []
    for run in (fn, torch.compile(fn)):
        MOVED.set_(torch.ones(1))
        for _ in range(3):
            x = torch.ones(2, requires_grad=True)
            run(x).sum().backward()
            seen.append((x.grad.tolist(), MOVED.tolist()))
    assert seen[:3] == seen[3:]


class Holder:
    """What looks like an optimizer, and is none."""

    def __init__(self) -> None:
        self.param_groups = [{"params": [torch.ones(2)]}]
        self.state: dict[str, Any] = {}
        self.own_hooks = 3


def test_what_only_looks_like_an_optimizer() -> None:
    holder = Holder()
    fn = torch.compile(lambda x: x * holder.param_groups[0]["params"][0], fullgraph=True)
    assert fn(torch.ones(2)).tolist() == [1, 1]
    holder.param_groups[0]["params"][0] = torch.full((2,), 5.0)
    assert fn(torch.ones(2)).tolist() == [5, 5]
