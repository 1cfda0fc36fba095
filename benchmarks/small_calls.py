"""Calls with hardly any work: what they cost is the way to the work. Each entry makes one, warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


def _eager(torch: Any) -> Call:
    a, b = torch.ones(4), torch.ones(4)
    return lambda: a + b


def _eager_recorded(torch: Any) -> Call:
    a, b = torch.ones(4, requires_grad=True), torch.ones(4)
    return lambda: a * b


def _eager_backward(torch: Any) -> Call:
    a, b = torch.ones(4, requires_grad=True), torch.ones(4)
    return lambda: (a * b).sum().backward()


def _several(*makers: Callable[[Any], Call]) -> Callable[[Any], Call]:
    """One call of each."""

    def make(torch: Any) -> Call:
        calls = [maker(torch) for maker in makers]
        return lambda: [call() for call in calls]

    return make


_made = _several(
    lambda torch: lambda: torch.zeros(4),
    lambda torch: lambda: torch.zeros(4, dtype=torch.int64),
    lambda torch: lambda: torch.full((4,), 2),
    lambda torch: lambda: torch.arange(4),
)


def _with_numbers(torch: Any) -> Call:
    x, f = torch.arange(4), torch.ones(4)
    mask = x > 1
    return lambda: (x + 1, x.clamp(0, 3), f * 2, f.masked_fill(mask, 0.5), x.masked_fill(mask, 3))


def _inference(torch: Any) -> Call:
    x, parts = torch.ones(2, 4), [torch.ones(4) for _ in range(8)]

    def call() -> Any:
        with torch.inference_mode():
            return x.argmax(-1), x.amax(-1), x[:1], torch.cat(parts)

    return call


def _compiled(torch: Any) -> Call:
    fn, x = torch.compile(lambda x: x * 2 + 1), torch.ones(4)
    return lambda: fn(x)


def _compiled_keywords(torch: Any) -> Call:
    fn, x = torch.compile(lambda x, *, scale: x * scale["k"] + 1), torch.ones(4)
    return lambda: fn(x, scale={"k": 2})


def _guards(torch: Any) -> Call:
    """A model with many modules, whose attributes are guarded."""
    nn = torch.nn
    layers = [m for _ in range(16) for m in (nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1))]
    model, x = torch.compile(nn.Sequential(*layers).eval()), torch.ones(1, 4)

    def call() -> Any:
        with torch.no_grad():
            return model(x)

    return call


def _sizes(torch: Any) -> Call:
    """Sizes in turn, all of them known."""
    fn = torch.compile(lambda x: x * 2 + 1)
    xs = [torch.ones(n) for n in range(3, 11)]
    return lambda: [fn(x) for x in xs]


def _backward(torch: Any) -> Call:
    fn = torch.compile(lambda x: (x * x).sum())
    x = torch.ones(4, requires_grad=True)
    return lambda: fn(x).backward()


def _parts(torch: Any) -> Call:
    """A function with a break: two programs, and Python between them."""

    def fn(x: Any) -> Any:
        y = x * 2
        return y + int(y[0])

    made, x = torch.compile(fn), torch.ones(4)
    return lambda: made(x)


CALLS: dict[str, Callable[[Any], Call]] = {
    "eager a + b": _eager,
    "eager a * b, recorded": _eager_recorded,
    "eager backward": _eager_backward,
    "eager zeros, full, arange": _made,
    "eager ops with numbers": _with_numbers,
    "eager ops in inference mode": _inference,
    "compiled call": _compiled,
    "compiled call, keywords": _compiled_keywords,
    "compiled call, 48 modules": _guards,
    "compiled calls, 8 sizes": _sizes,
    "compiled call and backward": _backward,
    "compiled call with a break": _parts,
}
