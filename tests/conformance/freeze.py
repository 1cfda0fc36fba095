"""Freeze small op_db samples with torch's answers, so that `lucerne conformance` needs no torch.

    python -m tests.conformance.freeze

writes lucerne/conformance/data/cases.json (calls) and arrays.npz (their tensors). Run it when torch's
pinned version changes; the result is checked in.
"""

import json
import math
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.conformance import catalog

TARGET = Path(__file__).parents[2] / "lucerne" / "conformance" / "data"
SAMPLES = {
    torch.float32: 2, torch.float64: 1, torch.bfloat16: 1, torch.int64: 1, torch.bool: 1,
    torch.complex64: 1,
}  # fmt: skip
MOST_ELEMENTS = 250
LOOK_AT = 12  # samples per entry and dtype that are tried


class CannotFreezeError(Exception):
    """An argument has no plain form (a generator, a callable, a sparse tensor ...)."""


class Freezer:
    """Collects cases and the arrays they refer to."""

    def __init__(self) -> None:
        self.blob = bytearray()
        self.cases: list[dict[str, Any]] = []
        self.elements = 0

    def encode(self, x: Any) -> Any:
        """A value as JSON; tensors become references."""
        if isinstance(x, torch.Tensor):
            return self._tensor(x)
        if isinstance(x, float):
            return x if math.isfinite(x) else {"float": repr(x)}
        if x is None or isinstance(x, (bool, int, str)):
            return x
        if isinstance(x, complex):
            return {"complex": [x.real, x.imag]}
        if isinstance(x, torch.dtype):
            return {"dtype": str(x).removeprefix("torch.")}
        if isinstance(x, torch.memory_format):
            return {"memory_format": str(x).removeprefix("torch.")}
        if isinstance(x, (list, tuple)):
            return {"tuple" if isinstance(x, tuple) else "list": [self.encode(v) for v in x]}
        raise CannotFreezeError(type(x).__name__)

    def _tensor(self, t: torch.Tensor) -> dict[str, Any]:
        if t.layout != torch.strided or t.device.type != "cpu":
            raise CannotFreezeError("layout")
        t = t.detach().resolve_conj().resolve_neg()
        self.elements += t.numel()
        if self.elements > MOST_ELEMENTS:
            raise CannotFreezeError("size")
        bits = t.contiguous().view(torch.int16) if t.dtype == torch.bfloat16 else t
        at = len(self.blob)
        self.blob += np.ascontiguousarray(bits.numpy()).tobytes()
        return {"at": at, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}

    def add(self, entry: catalog.Entry, path: str, dtype: torch.dtype, sample: Any) -> bool:
        """Freeze one sample; False when it can't be."""
        before = len(self.blob)
        self.elements = 0
        try:
            arguments = [self.encode(a) for a in (sample.input, *sample.args)]
            named = {k: self.encode(v) for k, v in sample.kwargs.items()}
            answer = entry.op.op(sample.input, *sample.args, **sample.kwargs)
            expected = self.encode(list(answer) if isinstance(answer, tuple) else answer)
        except (CannotFreezeError, RuntimeError, TypeError):
            del self.blob[before:]
            return False
        self.cases.append(
            {
                "op": entry.name, "tier": entry.tier, "call": path,
                "dtype": str(dtype).removeprefix("torch."), "args": arguments, "kwargs": named,
                "expected": expected,
            }
        )  # fmt: skip
        return True


def public_path(entry: catalog.Entry) -> str | None:
    """`nn.functional.relu`, `Tensor.expand`, ...: where a user finds the op."""
    for root, prefix in ((torch, ""), (torch.Tensor, "Tensor.")):
        found: Any = root
        for part in entry.op.name.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return prefix + entry.op.name
    return None


def main() -> None:
    """Freeze every entry that can be frozen."""
    freezer = Freezer()
    for entry in catalog.load().values():
        path = public_path(entry)
        variant = bool(entry.op.variant_test_name)
        if path is None or entry.undefined or entry.random or entry.ambiguous or variant:
            continue
        for dtype, count in SAMPLES.items():
            if dtype not in entry.dtypes:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                taken = 0
                for sample in islice(entry.op.sample_inputs("cpu", dtype), LOOK_AT):
                    taken += freezer.add(entry, path, dtype, sample)
                    if taken == count:
                        break
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "cases.json").write_text(json.dumps(freezer.cases, separators=(",", ":")) + "\n")
    np.savez_compressed(TARGET / "arrays.npz", bytes=np.frombuffer(freezer.blob, np.uint8))
    print(f"{len(freezer.cases)} cases, {len(freezer.blob)} bytes of tensors")


if __name__ == "__main__":
    main()
