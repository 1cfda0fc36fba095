"""Programs that faults are planted in: what is called, and all that can be seen afterwards."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import lucerne as torch
from lucerne._src.capture.lazy import mode as lazy_mode
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.saved import hooks as saved_hooks
from lucerne._src.tensor.eager.specialize import Observation

F = torch.nn.functional
Call = Callable[[int], Any]
"""Makes call number k, and returns what it gives."""


@dataclass(frozen=True)
class Program:
    """`make(compiled, mark)` gives a way to make calls on state of its own. `mark` is a number that
    is in the code: another one is another program, whose kernels nobody has compiled yet."""

    name: str
    make: Callable[[bool, float], Call]
    calls: int = 3
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


@dataclass
class Seen:
    """What a program did: per call a nested list of numbers, printed text, and the generator."""

    results: list[Any] = field(default_factory=list)
    printed: str = ""
    warned: list[str] = field(default_factory=list)


def run(
    program: Program, compiled: bool, mark: float, between: Callable[[int], None] | None = None
) -> Seen:
    """Make all calls of a program; `between(k)` comes before call number k."""
    seen, out = Seen(), io.StringIO()
    torch.manual_seed(5)
    call = program.make(compiled, mark)
    with warnings.catch_warnings(record=True) as told, redirect_stdout(out):
        warnings.simplefilter("always")
        for k in range(program.calls):
            if between is not None:
                between(k)
            try:
                found: Any = call(k)
            except Exception as error:
                found = f"{type(error).__name__}: {error}"
            seen.results.append([_plain(found), _process()])
    seen.printed = out.getvalue()
    seen.warned = [str(w.message) for w in told]
    return seen


def _process() -> list[Any]:
    """State of the process that a compile must leave as it was."""
    state = dispatch.state
    return [
        hash(tuple(torch.random.get_rng_state().tolist())), gc.get_freeze_count(),
        len(state.call_level), len(state.kernel_level), state.special, state.inference,
        state.grad_enabled, state.cast is None, len(saved_hooks.stack),
        Observation.current is None, str(torch.get_default_dtype()), gc.isenabled(),
    ]  # fmt: skip


def _plain(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().tolist()
    if isinstance(x, (list, tuple)):
        return [_plain(v) for v in x]
    return x


def same(a: Any, b: Any) -> bool:
    """Whether two nested lists hold the same numbers but for rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-4 * max(1.0, abs(a), abs(b)) or (a != a and b != b)
    return type(a) is type(b) and bool(a == b)


def _made(fn: Any, compiled: bool, **options: Any) -> Any:
    return torch.compile(fn, **options) if compiled else fn


def _inference(compiled: bool, mark: float) -> Call:
    weight = torch.linspace(-1, 1, 12).reshape(4, 3)

    def fn(x: Any) -> Any:
        h = (x @ weight * mark).relu()
        return h.softmax(-1), h.sum(0)

    made = _made(fn, compiled)
    return lambda k: made(torch.linspace(-2, 2, 20).reshape(5, 4) + k)


def _sizes(compiled: bool, mark: float) -> Call:
    def fn(x: Any) -> Any:
        return (x * mark + x.shape[0]).tanh().sum(0)

    made = _made(fn, compiled)
    return lambda k: made(torch.linspace(-1, 1, 3 * (k + 4)).reshape(k + 4, 3))


def _gradients(compiled: bool, mark: float) -> Call:
    def fn(x: Any, w: Any) -> Any:
        h = (x @ w).sigmoid() * mark
        return h.mean(), h.exp().sum()

    made = _made(fn, compiled)

    def call(k: int) -> Any:
        x = (torch.linspace(-1, 1, 12).reshape(4, 3) + k).requires_grad_()
        w = torch.linspace(0, 1, 6).reshape(3, 2).requires_grad_()
        first, second = made(x, w)
        (first if k % 2 else first + second).backward()  # (one of two: the pruned backward pass)
        return first, second, x.grad, w.grad

    return call


def _step(compiled: bool, mark: float) -> Call:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x) * mark, y)
        loss.backward()
        optimizer.step()
        return loss

    made = _made(step, compiled)

    def call(k: int) -> Any:
        x = torch.linspace(-1, 1, 12).reshape(4, 3)
        loss = made(x + k, x[:, :1])
        return loss, [p.clone() for p in model.parameters()], [p.grad for p in model.parameters()]

    return call


def _parts(compiled: bool, mark: float) -> Call:
    log: list[Any] = []
    state = {"n": 0}

    def fn(x: Any) -> Any:
        h = (x * mark).cos()
        print("mean", round(float(h.mean()), 4))
        state["n"] += 1
        log.append(h * 2)
        y = h.sin() + state["n"]
        if y.sum() > 0:
            y = y * 2
        return y @ y.t()

    made = _made(fn, compiled)

    def call(k: int) -> Any:
        found = made(torch.linspace(-1, 1, 6).reshape(2, 3) + k)
        return found, list(log), state["n"]

    return call


def _parts_training(compiled: bool, mark: float) -> Call:
    torch.manual_seed(2)
    model = torch.nn.Linear(3, 2)

    def fn(x: Any) -> Any:
        h = model(x).tanh()
        scale = float(h.detach().abs().max())
        return (h * scale * mark).pow(2).sum()

    made = _made(fn, compiled)

    def call(k: int) -> Any:
        model.zero_grad()
        loss = made(torch.linspace(-1, 1, 6).reshape(2, 3) + k)
        loss.backward()
        return loss, [p.grad for p in model.parameters()]

    return call


def _effects(compiled: bool, mark: float) -> Call:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.register_buffer("seen", torch.zeros(3))
            self.last = torch.zeros(3)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.seen.add_(x.sum(0))
            self.last = x.sum(0) * mark
            return self.seen / self.calls

    module = Counting()
    made = _made(module, compiled)

    def call(k: int) -> Any:
        found = made(torch.linspace(-1, 1, 6).reshape(2, 3) + k)
        return found, module.calls, module.seen.clone(), module.last

    return call


def _numbers(compiled: bool, mark: float) -> Call:
    made = _made(lambda x, lr: x - lr * x.exp() * mark, compiled)
    return lambda k: made(torch.linspace(-1, 1, 4), 0.1 / (k + 1))


def _random(compiled: bool, mark: float) -> Call:
    made = _made(lambda x: F.dropout(x * mark, 0.5), compiled, mode="bitwise")

    def call(k: int) -> Any:
        found = made(torch.ones(2 + k, 3))
        return found, torch.rand(2)

    return call


def _shadowed(compiled: bool, mark: float) -> Call:
    made = _made(lambda x: (x * mark).erf().sum(1), compiled, options={"shadow": 2})
    return lambda k: made(torch.linspace(-1, 1, 6).reshape(2, 3) + k)


def _lazily(compiled: bool, mark: float) -> Call:
    lazy_mode._programs.clear()  # it warns once in a process

    def call(k: int) -> Any:
        x = torch.linspace(-1, 1, 6).reshape(2, 3) + k
        if not compiled:
            return (x * mark).log1p().sum(0)
        with torch.lazy():
            y = (x * mark).log1p().sum(0)
        return y

    return call


PROGRAMS = [
    Program("inference", _inference),
    Program("sizes", _sizes, calls=4),
    Program("gradients", _gradients),
    Program("step", _step),
    Program("parts", _parts),
    Program("parts_training", _parts_training),
    Program("effects", _effects),
    Program("numbers", _numbers, calls=4),
    Program("random", _random),
    Program("shadowed", _shadowed),
    Program("lazily", _lazily),
]
