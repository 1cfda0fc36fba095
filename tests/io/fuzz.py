"""Mutated files: nothing may crash, hang, take much memory or raise anything but our own errors.

`python -m tests.io.fuzz --cases 20000 [--seed 0]`. Cases run in child processes, so that a crash is
counted and not suffered. A damaged file that has checksums must not load at all, unless the damage
undid itself.
"""

from __future__ import annotations

import argparse
import collections
import io
import itertools
import json
import os
import pickletools
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lucerne
from lucerne._src.io import rebuild
from lucerne._src.tensor.interop import outside
from lucerne.io import safetensors
from lucerne.serialization import LoadError
from tests.io.corpus import CASES, assert_same
from tests.io.craft import Assembler, name, rezip
from tests.io.freeze import DATA

NAMES = ("state_dict", "optimizer_state", "python_values", "numpy_values", "views", "parameters")
LIMIT = 5
"""Seconds a case may take."""
BATCH = 250


def _native(name: str) -> bytes:
    out = io.BytesIO()
    lucerne.save(CASES[name](lucerne), out)
    return out.getvalue()


def _tensors() -> dict[str, Any]:
    return {**CASES["state_dict"](lucerne), "b": lucerne.arange(5).to(lucerne.bfloat16)}


def seeds() -> dict[str, list[bytes]]:
    """Intact files to start from, by kind."""
    return {
        "zip": [(DATA / f"{name}.pt").read_bytes() for name in NAMES],
        "native": [_native(name) for name in NAMES],
        "sealed": [_native(name) for name in (*NAMES, "generator", "buffers", "more_python")],
        "woven": [_native(name) for name in CASES if name not in ("many_small", "large")],
        "legacy": [(DATA / f"{name}.legacy.pt").read_bytes() for name in ("state_dict", "views")],
        "safetensors": [safetensors.save(_tensors(), digest=False)],
        "digest": [safetensors.save(_tensors(), digest=True)],
    }


CHECKED = ("zip", "native", "digest")
"""Kinds that notice any damage."""


# ---- mutations --------------------------------------------------------------------------------

INTERESTING = [
    0,
    1,
    2,
    4,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
]
OPCODES = (
    b".0123()[]}{tleasudqrhjRbcQNKMJGXBCTU\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x8f\x90\x91\x93\x94"
)


def _flip(raw: bytearray, r: random.Random) -> None:
    raw[r.randrange(len(raw))] ^= 1 << r.randrange(8)


def _set_byte(raw: bytearray, r: random.Random) -> None:
    raw[r.randrange(len(raw))] = r.choice(OPCODES) if r.random() < 0.5 else r.randrange(256)


def _set_number(raw: bytearray, r: random.Random) -> None:
    width = r.choice((1, 2, 4, 8))
    at = r.randrange(max(1, len(raw) - width))
    value = r.choice(INTERESTING) & (256**width - 1)
    raw[at : at + width] = value.to_bytes(width, "little")


def _delete(raw: bytearray, r: random.Random) -> None:
    at = r.randrange(len(raw))
    del raw[at : at + r.randrange(1, 40)]


def _repeat(raw: bytearray, r: random.Random) -> None:
    at, length = r.randrange(len(raw)), r.randrange(1, 60)
    raw[at:at] = raw[at : at + length] * r.choice((1, 2, 50))


def _move(raw: bytearray, r: random.Random) -> None:
    at, to, length = r.randrange(len(raw)), r.randrange(len(raw)), r.randrange(1, 60)
    part = raw[at : at + length]
    raw[to : to + len(part)] = part


def _cut(raw: bytearray, r: random.Random) -> None:
    del raw[r.randrange(len(raw)) :]


def _insert(raw: bytearray, r: random.Random) -> None:
    at = r.randrange(len(raw) + 1)
    raw[at:at] = r.randbytes(r.randrange(1, 30))


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    _flip, _flip, _set_byte, _set_byte, _set_number, _delete, _repeat, _move, _cut, _insert,
]  # fmt: skip


def mutate(raw: bytes, r: random.Random) -> bytes:
    made = bytearray(raw)
    for _ in range(r.choice((1, 1, 1, 2, 3, 6))):
        if made:
            r.choice(MUTATIONS)(made, r)
    return bytes(made)


def instructions(pickled: bytes) -> list[bytes]:
    places = [at for _, _, at in pickletools.genops(pickled)] + [len(pickled)]
    return [pickled[a:b] for a, b in itertools.pairwise(places)]


def _number(r: random.Random) -> bytes:
    value = r.choice((*INTERESTING, 3, 5, 6, 8, 16, 24, 2**40, -1, -(2**31), -(2**63)))
    return bytes(Assembler()(value).out[2:])


def mutate_instructions(pickled: bytes, r: random.Random) -> bytes:
    """Delete, repeat, swap or replace whole instructions: most results still run for a while."""
    steps = instructions(pickled)
    for _ in range(r.choice((1, 1, 2, 3))):
        a, b = r.randrange(1, len(steps)), r.randrange(1, len(steps))
        action = r.randrange(6)
        if action == 0 and len(steps) > 3:
            del steps[a]
        elif action == 1:
            steps.insert(a, steps[b])
        elif action == 2:
            steps[a], steps[b] = steps[b], steps[a]
        elif action == 3:
            steps[a] = r.choice(PARTS)
        elif action == 4:
            steps.insert(a, r.choice(PARTS))
        else:
            numbers = [n for n, step in enumerate(steps) if step[:1] in b"KMJ\x8a"]
            if numbers:
                steps[r.choice(numbers)] = _number(r)
    return b"".join(steps)


