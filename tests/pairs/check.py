"""One program, compiled against eager: what differs, what raises, what the verifier says."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lucerne as torch
from lucerne._src.ir.checks import index_maps
from tests.pairs.programs import Program, given

RIGHT, WRONG, RAISES, LEFT_OUT, UNSTEADY = "right", "wrong", "raises", "left out", "unsteady"
"""Left out: eager raises. Unsteady: eager itself gives other numbers when x is moved by its last
bits, so that nothing follows from a difference."""


@dataclass(frozen=True)
class Found:
    what: str
    text: str = ""


@dataclass(frozen=True)
class Around:
    """A way of calling: from a function to one that is compared, as eager and as compiled."""

    apply: Callable[[Callable[[Any], Any], Callable[[Any], Any]], Callable[[Any], Any]]
    """Takes the function and `compile` (or what stands for it in eager)."""
    gradient: bool = True
    rtol: float = 2e-4
    atol: float = 2e-5


def _plain(f: Any, compiled: Any) -> Any:
    return compiled(f)


def _autocast(f: Any, compiled: Any) -> Any:
    def call(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return made(x).float()

    made = compiled(f)
    return call


def _vmap(f: Any, compiled: Any) -> Any:
    made = compiled(torch.func.vmap(f))
    return lambda x: made(torch.stack([x, x * 0.5, x + 1]))


def _double(f: Any, compiled: Any) -> Any:
    def once(x: Any) -> Any:
        return torch.func.grad(lambda z: weighed(f(z)))(x)

    return compiled(torch.func.grad(lambda x: weighed(once(x) ** 2)))


AROUND = {
    "": Around(_plain),
    "autocast": Around(_autocast, rtol=6e-2, atol=6e-2),
    "vmap": Around(_vmap),
    "double": Around(_double, gradient=False),
}


def weighed(y: Any) -> Any:
    """A number that every element of y counts in differently."""
    return (y * torch.arange(1.0, y.numel() + 1).reshape(y.shape).sin()).sum()


def checked(program: Program, around: str = "") -> Found:
    how = AROUND[around]
    x = given(program.base)
    try:
        wanted = results(how.apply(program.call, lambda f: f), x, how)
    except Exception:
        return Found(LEFT_OUT)
    known = len(index_maps.FAILURES)
    with _told() as given_up:
        try:
            got = results(how.apply(program.call, torch.compile), x, how)
        except Exception as problem:
            return Found(RAISES, f"{type(problem).__name__}: {problem}")
    if index_maps.FAILURES[known:]:
        return Found(WRONG, f"the verifier: {index_maps.FAILURES[known]}")
    if given_up:
        return Found(RAISES, given_up[0])
    if _same(wanted, got, how):
        return Found(RIGHT)
    if not _is_steady(program, how, wanted):
        return Found(UNSTEADY)
    return Found(WRONG, _difference(wanted, got))


def results(f: Callable[[Any], Any], x: Any, how: Around) -> list[Any]:
    """What f gives where no gradient is asked for, and where one is: compiled, these are two
    programs, and the first one has less to keep, so its groups are larger."""
    found: list[Any] = []
    for gradient in (False, True)[: 1 + how.gradient]:
        torch.manual_seed(0)
        x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(gradient)
        with warnings.catch_warnings():
            if not _LISTENING:
                warnings.simplefilter("ignore")
            y = f(x)
            if y.requires_grad:
                weighed(y).backward()
        found += [y.detach(), x.grad]
    return found


_LISTENING: list[bool] = []


@contextlib.contextmanager
def _told() -> Iterator[list[str]]:
    """What warnings say about compiling that failed inside."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        _LISTENING.append(True)
        try:
            yield found
        finally:
            _LISTENING.pop()
    texts = [str(w.message) for w in heard]
    found += [text for text in texts if "runs uncompiled" in text and "raised" in text]


def _same(wanted: list[Any], got: list[Any], how: Around) -> bool:
    return all(_close(p, q, how) for p, q in zip(wanted, got, strict=True))


def _close(p: Any, q: Any, how: Around) -> bool:
    if p is None or q is None:
        return p is q
    if p.shape != q.shape or p.dtype != q.dtype:
        return False
    size = float(p[p.isfinite()].abs().amax()) if p.numel() and bool(p.isfinite().any()) else 1.0
    atol = how.atol * max(1.0, size)
    return bool(torch.allclose(p, q, rtol=how.rtol, atol=atol, equal_nan=True))


def _is_steady(program: Program, how: Around, wanted: list[Any]) -> bool:
    """Whether eager gives the same for numbers that are as good as the same."""
    for k in range(3):
        x = given(program.base)
        noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(k)) - 0.5
        near = x * (1 + 4e-7 * noise)
        try:
            moved = results(how.apply(program.call, lambda f: f), near, how)
        except Exception:
            return False
        if not _same(wanted, moved, how):
            return False
    return True


def _difference(wanted: list[Any], got: list[Any]) -> str:
    names = ("result", "", "result with a gradient", "gradient")
    for name, p, q in zip(names, wanted, got, strict=False):
        if p is None or q is None:
            if p is not q:
                return f"{name}: eager {p}, compiled {q}"
        elif p.shape != q.shape or p.dtype != q.dtype:
            return f"{name}: {p.dtype} {list(p.shape)}, compiled {q.dtype} {list(q.shape)}"
        elif not torch.allclose(p, q, rtol=2e-4, atol=2e-5, equal_nan=True):
            return f"{name}: {p.flatten()[:8].tolist()}, compiled {q.flatten()[:8].tolist()}"
    return "?"
