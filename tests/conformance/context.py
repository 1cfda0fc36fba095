"""What every metric needs: the entry, the other framework, and how much to run."""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.conformance.bridge import Bridge, Carried
from tests.conformance.catalog import Entry
from tests.conformance.compare import NARROW, Truth, widen
from tests.conformance.rebind import Function, MissingError
from tests.conformance.result import Tally


@dataclass(frozen=True)
class Limits:
    """Samples per entry; None runs them all."""

    samples: int | None = None
    reference: int | None = None
    double_backward: int = 3
    classes: int | None = None  # samples per module class and mode


@dataclass(frozen=True)
class Context:
    """One entry under test."""

    entry: Entry
    bridge: Bridge
    limits: Limits = field(default_factory=Limits)

    @functools.cached_property
    def function(self) -> Function:
        """The other framework's op; raises `MissingError`."""
        return self.bridge.resolve(self.entry)

    def is_there(self, *tallies: Tally | None) -> bool:
        """Whether the other framework has the op; the tallies lose the entry if not."""
        try:
            self.function  # noqa: B018
        except MissingError as error:
            for tally in tallies:
                if tally is not None:
                    tally.lost("missing", str(error))
            return False
        return True

    def tally(self, metric: str, dtype: torch.dtype) -> Tally:
        name = str(dtype).removeprefix("torch.")
        return Tally(metric, self.entry.name, self.entry.tier, name)

    def call(self, carried: Carried, **kwargs: Any) -> Any:
        """The other framework's op on arguments that were carried across."""
        return self.function(carried.input, *carried.args, **carried.kwargs, **kwargs)


def number_of(label: str) -> int:
    """The place in a label such as `ref#12`: it seeds the sample."""
    return int(label.rsplit("#", 1)[-1])


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of either framework are not under test here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def float64_truth(sample: Any, run: Callable[[Any], Any], dtype: torch.dtype) -> Truth | None:
    """A function that runs the sample in float64, at most once and only when asked."""
    if dtype not in NARROW:
        return None
    try:
        wide = widen(sample)
    except Exception:  # an argument without a wider form
        return None
    return functools.cache(lambda: run(wide))


def run_torch(op: Any, sample: Any, **kwargs: Any) -> Any:
    """torch's op on a sample, or on a carried copy of one."""
    return op.op(sample.input, *sample.args, **sample.kwargs, **kwargs)
