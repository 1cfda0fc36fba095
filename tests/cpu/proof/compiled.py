"""Expressions (see `sized`) through the compiler: kernels of groups, several results, writes in
place, and whole training steps.

The tensors of an expression are the arguments of the compiled function; it is called twice, with
fresh tensors. Every step of its program is watched like a kernel of its own, and what comes out
must agree with the eager result but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import lucerne
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.conformance import frozen
from lucerne._src.conformance.cases import leaves
from lucerne._src.tensor.autograd.api import grad
from lucerne._src.tensor.base import TensorBase

_TOLERANCE = {53: 1e-8, 24: 2e-3, 11: 5e-2, 8: 2e-1}
"""By digits of the result's type, relative to the largest number in it."""
_DRAWN = ("rand", "dropout", "normal_", "uniform_", "bernoulli", "exponential_", "poisson", "multi")
"""Compiled functions draw other numbers than eager ones."""


class Wrong(Exception):  # noqa: N818 - a finding, not a fault of the program
    """A compiled function whose results are not those of the function."""


class NotCompiled(Exception):  # noqa: N818 - counts as refused
    """A function that the compiler leaves alone: nothing was looked at."""


FUSED = """
F.gelu(F.linear(x(33, n), x(17, n), x(17)))
F.relu(x(n, 40) @ x(40, 33)) + x(n, 33)
torch.tanh(x(3, n, 20) @ x(3, 20, n)) * x(n)
(lambda h: (h, F.gelu(h), h.to(torch.float32)))(F.linear(x(n, 16), x(n, 16), x(n)))
F.silu(x(7, n) @ x(n, 7)) * x(7, 7).t()
x(n, n).t() @ x(n, 5) * x(5) + x(n, 1)
(lambda t: (t.sum(-1), t.amax(-1), F.softmax(t, -1)))(x(5, n + 1))
(lambda t: (t.mean(-1), t.var(-1), (t - t.mean(-1, keepdim=True)).exp()))(x(3, n + 2))
(lambda t: (t.sum(0), t.amax(0), t * 2))(x(n + 1, 5))
(lambda t: (F.layer_norm(t, (n + 1,), x(n + 1), x(n + 1)), t + 1))(x(3, n + 1) * x(n + 1))
F.layer_norm(x(3, n + 1) + F.gelu(x(3, n + 1)), (n + 1,), x(n + 1), x(n + 1)).to(torch.bfloat16)
F.softmax((x(2, 3, n + 1) * 0.125).masked_fill(b(2, 3, n + 1), -9.0), -1) @ x(2, n + 1, 5)
F.cross_entropy(F.linear(x(5, 8), x(n + 2, 8)), i(n + 2, 5))
F.relu(F.batch_norm(x(3, n + 1, 5), None, None, x(n + 1), x(n + 1), True) + x(3, n + 1, 5))
F.relu(F.batch_norm(x(3, 4, n + 2), x(4).detach(), p(4).detach(), x(4), x(4), True))
F.relu(F.batch_norm(x(2, 4, 3, n), x(4).detach(), p(4).detach(), x(4), x(4), False) + 1)
F.relu(F.batch_norm(F.conv2d(x(2, 3, 7, n + 3), x(8, 3, 3, 3)), None, None, x(8), x(8), True))
F.relu(F.conv2d(x(2, n + 1, 5, 6), x(9, n + 1, 3, 3), x(9), padding=1) + x(2, 9, 5, 6))
F.relu(F.conv2d(x(2, 3, 7, n + 6), x(n + 1, 3, 3, 3), None, 2, 1) * x(n + 1, 1, 1) + x(n + 1, 1, 1))
F.max_pool2d(F.relu(x(2, 3, 8, n + 3)), 3, 2, 1)
F.adaptive_avg_pool2d(F.relu(x(2, n + 1, 7, 7)), 1).flatten(1) @ x(n + 1, 4)
F.scaled_dot_product_attention(*x(2, n + 1, 3, 2, 8).permute(2, 0, 3, 1, 4), is_causal=True).mT
F.dropout(F.gelu(x(3, n)), 0.4) * x(n)
F.dropout(x(n, 3).t(), 0.25) + torch.rand(3, n)
(torch.rand(n), torch.randn(3, n), torch.randint(0, 9, (n,)), F.dropout(x(n), 0.1))
torch.randn(2, n, dtype=torch.float64) + torch.rand(2, n, dtype=torch.float64)
x(3, n).mul_(x(n)).add_(1).relu_()
x(5, n + 1)[1:4, 1:].add_(x(3, n)).mul_(2)
(lambda t: t[:, ::2].copy_(t[:, ::2] * 2) + t.sum())(x(4, n + 1))
(lambda t: (t.t().add_(x(n, 3)), t * 2))(x(3, n))
torch.cat([x(3, n) * 2, F.relu(x(3, 5)), x(3, n).neg()], 1).sum(0)
torch.stack([x(n), x(n)]).exp().roll(1, 0).flip(1) + x(n)
F.embedding(i(n + 1, 3, 4), x(n + 1, 6)) * x(6) + x(3, 4, 1)
(x(4, n + 1)[:, 1:] + x(4, n + 1)[:, :-1]).cumsum(1) * 3
x(4, n).to(torch.bfloat16).to(torch.float32) + x(n)
(x(4, n).float() > 0).sum(1).float() + x(4)
x(3, n).unfold(1, 2, 1).sum(-1) * 2 if n > 1 else x(3, n)
"""
SIZES = (0, 1, 3, 16, 17, 33, 65)
LARGE = 130
TYPES = ("float32", "bfloat16")


