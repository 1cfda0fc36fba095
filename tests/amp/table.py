"""Result dtypes under autocast, for every op of torch's own test database, against torch.

    python -m tests.amp.table [NAME ...] --samples 2

An op that torch refuses under autocast is left out; everything else must give the same dtypes, or
stand in `KNOWN` with its reason.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch

import lucerne
from tests.conformance import catalog, tree
from tests.conformance.bridge import lucerne_bridge
from tests.conformance.context import Context, quiet
from tests.conformance.outcome import attempt

DTYPES = (torch.float32, torch.bfloat16)
KNOWN = {
    "_segment_reduce.lengths": "a private op: our composition contains a cast to float32",
    "_segment_reduce.offsets": "a private op: our composition contains a cast to float32",
    "hash_tensor": "not there yet",
    "max_pool2d_with_indices_backward": "its entry calls torch's own overload object",
    "nn.functional.adaptive_max_pool3d": "torch casts where it gives no indices, we never do",
    "nn.functional.multi_head_attention_forward": "averaged weights: torch rounds them once more",
    "linalg.lstsq.grad_oriented": "both refuse or not, by the values of a random matrix",
    "linalg.pinv": "torch casts inside its own decomposition",
    "linalg.pinv.hermitian": "torch casts inside its own decomposition",
    "nn.functional.linear_cross_entropy.chunked": "its chunks are made by torch in bfloat16",
    "nn.functional.linear_cross_entropy.chunked_none": "its chunks are made by torch in bfloat16",
    "nn.functional.max_pool3d": "with indices torch casts to float32, without it does not",
    "sparse.mm.reduce": "sparse operands are not cast",
    "sparse.sampled_addmm": "sparse operands are not cast",
    "tensordot": "torch casts before it looks whether a product is needed",
}


def dtypes(found: Any) -> list[str]:
    return [str(t.dtype).split(".")[-1] for t in tree.leaves(found) if hasattr(t, "dtype")]


def difference(context: Context, sample: Any) -> str | None:
    """What differs for one sample; None: nothing, or torch refuses it."""
    carried = context.bridge.carry_sample(sample)
    op = context.entry.op.op
    with quiet(), torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = attempt(lambda: op(sample.input, *sample.args, **sample.kwargs))
    if theirs.error is not None:
        return None
    with quiet(), lucerne.autocast("cpu", dtype=lucerne.bfloat16):
        ours = attempt(lambda: context.call(carried))
    if ours.error is not None:
        return f"{type(ours.error).__name__}: {ours.error}"
    wanted, found = dtypes(theirs.result), dtypes(ours.result)
    return None if found == wanted else f"torch gives {wanted}, Lucerne {found}"


def check(entry: Any, samples: int) -> list[str]:
    context = Context(entry, lucerne_bridge())
    found = []
    for dtype in DTYPES:
        if dtype not in entry.dtypes:
            continue
        for label, sample in catalog.samples(entry, dtype, limit=samples):
            problem = difference(context, sample)
            if problem is not None:
                found.append(f"{entry.name} {label} {dtype}: {problem}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=2, help="per op and dtype")
    args = parser.parse_args()
    entries = [e for e in catalog.load().values() if not args.names or e.name in args.names]
    wrong = 0
    for entry in entries:
        problems = check(entry, args.samples)
        known = KNOWN.get(entry.name)
        wrong += bool(problems) and known is None
        for problem in problems[:1]:
            print(f"{'known' if known else 'WRONG'}  {problem}" + (f" ({known})" if known else ""))
    print(f"{len(entries)} entries, {wrong} differ without a known reason")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
