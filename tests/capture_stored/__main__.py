"""The proofs of the program cache, all of them: `python -m tests.capture_stored`.

Some minutes. `--attacks N`, `--kills N` and `--rounds N` make it longer or shorter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capture_stored import proofs, race
from tests.capture_stored.bench import Bench
from tests.capture_stored.edits import EDITS
from tests.capture_stored.table import ROWS
from tests.capture_stored.test_stored import run, verdict

ROOT = Path(__file__).resolve().parents[2]


def table(folder: Path, options: Any) -> tuple[bool, str]:
    """Every row: one process stores, the next finds without running the body."""
    names = tuple(ROWS)
    first, second = run(names, folder), run(names, folder)
    wrong = {n: verdict(first[n], second[n]) for n in names}
    bad = {n: text for n, text in wrong.items() if text}
    hits = sum(second[n]["hits"] for n in names)
    return (
        not bad,
        f"{len(names) - len(bad)} of {len(names)} functions, {hits} programs found {bad or ''}",
    )


def attacks(folder: Path, options: Any) -> tuple[bool, str]:
    with pytest.MonkeyPatch.context() as patch:
        done = proofs.attacked(Bench(folder / "programs", patch), options.attacks, seed=2)
    kinds = ", ".join(f"{n} {name}" for name, n in done.items())
    return True, f"{sum(done.values())} files, 0 run, 0 wrong results ({kinds})"


def edits(folder: Path, options: Any) -> tuple[bool, str]:
    found = {}
    for k, (name, edit) in enumerate(EDITS.items()):
        with pytest.MonkeyPatch.context() as patch:
            (folder / str(k)).mkdir()
            bench = Bench(folder / str(k) / "programs", patch)
            found[name] = proofs.edited(bench, edit, folder / str(k))
    bad = {
        n: ways
        for n, ways in found.items()
        if ways != ("miss", "hit" if EDITS[n].same else "miss", "hit")
    }
    return not bad, f"{len(found) - len(bad)} of {len(found)} edits noticed {bad or ''}"


def races(folder: Path, options: Any) -> tuple[bool, str]:
    done = race.run(folder / "programs", 8, options.rounds, options.kills)
    return not done["wrong"] and not done["torn"] and not done["stale"], str(done)


_ASK = """
import sys, resource, warnings
warnings.simplefilter("ignore")
import lucerne as torch
from lucerne._src.capture.cache.disk import lookup as store
from tests.capture_stored.bench import given, subject
if sys.argv[1] == "full":
    torch.zeros(1) + 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
found = torch.compile(subject, fullgraph=True)(given())
assert torch.allclose(found, subject(given())), "a wrong result"
print("right", store.folder().is_on, store.account.hits)
"""


def disks(folder: Path, options: Any) -> tuple[bool, str]:
    """A home that can't be written to, and a disk that takes no more bytes."""
    told = []
    for what, cache in (("read-only", "/proc/lucerne"), ("full", str(folder / "full"))):
        environment = {
            **os.environ, "LUCERNE_CACHE_DIR": cache, "LUCERNE_PROGRAM_CACHE": "1",
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        command = [sys.executable, "-c", _ASK, what]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        told.append(f"{what}: {done.stdout.strip() or done.stderr[-300:]}")
    return all(": right" in t for t in told), "; ".join(told)


PROOFS: dict[str, Callable[[Path, Any], tuple[bool, str]]] = {
    "table": table, "attacks": attacks, "edits": edits, "races": races, "disks": disks,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", choices=PROOFS, action="append")
    options = parser.parse_args()
    failed = 0
    for name in options.only or PROOFS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            good, told = PROOFS[name](Path(folder), options)
        failed += not good
        word, seconds = "ok" if good else "FAILED", time.perf_counter() - began
        print(f"{name:8s} {word:6s} {seconds:6.1f} s  {told}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