def is_drawn(row: str) -> bool:
    return any(word in row for word in _DRAWN)


class Replay:
    """An expression as a function of its tensors."""

    def __init__(self, row: str, maker: Callable[..., Any], n: int) -> None:
        """`maker(needs_grad)` gives a fresh `cases.Maker`."""
        self.row, self.maker, self.n = row, maker, n
        self.calls: list[tuple[str, tuple[int, ...]]] = []

    def eager(self, *, backward: bool) -> list[Any]:
        """Results, and gradients; afterwards `calls` are known."""
        maker = self.maker(backward)
        self.calls = []
        names = {**maker.names, **{k: self._noting(k, maker.names[k]) for k in "xpib"}}
        lucerne.manual_seed(self.n)
        return self._results(eval(self.row, names), maker.made, backward=backward)

    def _noting(self, name: str, make: Any) -> Any:
        def noted(*arguments: int) -> Any:
            self.calls.append((name, arguments))
            return make(*arguments)

        return noted

    def tensors(self, *, backward: bool) -> list[Any]:
        """Fresh tensors, as the expression would make them."""
        maker = self.maker(backward)
        for name, arguments in self.calls:
            maker.names[name](*arguments)
        return list(maker.made)

    def __call__(self, *tensors: Any, backward: bool) -> list[Any]:
        left = iter(tensors)
        names = {**self.maker(False).names, **dict.fromkeys("xpib", lambda *_: next(left))}
        return self._results(eval(self.row, names), tensors, backward=backward)

    def _results(self, found: Any, tensors: Sequence[Any], *, backward: bool) -> list[Any]:
        results = [t for t in leaves(found) if isinstance(t, TensorBase)]
        tops = [t for t in results if frozen._is_real_float(t) and t.requires_grad]
        if not (backward and tops):
            return results
        inputs = [t for t in tensors if frozen._is_real_float(t) and t.requires_grad]
        weights = [lucerne.ones_like(t) for t in tops]
        got = grad(tops, inputs, weights, allow_unused=True)
        return [*results, *(g for g in got if g is not None)]


