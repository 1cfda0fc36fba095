"""Every transform, and every transform of a transform, compiled and as it is.

A row is a function of one tensor; a transform makes another such function of it. Compiled, it must
give what it gives uncompiled.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import lucerne
from lucerne import func

F = lucerne.nn.functional
Fn = Callable[[Any], Any]


def _vmap(f: Fn) -> Fn:
    return lambda x: func.vmap(f)(lucerne.stack([x, 0.5 * x, x - 1]))


def _grad(f: Fn) -> Fn:
    return func.grad(lambda x: f(x).square().sum())


def _vjp(f: Fn) -> Fn:
    def pulled(x: Any) -> Any:
        value, pull_back = func.vjp(f, x)
        return pull_back(value.cos())[0]

    return pulled


def _jvp(f: Fn) -> Fn:
    return lambda x: func.jvp(f, (x,), (x.cos(),))[1]


def _linearize(f: Fn) -> Fn:
    return lambda x: func.linearize(f, x)[1](x.sin())


def _hessian(f: Fn) -> Fn:
    return func.hessian(lambda x: f(x).square().sum())


TRANSFORMS: dict[str, Callable[[Fn], Fn]] = {
    "vmap": _vmap,
    "grad": _grad,
    "vjp": _vjp,
    "jvp": _jvp,
    "linearize": _linearize,
    "jacrev": func.jacrev,
    "jacfwd": func.jacfwd,
    "hessian": _hessian,
}


def _written(x: Any) -> Any:
    y = x.clone()
    y[0] = x[1] * x[0]
    return y.mul_(2)


def _branched(x: Any) -> Any:
    return lucerne.where(x > 0, x.exp(), x * 3)


_MATRIX = lucerne.tensor(np.random.RandomState(1).standard_normal((3, 3)).astype(np.float32))

FUNCTIONS: dict[str, Fn] = {
    "pointwise": lambda x: x.sin() * x,
    "network": lambda x: F.linear(x, _MATRIX).tanh().softmax(-1),
    "written": _written,
    "branched": _branched,
    "gathered": lambda x: lucerne.cat([x[1:], x[:1]]).cumsum(0) * x.amax(),
}
POINT = [0.4, -0.7, 1.1]


@dataclass
class Outcome:
    """What came of one composition."""

    name: str
    difference: float
    seconds: float
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.difference < 1e-4


def single() -> Iterator[tuple[str, Fn]]:
    for t, transform in TRANSFORMS.items():
        for f, function in FUNCTIONS.items():
            yield f"{t}({f})", transform(function)


def pairs(every: bool) -> Iterator[tuple[str, Fn]]:
    """All pairs of transforms: of each function, or of one of them in turn."""
    names = list(FUNCTIONS)
    for i, (outer, first) in enumerate(TRANSFORMS.items()):
        for j, (inner, second) in enumerate(TRANSFORMS.items()):
            for f in names if every else [names[(i + 2 * j) % len(names)]]:
                yield f"{outer}({inner}({f}))", first(second(FUNCTIONS[f]))


def compared(name: str, function: Fn) -> Outcome:
    """The largest difference of compiled and uncompiled, relative to the largest element."""
    start = time.perf_counter()
    x = lucerne.tensor(POINT)
    try:
        want = function(x).numpy()
        compiled = lucerne.compile(function, fullgraph=True)
        got = [compiled(x).numpy() for _ in range(2)]
    except Exception as error:
        return Outcome(name, float("inf"), time.perf_counter() - start, repr(error)[:200])
    scale = max(float(np.abs(want).max()), 1e-3)
    alike = all(g.shape == want.shape for g in got)
    worst = max(float(np.abs(g - want).max()) for g in got) / scale if alike else float("inf")
    return Outcome(name, worst, time.perf_counter() - start)


def table(every: bool) -> int:
    """Print what came of all of them. 0 if all agree."""
    found = [compared(n, f) for n, f in (*single(), *pairs(every))]
    for o in found:
        if not o.ok:
            print(f"FAIL {o.name}: differs by {o.difference:.2g} {o.error}")
    seconds = sum(o.seconds for o in found)
    good = sum(o.ok for o in found)
    print(f"{good} of {len(found)} compositions agree with themselves uncompiled ({seconds:.0f} s)")
    return 0 if good == len(found) else 1
