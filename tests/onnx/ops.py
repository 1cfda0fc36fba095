"""The ops of tiers T0 and T1: the first frozen call of each as an ONNX model, scored."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import lucerne
from lucerne._src.capture.trace.pytree import flatten, rebuild
from lucerne._src.conformance import frozen
from lucerne.export import ExportError
from lucerne.export.onnx.errors import OnnxExporterError

AGREES, REFUSED, NOT_EXPORTED, ENGINE, DIFFERS, BROKEN = (
    "agrees", "refused for ONNX", "refused by export", "no kernel in onnxruntime", "differs",
    "broken",
)  # fmt: skip
SCORED = {"T0", "T1"}
WELL = (AGREES, REFUSED, NOT_EXPORTED, ENGINE)
"""What is right, or says why not."""


class Call(lucerne.nn.Module):
    """A call whose tensors are the arguments of a module."""

    def __init__(self, function: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.function, self.leaves = function, []
        self.shape = flatten((args, kwargs), self.leaves)
        self.places = [k for k, x in enumerate(self.leaves) if isinstance(x, lucerne.Tensor)]
        self.given = tuple(self.leaves[k] for k in self.places)

    def forward(self, *given: Any) -> Any:
        leaves = list(self.leaves)
        for k, x in zip(self.places, given, strict=True):
            leaves[k] = x
        args, kwargs = rebuild(self.shape, iter(leaves))
        return self.function(*args, **kwargs)


def calls(names: Sequence[str]) -> Iterator[tuple[str, str, Call]]:
    """(tier, op, call): for each op the first call in float32, else in whatever comes first."""
    with resources.as_file(resources.files("lucerne._src.conformance") / "data") as folder:
        listed = frozen._read_calls(folder / "cases.json")[1:]
        blob = frozen._read_blob(folder / "arrays.npz")
    first: dict[str, dict[str, Any]] = {}
    for call in listed:
        if call["tier"] in SCORED and (not names or call["op"] in names):
            have = first.setdefault(call["op"], call)
            if have["dtype"] != "float32" and call["dtype"] == "float32":
                first[call["op"]] = call
    for op, call in sorted(first.items(), key=lambda item: (item[1]["tier"], item[0])):
        args = [frozen._decode(a, blob, "cpu") for a in call["args"]]
        kwargs = {k: frozen._decode(v, blob, "cpu") for k, v in call["kwargs"].items()}
        yield call["tier"], op, Call(frozen._function(lucerne, call["call"]), args, kwargs)


def score(call: Call) -> tuple[str, str]:
    """How a call fares, and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lucerne.onnx.export(call, call.given)
    except OnnxExporterError as error:
        if error.refusals:
            return REFUSED, "; ".join(sorted({f"{r.op}: {r.reason}" for r in error.refusals}))
        lacking = "NOT_IMPLEMENTED" in str(error)
        return ENGINE if lacking else DIFFERS, str(error)
    except ExportError as error:
        return NOT_EXPORTED, str(error)
    except Exception as error:
        return BROKEN, f"{type(error).__name__}: {error}"
    return AGREES, ""


def run(names: Sequence[str]) -> int:
    """Print the table; 1: something differs or breaks without a reason."""
    began = time.perf_counter()
    totals: dict[str, Counter[str]] = {tier: Counter() for tier in sorted(SCORED)}
    for tier, op, call in calls(names):
        if not call.given:
            continue  # it makes tensors of numbers: nothing goes in
        found, why = score(call)
        totals[tier][found] += 1
        if found != AGREES:
            print(f"{tier} {op}: {found}: {why.strip().splitlines()[0][:150]}", flush=True)
    kinds = (AGREES, REFUSED, NOT_EXPORTED, ENGINE, DIFFERS, BROKEN)
    print(f"| tier | ops | {' | '.join(kinds)} |\n|---|---|{'---|' * len(kinds)}")
    for tier, found in totals.items():
        row = " | ".join(str(found[kind]) for kind in kinds)
        print(f"| {tier} | {found.total()} | {row} |")
    print(f"{time.perf_counter() - began:.0f} s")
    return int(any(n for found in totals.values() for kind, n in found.items() if kind not in WELL))
