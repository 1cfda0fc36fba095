"""The entries of torch's op database that count, by tier, and the samples of each.

The database is private to torch and changes with it, so the sizes are frozen here: a different
torch fails loudly in `load` instead of moving the denominators of every metric.
"""

import functools
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

DATA = Path(__file__).parent / "data"
TORCH_VERSION = "2.13.0"
TIERS = ("T0", "T1", "T2")
PREFERRED = (torch.float32, torch.int64, torch.complex64)  # M1 runs at the first one supported

# Entries per tier. `forward` and `gradient` are the denominators of M1 and M2.
FROZEN = {
    "forward": {"T0": 213, "T1": 211, "T2": 268},
    "gradient": {"T0": 161, "T1": 181, "T2": 198},
    "in-place": {"T0": 71, "T1": 57, "T2": 35},
    "out": {"T0": 108, "T1": 111, "T2": 138},
    "errors": {"T0": 65, "T1": 67, "T2": 92},
    "double backward": {"T0": 160, "T1": 178, "T2": 193},
}

# Memory that nobody has written: only shape, dtype and strides can be compared.
UNDEFINED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"} | {
    "empty_permuted",
    "resize_",
    "resize_as_",
}
# Draws from the generator, bit for bit torch's own stream. Ops that compute further with their
# draws (alpha_dropout, svd_lowrank, attention with dropout ...) are compared by tolerance.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial"} | {
    "normal",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.rrelu",
}
# Results are unique only up to sign or phase: values are compared after the sample's own
# `output_process_fn_grad`, which removes the freedom.
AMBIGUOUS = {"svd", "linalg.svd", "linalg.eig", "linalg.eigh", "svd_lowrank", "pca_lowrank"}


@dataclass(frozen=True, eq=False)
class Entry:
    """One OpInfo, with the tier it counts in."""

    name: str
    tier: str
    op: Any

    @functools.cached_property
    def dtypes(self) -> set[torch.dtype]:
        return set(self.op.supported_dtypes("cpu"))

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The dtype of M1: float32 wherever the op has it."""
        return next(dtype for dtype in PREFERRED if dtype in self.dtypes)

    @property
    def undefined(self) -> bool:
        return self.op.name in UNDEFINED or bool(self.op.has_nondeterministic_output)

    @property
    def random(self) -> bool:
        return self.op.name in RANDOM

    @property
    def ambiguous(self) -> bool:
        return self.op.name in AMBIGUOUS

    def differentiable(self, dtype: torch.dtype) -> bool:
        op = self.op
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")

    @property
    def twice_differentiable(self) -> bool:
        return self.differentiable(torch.float64) and bool(self.op.supports_gradgrad)

    @property
    def has_errors(self) -> bool:
        return self.op.error_inputs_func is not None


Sampled = list[tuple[str, Any]]  # label, SampleInput


@functools.cache
def op_database() -> list[Any]:
    """torch's op_db: slow to import (5 s), and noisy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


@functools.cache
def load() -> dict[str, Entry]:
    """Every entry that counts, by its full name."""
    version = torch.__version__.split("+")[0]
    if version != TORCH_VERSION:
        raise RuntimeError(f"the oracle is torch {TORCH_VERSION}, this is {version}")
    tiers = _tier_of_names()
    entries = {}
    for op in op_database():
        tier = tiers[op.name]
        runs_here = any(dtype in op.supported_dtypes("cpu") for dtype in PREFERRED)
        if tier in TIERS and runs_here:
            entries[op.full_name] = Entry(op.full_name, tier, op)
    _check_frozen(entries.values())
    return entries


def count_by_tier(entries: Iterable[Entry]) -> dict[str, int]:
    counts = Counter(entry.tier for entry in entries)
    return {tier: counts[tier] for tier in TIERS}


def denominators(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """The sizes that `FROZEN` holds, counted anew."""
    every = list(entries)
    return {
        "forward": count_by_tier(every),
        "gradient": count_by_tier(e for e in every if e.differentiable(torch.float32)),
        "in-place": count_by_tier(e for e in every if e.op.inplace_variant is not None),
        "out": count_by_tier(e for e in every if e.op.supports_out),
        "errors": count_by_tier(e for e in every if e.has_errors),
        "double backward": count_by_tier(e for e in every if e.twice_differentiable),
    }


def select(pattern: str, tiers: Iterable[str] = TIERS) -> list[Entry]:
    """Entries by a comma-separated list of names, or else by a regular expression."""
    wanted = set(tiers)
    entries = [entry for entry in load().values() if entry.tier in wanted]
    names = {name.strip() for name in pattern.split(",")}
    exact = [entry for entry in entries if entry.name in names or entry.op.name in names]
    if exact:
        return exact
    return [entry for entry in entries if re.search(pattern, entry.name)]


def pick(items: list[Any], limit: int | None) -> list[Any]:
    """At most `limit` items, spread evenly, first and last included."""
    if limit is None or len(items) <= limit:
        return items
    steps = max(limit - 1, 1)
    return [items[i * (len(items) - 1) // steps] for i in range(limit)]


def samples(
    entry: Entry, dtype: torch.dtype, *, grad: bool = False, limit: int | None = None
) -> Sampled:
    """The entry's sample inputs, labelled by their place in the database."""
    found = entry.op.sample_inputs("cpu", dtype, requires_grad=grad)
    return pick(_labelled(found, "#"), limit)


def noncontiguous_samples(entry: Entry, dtype: torch.dtype, limit: int | None = None) -> Sampled:
    """The same samples with every tensor laid out with gaps, where torch can do so."""
    spread = []
    for label, sample in samples(entry, dtype, limit=limit):
        try:
            spread.append((f"nc{label}", sample.noncontiguous()))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
    return spread


def reference_samples(entry: Entry, dtype: torch.dtype, limit: int | None = None) -> Sampled:
    """torch's stronger samples. They begin with the plain ones; a limit skips past those."""
    if limit is None:
        return _labelled(entry.op.reference_inputs("cpu", dtype), "ref#")
    if entry.op.reference_inputs_func is None:
        return []
    plain = len(samples(entry, dtype))
    window = islice(entry.op.reference_inputs("cpu", dtype), plain + 8 * limit)
    return pick(_labelled(window, "ref#")[plain:], limit)


def error_samples(entry: Entry) -> list[tuple[str, Any]]:
    """Inputs that must be refused."""
    if not entry.has_errors:
        return []
    return _labelled(entry.op.error_inputs("cpu"), "error#")


def _labelled(found: Iterable[Any], prefix: str) -> Sampled:
    torch.manual_seed(0)
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [(f"{prefix}{i}", item) for i, item in enumerate(found)]


def _tier_of_names() -> dict[str, str]:
    tiers: dict[str, list[str]] = json.loads((DATA / "op_tiers.json").read_text())
    return {name: tier for tier, names in tiers.items() for name in names}


def _check_frozen(entries: Iterable[Entry]) -> None:
    counted = denominators(entries)
    if counted != FROZEN:
        raise RuntimeError(f"torch's op database changed: {counted}, frozen {FROZEN}")


def entries_of(tiers: Iterable[str]) -> Iterator[Entry]:
    wanted = set(tiers)
    return (entry for entry in load().values() if entry.tier in wanted)
