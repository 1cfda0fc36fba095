"""One block at one shape in one layout: what a call and its backward leave behind."""

from __future__ import annotations

import copy
import importlib
import math
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.blocks.layouts import LAYOUTS, laid_out
from tests.blocks.rows import Block, Shape

LIMIT = 1e-5
_AS_EAGER = 4
"""A number that float32 can't tell to 1e-5 (eager itself is further from the double precision
result: the variance of equal values, say) may be this many times as far off as eager's is."""
_MOST = 1e-3
"""Eager that is further than this from double precision is no measure."""
_FLOOR = 0.1
"""A tensor's error counts relative to its largest number, or to this part of the largest of all
tensors of the trial: a gradient that is zero but for rounding has no scale of its own."""


@dataclass
class Outcome:
    """What one call gave: arrays by name, or the error that it raised."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Difference:
    way: str
    training: bool
    layout: str
    shape: Shape
    what: str
    size: float

    def __str__(self) -> str:
        mode = "train" if self.training else "eval"
        return f"{self.way}, {mode}, {self.layout}, {self.shape}: {self.what}"


def tensors(torch: Any, value: Any, name: str = "result") -> Iterator[tuple[str, Any]]:
    """The tensors of a result, by where they are in it."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(torch, inner, f"{name}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for k, inner in enumerate(value):
            yield from tensors(torch, inner, f"{name}[{k}]")


def built(torch: Any, made: Any, training: bool) -> Any:
    """The block with the weights that its seed gives."""
    torch.manual_seed(0)
    return made().train(training) if isinstance(made, type) else made


def arguments(torch: Any, row: Block, shape: Shape, layout: str) -> tuple[Any, ...] | None:
    torch.manual_seed(1 + sum(shape))
    args = row.inputs(torch, shape) if row.inputs else (torch.randn(shape),)
    return laid_out(torch, args, layout)


def _weights(torch: Any, x: Any) -> Any:
    """Numbers that tell every element of a result from the others."""
    return torch.arange(1.0, x.numel() + 1).sin().reshape(x.shape).to(x.dtype)


def outcome(torch: Any, fn: Any, module: Any, args: tuple[Any, ...]) -> Outcome:
    """Call `fn` (the module itself, or compiled) and go back; all that can be seen afterwards."""
    torch.manual_seed(7)
    try:
        result = fn(*args)
        seen = dict(tensors(torch, result))
        ways = [x for x in seen.values() if x.requires_grad and x.is_floating_point()]
        if ways:
            sum((x * _weights(torch, x)).sum() for x in ways).backward()
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    for k, x in enumerate(args):
        if isinstance(x, torch.Tensor) and x.grad is not None:
            seen[f"gradient of input {k}"] = x.grad
    if isinstance(module, torch.nn.Module):
        for name, p in module.named_parameters():
            if p.grad is not None:
                seen[f"gradient of {name}"] = p.grad
        seen.update((f"buffer {name}", b) for name, b in module.named_buffers())
    seen["next random number"] = torch.rand(())
    return Outcome({name: x.detach().numpy().copy() for name, x in seen.items()})


def compared(want: Outcome, got: Outcome, *, stream: bool = False) -> tuple[str, float]:
    """What differs ("" for nothing beyond the limit), and the largest relative error."""
    if want.error or got.error:
        return ("" if want.error == got.error else f"{want.error} / {got.error}"), 0.0
    names = set(want.arrays) | set(got.arrays)
    if not stream:  # only mode="bitwise" leaves the generator where eager does
        names.discard("next random number")
    overall = max((_largest(a) for a in want.arrays.values()), default=0.0)
    worst, text = 0.0, ""
    for name in sorted(names):
        a, b = want.arrays.get(name), got.arrays.get(name)
        if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
            return f"{name}: {_kind(a)} / {_kind(b)}", math.inf
        error = _error(a, b, _FLOOR * overall)
        if error > worst:
            worst, text = error, f"{name} differs by {error:.1e}"
    return (text if worst > LIMIT else ""), worst


def _kind(a: np.ndarray | None) -> str:
    return "missing" if a is None else f"{a.dtype}{list(a.shape)}"


def _largest(a: np.ndarray) -> float:
    if a.dtype.kind not in "fc" or not a.size:
        return 0.0
    finite = np.abs(a[np.isfinite(a)])
    return float(finite.max()) if finite.size else 0.0


def _error(a: np.ndarray, b: np.ndarray, floor: float) -> float:
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else math.inf
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    apart = np.abs(np.where(same, 0, a) - np.where(same, 0, b)).astype(np.float64)
    error = float(apart.max()) / max(_largest(a), floor, 1e-30)
    return error if math.isfinite(error) else math.inf


