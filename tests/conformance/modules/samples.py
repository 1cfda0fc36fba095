"""torch's module database: which classes count, and the cases of each.

A case says how to build a module on either side, and what to call it with. Sizes are frozen as in
`tests.conformance.catalog`: another torch fails here instead of moving the denominators.
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing import make_tensor

from tests.conformance import catalog, rebind
from tests.conformance.bridge import MADE_WITH, Bridge, Memo

TIER = "nn"
CLASSES = 114
ERRORS = 90

Use = Callable[..., Any]  # framework, module, inputs -> what is compared


def call(t: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """The plain use of a module."""
    return module(*args, **kwargs)


@dataclass(frozen=True)
class Case:
    """One module to build and to use, in training or in evaluation."""

    label: str
    make: Callable[[Bridge], Any]
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    training: bool = True
    lazy: bool = False
    use: Use | None = call  # None: it is only built
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class ErrorCase:
    """What torch refuses, when it is built or when it is called."""

    label: str
    make: Callable[[Bridge], Any]
    args: list[Any] | None  # None: the constructor must refuse already
    kwargs: dict[str, Any]
    pattern: str


@functools.cache
def load() -> dict[str, Any]:
    """torch's ModuleInfo by class name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_modules import module_db
    found = {info.module_cls.__name__: info for info in module_db}
    if len(found) != CLASSES:
        raise RuntimeError(f"torch's module database changed: {len(found)}, frozen {CLASSES}")
    return found


def cases(
    name: str,
    dtype: torch.dtype = torch.float32,
    *,
    limit: int | None = None,
    spread: bool = False,
) -> list[Case]:
    """The cases of one class: in training, and in evaluation where that differs."""
    info = load()[name]
    modes = (True, False) if info.train_and_eval_differ else (True,)
    return [
        _case(info, label, sample, training, dtype, spread)
        for training in modes
        for label, sample in catalog.pick(_inputs(info, dtype, training), limit)
        if sample.forward_input is not None
    ]


def error_cases(name: str) -> list[ErrorCase]:
    """What the class must refuse."""
    info = load()[name]
    if info.module_error_inputs_func is None:
        return []
    drawn = _draw(info.module_error_inputs_func, info, torch.float32, training=False, grad=False)
    found = []
    for i, error in enumerate(drawn):
        sample = error.module_error_input
        forward = sample.forward_input
        args = list(forward.args) if "FORWARD" in str(error.error_on) else None
        kwargs = dict(forward.kwargs) if forward else {}
        make = _maker(name, sample.constructor_input)
        found.append(ErrorCase(f"error#{i}", make, args, kwargs, error.error_regex))
    return found


def spread_out(x: Any) -> Any:
    """A tensor laid out with gaps, as `SampleInput.noncontiguous` does."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.numel() < 2:
        return x
    with torch.no_grad():
        made = make_tensor(x.shape, dtype=x.dtype, device="cpu", noncontiguous=True)
        made.copy_(x)
    return made.requires_grad_(x.requires_grad)


@contextmanager
def recorded(kind: type[torch.nn.Module]) -> Iterator[None]:
    """Instances of `kind` remember what they were made with, so that they can be made again."""
    plain = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        setattr(self, MADE_WITH, (args, kwargs))

    kind.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.__init__ = plain  # type: ignore[method-assign]


def _inputs(info: Any, dtype: torch.dtype, training: bool) -> catalog.Sampled:
    drawn = _draw(info.module_inputs_func, info, dtype, training=training, grad=True)
    mode = "train" if training else "eval"
    return [(f"{mode}#{i}", sample) for i, sample in enumerate(drawn)]


def _draw(
    function: Any, info: Any, dtype: torch.dtype, *, training: bool, grad: bool
) -> Iterator[Any]:
    torch.manual_seed(0)
    with warnings.catch_warnings(), recorded(torch.nn.TransformerEncoderLayer):
        warnings.simplefilter("ignore")
        yield from function(info, device="cpu", dtype=dtype, requires_grad=grad, training=training)


def _case(
    info: Any, label: str, sample: Any, training: bool, dtype: torch.dtype, spread: bool
) -> Case:
    forward = sample.forward_input
    args, kwargs = list(forward.args), dict(forward.kwargs)
    if spread:
        args = [spread_out(x) for x in args]
        kwargs = {name: spread_out(x) for name, x in kwargs.items()}
    name = info.module_cls.__name__
    make = _maker(name, sample.constructor_input)
    return Case(label, make, args, kwargs, training, info.is_lazy, dtype=dtype)


def _maker(name: str, constructor: Any) -> Callable[[Bridge], Any]:
    def make(bridge: Bridge) -> Any:
        memo = Memo()
        args = bridge.carry(list(constructor.args), memo)
        kwargs = bridge.carry(dict(constructor.kwargs), memo)
        return rebind.lookup(bridge.module.nn, name)(*args, **kwargs)

    return make
