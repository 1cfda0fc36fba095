"""Freeze small op_db samples with torch's answers, so that `lucerne conformance` needs no torch.

    nice python -m tests.conformance.freeze --seconds 1200

writes lucerne/conformance/data/cases.json (calls) and arrays.npz (their tensors). Run it when
torch's pinned version changes; the result is checked in. Samples are drawn lazily and only small
ones are kept, so that the whole run takes minutes and the files stay small.
"""

import argparse
import hashlib
import json
import math
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lucerne._src.conformance.frozen import FORMAT, NAMESPACES
from lucerne._src.conformance.run import TOLERANCE
from tests.conformance import catalog

TARGET = Path(__file__).parents[2] / "lucerne" / "conformance" / "data"
SAMPLES = {
    torch.float32: 3, torch.float64: 1, torch.bfloat16: 2, torch.int64: 2, torch.bool: 1,
    torch.complex64: 1,
}  # fmt: skip
CHEAP = (torch.float32, torch.int64)  # the dtypes of T2, one sample each
MOST_ELEMENTS = 400  # of arguments and results
LOOK_AT = 12  # samples per entry and dtype that are drawn
PATIENCE = 4.0  # seconds per entry and dtype
SMALL, OWN = (
    {"S": 4, "M": 5, "L": 6},
    {"S": 5, "M": 10, "L": 20},
)  # sizes in torch's sample functions
WIDE = {False: torch.float64, True: torch.complex128}
# Tensors that must stay in host memory whatever the device.
ON_HOST = {"tensor_split"}
# Answers that nobody needs to repeat: the order of eigenvalues, what LAPACK leaves in unused
# corners, which of several equal elements is named.
LEFT_OUT = {
    "linalg.eig",
    "linalg.eigvals",
    "geqrf",
    "ormqr",
    "linalg.ldl_factor",
    "linalg.ldl_factor_ex",
}
TIES = {"kthvalue", "mode", "median", "nanmedian", "topk"}
# torch lets a gradient through to elements that are overwritten.
NO_GRADIENT = {"as_strided_scatter"}


class CannotFreezeError(Exception):
    """An argument has no plain form (a generator, a callable, a sparse tensor ...)."""


class Freezer:
    """Collects cases and the arrays they refer to; equal arrays are kept once."""

    def __init__(self) -> None:
        self.blob = bytearray()
        self.places: dict[bytes, int] = {}
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
        if isinstance(x, torch.device):
            return {"device": ""}
        if isinstance(x, slice):
            return {"slice": [self.encode(v) for v in (x.start, x.stop, x.step)]}
        if x is Ellipsis:
            return {"ellipsis": ""}
        if isinstance(x, (list, tuple)):
            return {"tuple" if isinstance(x, tuple) else "list": [self.encode(v) for v in x]}
        raise CannotFreezeError(type(x).__name__)

    def _tensor(self, t: torch.Tensor) -> dict[str, Any]:
        if t.layout != torch.strided or t.device.type != "cpu" or t.is_quantized:
            raise CannotFreezeError("layout")
        t = t.detach().resolve_conj().resolve_neg()
        self.elements += t.numel()
        if self.elements > MOST_ELEMENTS:
            raise CannotFreezeError("size")
        bits = t.contiguous().view(torch.int16) if t.dtype == torch.bfloat16 else t
        data = np.ascontiguousarray(bits.numpy()).tobytes()
        at = self.places.get(data)
        if at is None:
            self.blob += bytes(-len(self.blob) % 16)  # so that every array can be viewed in place
            at = self.places[data] = len(self.blob)
            self.blob += data
        return {"at": at, "shape": list(t.shape), "dtype": str(t.dtype).removeprefix("torch.")}

    def add(self, entry: catalog.Entry, path: str, dtype: torch.dtype, sample: Any) -> bool:
        """Freeze one sample; False when it can't be."""
        before, places = len(self.blob), dict(self.places)
        self.elements = 0
        try:
            case = self._case(entry, path, dtype, sample)
        except Exception:  # a sample that torch's public function does not take as it is
            del self.blob[before:]
            self.places = places
            return False
        self.cases.append(case)
        return True

    def _case(
        self, entry: catalog.Entry, path: str, dtype: torch.dtype, sample: Any
    ) -> dict[str, Any]:
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        case: dict[str, Any] = {
            "op": entry.name, "tier": entry.tier, "dtype": str(dtype).removeprefix("torch."),
            "call": path, "args": [self.encode(a) for a in args],
            "kwargs": {
                k: {"device": ""} if k == "device" else self.encode(v) for k, v in kwargs.items()
            },
        }  # fmt: skip
        if path in ON_HOST:
            for a in case["args"][1:]:
                if isinstance(a, dict) and "at" in a:
                    a["host"] = True
        call = function_at(path)
        answer = plain(call(*copied(args), **copied(kwargs)))
        case["expected"] = self.encode(answer)
        for seed in range(3):
            torch.manual_seed(seed)
            self.elements = 0
            if self.encode(plain(call(*copied(args), **copied(kwargs)))) != case["expected"]:
                raise CannotFreezeError("random")
        if not is_exact(answer, call, args, kwargs):
            raise CannotFreezeError("torch's own error is as large as the tolerance")
        if dtype == torch.float32 and entry.differentiable(dtype) and path not in NO_GRADIENT:
            grads, truth = gradients(call, copied(args), copied(kwargs)), None
            if grads is not None:
                truth = gradients(call, widened(args), widened(kwargs))
            if grads is not None and truth is not None and agree(grads, truth):
                self.elements = 0
                case["grads"] = [self.encode(g) for g in grads]
        return case