PARTS = [
    b"N", b"}", b"]", b")", b"(", b"t", b"u", b"e", b"s", b"a", b"b", b"R", b"Q", b"0", b"1",
    b"\x85", b"\x86", b"\x87", b"\x81", b"h\x00", b"h\x01", b"h\x02", b"h\x05", b"K\x00", b"K\x01",
    b"\x8f", b"\x90", b"\x91", b"X\x01\0\0\x000", b"X\x03\0\0\0cpu", b"G\x7f\xf8\0\0\0\0\0\0",
    *(name(*key) for key in rebuild.TABLE),
]  # fmt: skip
"""Instructions to put where they don't belong."""


def make_case(kind: str, raw: bytes, r: random.Random) -> bytes:
    """A mutated file; sealed and woven ones have a mutated pickle inside an intact archive."""
    if kind == "woven":
        return rezip(raw, {"data.pkl": lambda pickled: mutate_instructions(pickled, r)})
    if kind == "sealed":
        return rezip(raw, {"data.pkl": lambda pickled: mutate(pickled, r)})
    if kind == "safetensors" and r.random() < 0.5:
        length = struct.unpack("<Q", raw[:8])[0]
        header = mutate(raw[8 : 8 + length], r)
        return struct.pack("<Q", len(header)) + header + raw[8 + length :]
    return mutate(raw, r)


# ---- running ----------------------------------------------------------------------------------


def touch(root: Any) -> None:
    """Use what was loaded: a tensor that reaches beyond its memory would fail here.

    Through NumPy, which checks the reach: kernels would first have to be compiled.
    """
    seen: set[int] = set()
    left = [root]
    while left:
        value = left.pop()
        if isinstance(value, lucerne.Tensor):
            if value.device.type != "meta" and value.numel():
                array = outside.bits(value)
                array[(-1,) * value.ndim].copy()
                if value.numel() < 10**6:
                    array.copy()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            left.extend(value.values() if isinstance(value, dict) else value)


def load(kind: str, raw: bytes) -> Any:
    if kind in ("safetensors", "digest"):
        return safetensors.load(raw)
    return lucerne.load(io.BytesIO(raw))


def run_case(kind: str, given: bytes, want: Any, seed: int) -> str:
    """What became of one case."""
    raw = make_case(kind, given, random.Random(seed))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: Any = None
    try:
        found = load(kind, raw)
        outcome = "loaded"
    except LoadError:
        outcome = "refused"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if outcome == "loaded":
        gone = (
            kind == "digest" and safetensors.DIGEST.encode() not in raw
        )  # nothing to compare with
        if kind in CHECKED and not gone:
            try:
                assert_same(found, want)
            except AssertionError:
                outcome = "SILENT"
        touch(found)
    return "MEMORY" if grown > 2 * len(raw) + (64 << 20) else outcome


def worker(start: int, stop: int, seed: int, report: Any) -> None:
    """Run cases and write a line for each, before and after."""
    kinds = seeds()
    wanted = {kind: [load(kind, raw) for raw in files] for kind, files in kinds.items()}
    order = list(kinds)
    for n in range(start, stop):
        kind = order[n % len(order)]
        which = (n // len(order)) % len(kinds[kind])
        report.write(f"{n} {kind} ")
        report.flush()
        signal.alarm(LIMIT)
        try:
            outcome = run_case(kind, kinds[kind][which], wanted[kind][which], seed * 10**9 + n)
        except BaseException as error:
            outcome = f"FOREIGN:{type(error).__name__}:{str(error)[:60]!r}".replace(" ", "_")
        signal.alarm(0)
        report.write(f"{outcome}\n")
        report.flush()


def run(cases: int, seed: int = 0) -> dict[str, Any]:
    """Counts by kind and outcome, and the cases that went wrong."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    bad: list[str] = []
    at = 0
    while at < cases:
        stop = min(cases, at + BATCH)
        with tempfile.TemporaryFile("w+") as report:
            child = os.fork()
            if child == 0:
                try:
                    worker(at, stop, seed, report)
                finally:
                    os._exit(0)
            _, status = os.waitpid(child, 0)
            report.seek(0)
            lines = [line.split() for line in report]
        for n, kind, *rest in lines:
            outcome = rest[0] if rest else f"SIGNAL:{os.WTERMSIG(status)}"
            counts[kind][outcome] += 1
            if outcome not in ("refused", "loaded"):
                bad.append(f"seed {seed} case {n} {kind}: {outcome}")
        at = int(lines[-1][0]) + 1 if lines else stop
    return {"counts": {kind: dict(found) for kind, found in counts.items()}, "bad": bad}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    report = run(options.cases, options.seed)
    print(json.dumps(report, indent=1))
    print(f"{options.cases} cases in {time.perf_counter() - start:.0f} s, {len(report['bad'])} bad")
    sys.exit(1 if report["bad"] else 0)


if __name__ == "__main__":
    main()