@dataclass
class Trial:
    """All calls of one block; `differences` stays empty if compiled is as eager."""

    torch: Any
    made: Any
    differences: list[Difference] = field(default_factory=list)
    calls: int = 0
    worst: float = 0.0
    rounding: int = 0
    raised: int = 0
    traces: int = 0
    breaks: set[str] = field(default_factory=set)
    given_up: bool = False
    _wanted: dict[tuple[bool, str, Shape], Outcome] = field(default_factory=dict)

    @property
    def row(self) -> Block:
        return self.made.block

    def cases(self, every: bool) -> dict[str, list[Shape]]:
        """Shapes by layout; not `every`: other layouts than the plain one at two shapes."""
        names = [name for name in LAYOUTS if not (self.row.of_batch and name == "expanded")]
        found = {}
        for layout in names:
            shapes = [s for s in self.row.shapes if self._arguments(s, layout) is not None]
            found[layout] = shapes if every or layout == "plain" else shapes[:2]
        return found

    def _arguments(self, shape: Shape, layout: str) -> tuple[Any, ...] | None:
        return arguments(self.torch, self.row, shape, layout)

    def wanted(self, training: bool, layout: str, shape: Shape) -> Outcome:
        """What eager gives."""
        key = (training, layout, shape)
        if key not in self._wanted:
            module = built(self.torch, self.made, training)
            self._wanted[key] = self._called(module, module, layout, shape)
        return self._wanted[key]

    def _called(self, fn: Any, module: Any, layout: str, shape: Shape) -> Outcome:
        args = self._arguments(shape, layout)
        assert args is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return outcome(self.torch, fn, module, args)

    def judge(
        self, way: str, training: bool, layout: str, shape: Shape, got: Outcome, *, stream: bool
    ) -> None:
        at = training, layout, shape
        text, error = compared(self.wanted(*at), got, stream=stream)
        self.calls += 1
        self.raised += self.wanted(*at).error is not None
        self.worst = max(self.worst, error)
        if text and self._is_rounding(self.wanted(*at), got, *at):
            self.rounding += 1
        elif text:
            self.differences.append(Difference(way, *at, text, error))

    def _is_rounding(self, want: Outcome, got: Outcome, *at: Any) -> bool:
        """Whether double precision says that float32 can't know better."""
        if want.error or got.error or set(want.arrays) != set(got.arrays):
            return False
        exact = self._in_double(*at)
        if exact.error or set(exact.arrays) != set(want.arrays):
            return False
        floor = _FLOOR * max(map(_largest, exact.arrays.values()), default=0.0)
        own, other = (
            max(
                _error(a, o.arrays[name], floor)
                for name, a in exact.arrays.items()
                if a.dtype.kind == "f" and name != "next random number"
            )
            for o in (want, got)
        )
        return own < _MOST and other <= _AS_EAGER * own

    def _in_double(self, training: bool, layout: str, shape: Shape) -> Outcome:
        module = built(self.torch, self.made, training)
        args = self._arguments(shape, layout)
        assert args is not None
        wide = tuple(
            x.detach().double().requires_grad_()
            if isinstance(x, self.torch.Tensor) and x.is_floating_point()
            else x
            for x in args
        )
        module = module.double() if self._is_module(module) else module
        return outcome(self.torch, module, module, wide)

    def fresh(self, training: bool, layout: str, shapes: list[Shape]) -> None:
        """A new compiled object for every shape."""
        for shape in shapes:
            module = built(self.torch, self.made, training)
            compiled = self.torch.compile(module, **self._mode(training))
            got = self._called(compiled, module, layout, shape)
            stream = bool(self._mode(training))
            self.judge("fresh", training, layout, shape, got, stream=stream)

    def shared(self, training: bool, layout: str, shapes: list[Shape], seed: int) -> None:
        """One compiled object for all shapes, in random order, each twice."""
        module = built(self.torch, self.made, training)
        state = copy.deepcopy(module.state_dict()) if self._is_module(module) else {}
        compiled = self.torch.compile(module, **self._mode(training))
        order = shapes * 2
        random.Random(f"{seed} {layout} {training}").shuffle(order)
        for shape in order:
            if self._is_module(module):
                module.load_state_dict(state)
                module.zero_grad()
            got = self._called(compiled, module, layout, shape)
            stream = bool(self._mode(training))
            self.judge("shared", training, layout, shape, got, stream=stream)
        compiled = compiled.forward if self._is_module(module) else compiled
        self.traces = max(self.traces, compiled.traces)
        self.breaks |= {str(b.kind) for b in compiled.breaks}
        self.given_up |= bool(compiled.given_up)

    def _is_module(self, module: Any) -> bool:
        return isinstance(module, self.torch.nn.Module)

    def _mode(self, training: bool) -> dict[str, str]:
        return {"mode": "bitwise"} if self.row.random and (training or self.row.no_modes) else {}

    def run(self, every: bool, seed: int = 0) -> Trial:
        for training in (True,) if self.row.no_modes else (True, False):
            for layout, shapes in self.cases(every).items():
                if every or layout == "plain":
                    self.fresh(training, layout, shapes)
                self.shared(training, layout, shapes, seed)
        return self

    def beside(self, theirs: Any, every: bool) -> Trial:
        """Eager beside the same source on torch."""
        other = Trial(importlib.import_module("torch"), theirs)
        for training in (True,) if self.row.no_modes else (True, False):
            for layout, shapes in self.cases(every).items():
                for shape in shapes:
                    got = self.wanted(training, layout, shape)
                    other.judge("torch", training, layout, shape, got, stream=True)
        return other