def plain(answer: Any) -> Any:
    """Named tuples are tuples like any other here."""
    return list(answer) if isinstance(answer, tuple) else answer


def copied(x: Any) -> Any:
    """The same arguments again, which an in-place op may write to."""
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    if isinstance(x, dict):
        return {k: copied(v) for k, v in x.items()}
    return type(x)(copied(v) for v in x) if type(x) in (list, tuple) else x


def widened(x: Any) -> Any:
    """The same arguments in double precision."""
    if isinstance(x, torch.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex):
        return x.detach().to(WIDE[x.dtype.is_complex])
    if isinstance(x, torch.dtype) and (x.is_floating_point or x.is_complex):
        return WIDE[x.is_complex]
    if isinstance(x, dict):
        return {k: widened(v) for k, v in x.items()}
    return type(x)(widened(v) for v in x) if type(x) in (list, tuple) else copied(x)


def is_exact(answer: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether torch's answer is within half the tolerance of its own answer in double precision."""
    try:
        truth = plain(call(*widened(args), **widened(kwargs)))
    except (RuntimeError, TypeError, ValueError):
        return True
    return all(_near(a, t) for a, t in zip(tensors(answer), tensors(truth), strict=True))


def _near(low: torch.Tensor, high: torch.Tensor) -> bool:
    rtol, atol = TOLERANCE.get(str(low.dtype).removeprefix("torch."), (0.0, 0.0))
    if low.shape != high.shape or not rtol:
        return True
    error = (low.to(high.dtype) - high).abs()
    return bool(((error <= (atol + rtol * high.abs()) / 2) | ~high.isfinite()).all())


def tensors(x: Any) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for v in x:
            yield from tensors(v)


def leaves(x: Any) -> Iterator[torch.Tensor]:
    """Tensors that can have a gradient, in the order of the arguments."""
    if isinstance(x, torch.Tensor):
        if x.dtype.is_floating_point:
            yield x
    elif isinstance(x, dict):
        for v in x.values():
            yield from leaves(v)
    elif isinstance(x, (list, tuple)):
        for v in x:
            yield from leaves(v)


def weights(t: torch.Tensor) -> torch.Tensor:
    """The incoming gradient of a result: neither constant nor symmetric. frozen.py has the same."""
    return (((torch.arange(t.numel()) * 7) % 11 - 5) / 4).reshape(t.shape).to(t.dtype)


def gradients(call: Callable[..., Any], args: Any, kwargs: Any) -> list[Any] | None:
    """Gradients of all floating arguments; None when the call has none worth freezing."""
    inputs = list(leaves((args, kwargs)))
    for t in inputs:
        t.requires_grad_()
    try:
        results = [r for r in leaves(plain(call(*args, **kwargs))) if r.requires_grad]
        if not results:
            return None
        found = torch.autograd.grad(
            results, inputs, [weights(r) for r in results], allow_unused=True
        )
    except (RuntimeError, NotImplementedError):
        return None
    return list(found)


def agree(grads: list[Any], truth: list[Any]) -> bool:
    """Whether gradients are finite and as precise as results have to be."""
    pairs = [(g, t) for g, t in zip(grads, truth, strict=True) if g is not None and t is not None]
    return all(bool(g.isfinite().all()) and _near(g, t) for g, t in pairs)


def function_at(path: str) -> Callable[..., Any]:
    found: Any = torch
    for part in path.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def public_path(entry: catalog.Entry) -> str | None:
    """`nn.functional.relu`, `Tensor.expand`, ...: where a user finds the op."""
    name = entry.op.name
    private = name.startswith("_") and not name.startswith("__")
    if private or name.rpartition(".")[0] not in NAMESPACES:
        return None
    for root, prefix in ((torch, ""), (torch.Tensor, "Tensor.")):
        found: Any = root
        for part in name.split("."):
            found = getattr(found, part, None)
        if callable(found):
            return f"{prefix}{name}"
    return None


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Leave the block with TimeoutError when it takes longer."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def set_sizes(sizes: dict[str, int]) -> None:
    """Make torch's sample functions draw tensors of these sizes, which are module globals."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal"):
            for size, value in sizes.items():
                if isinstance(module.__dict__.get(size), int):
                    setattr(module, size, value)


def wanted(entry: catalog.Entry) -> dict[torch.dtype, int]:
    """How many samples of each dtype."""
    counts = SAMPLES if entry.tier != "T2" else dict.fromkeys(CHEAP, 1)
    if entry.op.name in TIES:
        counts = {dtype: n for dtype, n in counts.items() if dtype.is_floating_point}
    return {dtype: n for dtype, n in counts.items() if dtype in entry.dtypes}


def freeze_entry(freezer: Freezer, entry: catalog.Entry, path: str) -> None:
    """A few samples of each dtype, spread over the first ones, that are small and plain enough."""
    for dtype, count in wanted(entry).items():
        taken = 0
        for sample in drawn(entry, dtype, count):
            taken += taken < count and freezer.add(entry, path, dtype, sample)


def drawn(entry: catalog.Entry, dtype: torch.dtype, count: int) -> list[Any]:
    """The first samples, the `count` that are to be preferred in front."""
    for sizes in (SMALL, OWN):
        torch.manual_seed(0)
        np.random.seed(0)
        set_sizes(sizes)
        try:
            with limited(PATIENCE):
                found = list(islice(entry.op.sample_inputs("cpu", dtype), LOOK_AT))
        except Exception as error:  # some sample functions rely on their own sizes
            print(f"  {entry.name} {dtype}: {type(error).__name__}: {error}", flush=True)
            continue
        first = catalog.pick(found, count)
        return [*first, *(s for s in found if not any(s is f for f in first))]
    return []


def main() -> int:
    """Freeze every entry that can be frozen, the needed ones first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1200, help="stop after this long")
    limit = time.monotonic() + parser.parse_args().seconds
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    freezer = Freezer()
    entries = sorted(catalog.load().values(), key=lambda e: e.tier)
    for n, entry in enumerate(entries):
        if time.monotonic() > limit:
            print(f"out of time at {entry.name}, {entry.tier}")
            break
        path = public_path(entry)
        unfit = entry.undefined or entry.random or entry.ambiguous
        if path is not None and not unfit and entry.op.name not in LEFT_OUT:
            freeze_entry(freezer, entry, path)
        if n % 25 == 0:
            print(f"{n}/{len(entries)} {entry.name}: {len(freezer.cases)} cases", flush=True)
    write(freezer)
    return 0


def write(freezer: Freezer) -> None:
    """One case per line, so that a new freeze can be reviewed."""
    TARGET.mkdir(parents=True, exist_ok=True)
    blob = bytes(freezer.blob)
    head = {
        "format": FORMAT, "torch": catalog.TORCH_VERSION, "bytes": len(blob),
        "sha256": hashlib.sha256(blob).hexdigest(),
    }  # fmt: skip
    lines = [json.dumps(c, separators=(",", ":")) for c in (head, *freezer.cases)]
    (TARGET / "cases.json").write_text("[" + ",\n".join(lines) + "]\n")
    np.savez_compressed(TARGET / "arrays.npz", bytes=np.frombuffer(blob, np.uint8))
    sizes = [(TARGET / name).stat().st_size for name in ("cases.json", "arrays.npz")]
    print(f"{len(freezer.cases)} cases, files of {sizes} bytes")


if __name__ == "__main__":
    sys.exit(main())
