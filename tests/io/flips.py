"""Flipped bits: each must be noticed. `python -m tests.io.flips --cases 2000 [--seed 0]`.

Every case flips one bit anywhere in an intact file: one of ours, one of torch's (with its
checksums), or a safetensors file with a digest.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from typing import Any

import lucerne
from lucerne.io import safetensors
from lucerne.serialization import LoadError
from tests.io.corpus import CASES
from tests.io.freeze import DATA


def files() -> dict[str, bytes]:
    out = io.BytesIO()
    small = CASES["state_dict"](lucerne)
    lucerne.save(
        {"big": lucerne.arange(20_000.0), "small": small, "meta": CASES["python_values"](lucerne)},
        out,
    )
    tensors = {**small, "w": lucerne.arange(5000).to(lucerne.bfloat16)}
    return {
        "native": out.getvalue(),
        "torch": (DATA / "every_dtype.pt").read_bytes(),
        "torch_state": (DATA / "optimizer_state.pt").read_bytes(),
        "safetensors_digest": safetensors.save(tensors, {"format": "pt"}, digest=True),
    }


def load(kind: str, raw: bytes) -> Any:
    return safetensors.load(raw) if "safetensors" in kind else lucerne.load(io.BytesIO(raw))


def run(cases: int, seed: int = 0) -> dict[str, Any]:
    """How many flips of each kind of file were noticed, and where others were."""
    r = random.Random(seed)
    found = files()
    report: dict[str, Any] = {kind: {"cases": 0, "noticed": 0} for kind in found}
    report["missed"] = []
    for n in range(cases):
        kind = list(found)[n % len(found)]
        raw = bytearray(found[kind])
        # Half the flips in structure: the first kilobyte and the last three.
        near = [r.randrange(min(1024, len(raw))), len(raw) - 1 - r.randrange(min(3072, len(raw)))]
        at, bit = r.choice([*near, r.randrange(len(raw)), r.randrange(len(raw))]), r.randrange(8)
        raw[at] ^= 1 << bit
        report[kind]["cases"] += 1
        try:
            load(kind, bytes(raw))
        except LoadError:
            report[kind]["noticed"] += 1
        else:
            report["missed"].append(f"{kind}: byte {at} of {len(raw)}, bit {bit}")
    return report


def every_bit(kind: str, step: int = 1, start: int = 0) -> list[str]:
    """Flip every bit (or every `step`-th) of one file; those not noticed."""
    raw = bytearray(files()[kind])
    missed = []
    for n in range(start, 8 * len(raw), step):
        raw[n // 8] ^= 1 << n % 8
        try:
            load(kind, bytes(raw))
            missed.append(f"{kind}: byte {n // 8} bit {n % 8}")
        except LoadError:
            pass
        raw[n // 8] ^= 1 << n % 8
    return missed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every-bit", action="store_true", help="of the small files")
    options = parser.parse_args()
    start = time.perf_counter()
    report = run(options.cases, options.seed)
    if options.every_bit:
        for kind in ("torch", "torch_state", "safetensors_digest"):
            report["missed"] += every_bit(kind)
    print(json.dumps(report, indent=1))
    print(f"{options.cases} cases in {time.perf_counter() - start:.0f} s")
    sys.exit(1 if report["missed"] else 0)


if __name__ == "__main__":
    main()
