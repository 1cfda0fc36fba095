"""`python -m tests.conformance.proofs`: who is right where the sweep differs from torch?

Every entry that has a known gap in M11 or M11v runs again, forward and backward, on torch, on
Lucerne, and by NumPy in float64 (Lucerne's reference backend, in a process of its own). Where the
first two differ, the third says which of them the mathematics is nearer to. `neither`: float64
does not decide (inf minus inf in one order or another, of equal elements the one or the other).
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.conformance import catalog, gaps, tree
from tests.conformance.bridge import Bridge, lucerne_bridge, torch_bridge
from tests.conformance.compare import widen
from tests.conformance.context import Context, quiet
from tests.conformance.metrics import MATRIX
from tests.conformance.outcome import attempt
from tests.conformance.rebind import Function
from tests.conformance.sweep import KILLS, LAYOUTS, SAMPLES, VALUES, changed

Key = tuple[str, str, str, str]
Arrays = list[Any] | None
CHANGES = {"M11": LAYOUTS, "M11v": VALUES}
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float64: 1e-7}
EITHER, OURS, TORCH, NEITHER = "either", "Lucerne", "torch", "neither"
TRANSFORMS = ("fft.", "stft", "istft")
"""An element of a transform is a sum over all of them: right to a share of the largest one."""
CLOSE_TRANSFORMS = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float64: 1e-14}
_BOUNDS = "boundaries out of order: PyTorch defines no answer, its search happens to find one"
_ROUNDED = (
    "the backward pass reads the rounded result, as PyTorch's own flash kernel does; for these "
    "operands PyTorch takes its slow path"
)
REASONS = {
    ("bucketize", "M11v"): _BOUNDS,
    ("searchsorted", "M11v"): _BOUNDS,
    ("nn.functional.scaled_dot_product_attention", "torch.bfloat16"): _ROUNDED,
    ("linalg.eigvals", "torch.float32"): "a defective matrix: its eigenvalues move by sqrt(eps)",
    ("linalg.matrix_norm", "M11v"): "the sign of a null vector, which nothing decides",
}
"""Where torch is nearer to float64 and it is no fault, by entry and metric or dtype."""


def cases(pattern: str) -> Iterator[tuple[Key, Context, Any]]:
    """Every changed sample of the entries with gaps."""
    wanted = {(gap.op, gap.metric) for gap in gaps.load() if gap.metric in CHANGES}
    bridge = lucerne_bridge()
    for name, entry in catalog.load().items():
        context = Context(entry, bridge)
        for metric in (m for m in CHANGES if (name, m) in wanted and pattern in name):
            for dtype in (d for d in MATRIX if d in entry.dtypes and d in CLOSE):
                yield from _of_dtype(context, metric, dtype)


def _of_dtype(
    context: Context, metric: str, dtype: torch.dtype
) -> Iterator[tuple[Key, Context, Any]]:
    entry = context.entry
    grad = entry.differentiable(dtype) and not entry.random
    for label, sample in catalog.samples(entry, dtype, grad=grad, limit=SAMPLES):
        for name, change in CHANGES[metric].items():
            made = None if (entry.name, name) in KILLS else changed(sample, change, grad)
            if made is not None:
                yield (entry.name, metric, str(dtype), f"{name} {label}"), context, made


def results(bridge: Bridge, function: Function, sample: Any) -> Arrays:
    """The values of a call, then its gradients (of ones), in float64; None: it raises."""
    carried = bridge.carry_sample(sample)

    def run() -> list[Any]:
        outs = tree.leaves(function(carried.input, *carried.args, **carried.kwargs))
        outs = [o for o in outs if bridge.is_tensor(o)]
        ends = [o for o in outs if o.requires_grad]
        ins = [t for _, t in carried.memo.tensors.values() if t.requires_grad]
        found = bridge.grad(ends, ins, [bridge.module.ones_like(o) for o in ends]) if ends else []
        return [*outs, *found]

    done = attempt(run)
    if done.error is not None:
        return None
    return [None if x is None else _array(bridge, x) for x in done.result]


def _array(bridge: Bridge, x: Any) -> Any:
    found = bridge.from_other(x)
    wide = torch.complex128 if found.dtype.is_complex else torch.float64
    return found.to(wide).numpy()


def truths(pattern: str) -> dict[Key, Arrays]:
    """In a process whose host backend is NumPy."""
    found: dict[Key, Arrays] = {}
    for key, context, sample in cases(pattern):
        with quiet(), np.errstate(all="ignore"):
            done = attempt(lambda s=sample, c=context: results(c.bridge, c.function, widen(s)))
        found[key] = done.result
    return found


def near(have: Any, want: Any, rtol: float, largest: float, normwise: bool = False) -> bool:
    """Whether a value is what float64 gives, as far as its own type reaches."""
    if have is None or want is None:
        return have is want
    if have.shape != want.shape:
        return False
    with np.errstate(all="ignore"):
        want = np.where(np.abs(want) > largest, np.sign(want) * np.inf, want)
        finite = np.abs(want[np.isfinite(want)])
        most = float(finite.max(initial=0.0))
        atol = rtol * (most if normwise else min(1.0, most))
    return bool(np.allclose(have, want, rtol=rtol, atol=atol, equal_nan=True))


def verdict(
    ours: Arrays, theirs: Arrays, truth: Arrays, dtype: torch.dtype, normwise: bool = False
) -> str | None:
    """Who is right; None: they agree, or torch has refused the case."""
    if theirs is None:
        return None
    largest = float(torch.finfo(dtype).max)
    rtol = (CLOSE_TRANSFORMS if normwise else CLOSE)[dtype]
    if ours is not None and len(ours) == len(theirs):
        pairs = zip(ours, theirs, strict=True)
        if all(near(a, b, rtol, float("inf"), normwise) for a, b in pairs):
            return None
    right = [
        side is not None
        and truth is not None
        and len(side) == len(truth)
        and all(near(a, t, rtol, largest, normwise) for a, t in zip(side, truth, strict=True))
        for side in (ours, theirs)
    ]
    return {(1, 1): EITHER, (1, 0): OURS, (0, 1): TORCH, (0, 0): NEITHER}[right[0], right[1]]


def reason(key: Key) -> str | None:
    """Why torch's nearer answer is no fault of ours."""
    return REASONS.get((key[0], key[2])) or REASONS.get((key[0], key[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="entries whose name holds this")
    parser.add_argument("--truths", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.truths:
        options.truths.write_bytes(pickle.dumps(truths(options.only)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "truths"
        command = [sys.executable, "-m", "tests.conformance.proofs", "--only", options.only]
        environment = {**os.environ, "LUCERNE_HOST_BACKEND": "reference"}
        done = subprocess.Popen([*command, "--truths", str(path)], env=environment)
        found = _answers(options.only)
        done.wait()
        known = pickle.loads(path.read_bytes())
    return _report(found, known)


def _answers(pattern: str) -> dict[Key, tuple[Arrays, Arrays]]:
    found = {}
    for key, context, sample in cases(pattern):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{' '.join(key):100.100}")
        with quiet():
            theirs = attempt(lambda s=sample, c=context: results(torch_bridge(), c.entry.op.op, s))
            ours = attempt(lambda s=sample, c=context: results(c.bridge, c.function, s))
        found[key] = ours.result, theirs.result
    return found


def _report(found: dict[Key, tuple[Arrays, Arrays]], known: dict[Key, Arrays]) -> int:
    counts: dict[tuple[str, str], Counter[str]] = {}
    against = []
    for key, (ours, theirs) in found.items():
        dtype: torch.dtype = getattr(torch, key[2].removeprefix("torch."))
        said = verdict(ours, theirs, known.get(key), dtype, key[0].startswith(TRANSFORMS))
        if said is not None:
            counts.setdefault(key[:2], Counter())[said] += 1
            if said == TORCH:
                against.append(key)
    print(
        f"{'entry':48} {'metric':6} " + " ".join(f"{w:>8}" for w in (OURS, EITHER, NEITHER, TORCH))
    )
    for (name, metric), count in counts.items():
        row = " ".join(f"{count[w]:8d}" for w in (OURS, EITHER, NEITHER, TORCH))
        print(f"{name:48} {metric:6} {row}")
    total = sum(counts.values(), Counter())
    print(
        f"{len(found)} cases; right: "
        + ", ".join(f"{w} {total[w]}" for w in (OURS, EITHER, NEITHER, TORCH))
    )
    open_ = [key for key in against if reason(key) is None]
    for why, count in Counter(filter(None, map(reason, against))).items():
        print(f"{count:5d}  {why}")
    print("\n".join(map(" ".join, open_)) or "no case in which torch alone is right is left open")
    return int(bool(open_))


if __name__ == "__main__":
    sys.exit(main())