def run_compiled(replay: Replay, *, backward: bool) -> None:
    """Compile, call twice, compare."""
    wanted = replay.eager(backward=backward)
    compiled = lucerne.compile(lambda *tensors: replay(*tensors, backward=backward), dynamic=False)
    for _ in range(2):
        got = compiled(*replay.tensors(backward=backward))
        if compiled.given_up is not None:
            raise NotCompiled(compiled.given_up)
        if not is_drawn(replay.row):
            _compare(got, wanted)


def _compare(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    if len(got) != len(wanted):
        raise Wrong(f"{len(got)} results for {len(wanted)}")
    for k, (a, b) in enumerate(zip(got, wanted, strict=True)):
        if tuple(a.shape) != tuple(b.shape) or a.dtype is not b.dtype:
            raise Wrong(f"result {k}: {a.dtype}{tuple(a.shape)}, eager {b.dtype}{tuple(b.shape)}")
        problem = difference(_values(a), _values(b), a.dtype)
        if problem:
            raise Wrong(f"result {k}: {problem}")


def _values(t: Any) -> np.ndarray[Any, Any]:
    held = t.detach().contiguous()
    raw = held.view(-1).view(lucerne.uint8).numpy() if held.numel() else np.empty(0, np.uint8)
    return np.asarray(codec.widen(raw.view(held.dtype.storage), held.dtype))


def difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], dtype: dt.dtype) -> str:
    """Where two results are further apart than rounding brings them, in words."""
    if dtype.category < dt.FLOAT:
        bad = a != b
    else:
        finite = np.abs(b[np.isfinite(b)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        tolerance = _TOLERANCE[dtype.digits]
        with np.errstate(all="ignore"):
            bad = ~np.isclose(a, b, tolerance, tolerance * scale, equal_nan=True)
    if not bad.any():
        return ""
    at = int(np.argmax(bad))
    return f"{int(bad.sum())} of {bad.size} numbers: at {at} {a[at]}, eager {b[at]}"


# ---- training steps ------------------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": lambda p: lucerne.optim.SGD(p, 0.1),
    "momentum": lambda p: lucerne.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: lucerne.optim.Adam(p, 0.01),
    "amsgrad": lambda p: lucerne.optim.Adam(p, 0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: lucerne.optim.AdamW(p, 0.01, weight_decay=0.1),
    "adagrad": lambda p: lucerne.optim.Adagrad(p, 0.01),
    "rmsprop": lambda p: lucerne.optim.RMSprop(p, 0.01, momentum=0.5),
}
STEPS = 3


def train(optimizer: str, n: int, dtype: str, layout: Callable[[Any, int], Any]) -> None:
    """Steps of a small net with parameters of odd sizes, compiled and not."""
    found = [_trained(optimizer, n, dtype, layout, on) for on in (False, True)]
    _compare(found[1], found[0])


def _trained(optimizer: str, n: int, dtype: str, layout: Any, compiled: bool) -> list[Any]:
    rng = np.random.default_rng(n)
    kind = dt.by_name(dtype)

    def made(*shape: int) -> Any:
        plain = lucerne.tensor(rng.normal(size=shape) / 4, device="reference").to(kind).to("cpu")
        return plain

    params = [made(n, 5), made(n), made(3, n), made(3)]
    params = [layout(p, k).requires_grad_() for k, p in enumerate(params)]
    given = made(4, 5)
    opt = OPTIMIZERS[optimizer](params)

    def step(t: Any) -> Any:
        opt.zero_grad()
        hidden = lucerne.nn.functional.gelu(lucerne.nn.functional.linear(t, params[0], params[1]))
        loss = lucerne.nn.functional.linear(hidden, params[2], params[3]).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    run = lucerne.compile(step, dynamic=False) if compiled else step
    losses = [run(given) for _ in range(STEPS)]
    if compiled and run.given_up is not None:  # type: ignore[attr-defined]
        raise NotCompiled(run.given_up)  # type: ignore[attr-defined]
    return [*losses, *(p.detach() for p in params)]


def rows() -> Iterator[str]:
    return (line for line in FUSED.splitlines() if line)
