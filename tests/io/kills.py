"""kill -9 while saving: afterwards the file is the old one or the new one, whole.

`python -m tests.io.kills --cases 200`. A child saves over and over to one path and says on a pipe
when a save has returned; it is killed at a random moment. Then the file must load, all its tensors
must come from one save, and that save must not be older than the last one acknowledged. The next
save must remove the temporary file that the killed one left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from typing import Any

import lucerne
from lucerne._src.io import atomic
from lucerne.io import safetensors
from lucerne.run_state import RunState
from lucerne.serialization import LoadError

SIZE = 400_000


def content(n: int, size: int) -> dict[str, Any]:
    """Several tensors that all tell which save they come from."""
    made = {f"w{k}": lucerne.full((size,), float(n)) for k in range(3)}
    return {**made, "n": lucerne.tensor(n)}


class SlowOps(atomic.FileOps):
    """Writes in small pieces, so that kills often come between two of them."""

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data[: 64 * 1024])


def save(kind: str, path: str, n: int, size: int) -> None:
    ops = SlowOps()
    if kind == "checkpoint":
        lucerne.save(content(n, size), path, ops=ops)
    elif kind == "safetensors":
        safetensors.save_file(content(n, size), path, digest=True, ops=ops)
    else:
        RunState(keep=2).save(path, ops=ops, **content(n, size))


def load(kind: str, path: str) -> dict[str, Any]:
    if kind == "checkpoint":
        found: dict[str, Any] = lucerne.load(path)
        return found
    if kind == "safetensors":
        return safetensors.load_file(path)
    return RunState().restore(path)


def child(kind: str, path: str, first: int, size: int, pipe: int) -> None:
    n = first
    while True:
        save(kind, path, n, size)
        os.write(pipe, n.to_bytes(4, "little"))
        n += 1


def one(kind: str, folder: str, n: int, delay: float, size: int) -> tuple[str, int]:
    """Kill once; what is wrong (empty: nothing), and the number of the save that survived."""
    path = os.path.join(
        folder, {"checkpoint": "x.pt", "safetensors": "x.safetensors"}.get(kind, "run")
    )
    out, inp = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            child(kind, path, n, size, inp)
        finally:
            os._exit(1)
    os.close(inp)
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    said = b""
    while part := os.read(out, 1 << 16):
        said += part
    os.close(out)
    acknowledged = int.from_bytes(said[-4:], "little") if said else n - 1
    try:
        found = load(kind, path)
    except (LoadError, OSError) as error:
        return f"UNLOADABLE: {error}", acknowledged
    values = {float(t.flatten()[k].item()) for t in found.values() for k in (0, -1)}
    if len(values) != 1:
        return f"MIXED: {values}", acknowledged
    survived = int(values.pop())
    if survived not in (acknowledged, acknowledged + 1):
        return f"LOST: {acknowledged} was acknowledged, {survived} is there", acknowledged
    return "", survived


def run(cases: int, seed: int = 0, size: int = SIZE, kinds: tuple[str, ...] = ()) -> dict[str, Any]:
    r = random.Random(seed)
    report: dict[str, Any] = {"cases": cases, "bad": [], "temporary_files_seen": 0, "left_over": []}
    kinds = kinds or ("checkpoint", "safetensors", "run_state")
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            path = {"checkpoint": "x.pt", "safetensors": "x.safetensors"}.get(kind, "run")
            n = 1
            save(kind, os.path.join(folder, path), 0, size)
            for _ in range(cases // len(kinds)):
                problem, survived = one(kind, folder, n, r.uniform(0.0, 0.06), size)
                if problem:
                    report["bad"].append(f"{kind}: {problem}")
                n = survived + 1
                report["temporary_files_seen"] += _count_temporary(folder)
            save(kind, os.path.join(folder, path), n, size)
            report["left_over"] += [kind] * _count_temporary(folder)
    return report


def _count_temporary(folder: str) -> int:
    return sum(name.endswith(atomic.SUFFIX) for _, _, names in os.walk(folder) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    report = run(options.cases, options.seed)
    print(json.dumps(report, indent=1))
    print(f"{options.cases} kills in {time.perf_counter() - start:.0f} s")
    sys.exit(1 if report["bad"] or report["left_over"] else 0)


if __name__ == "__main__":
    main()
