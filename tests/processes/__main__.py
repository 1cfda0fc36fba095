"""`python -m tests.processes NAME [N]`: what ranks do against gloo, mistakes, faults, strangers.

collectives [RANKS]   each collective, dtype, async and subgroup, against PyTorch's gloo
ddp [RANKS]           DistributedDataParallel of a GPT and a ResNet-18
mistakes [N]          ranks that call different collectives
strangers [N]         wrong frames at a rank, and a hundredth as many wrong tokens at its doors
kills [N]             ranks that are killed at random steps under `lucerne run`, and resumed
stops [N]             ranks that are stopped, stuck, slow
flips [N]             checkpoints of 2 ranks with one bit changed
saves [N]             checkpoints of 2 ranks of which one is killed while it saves
resize [N]            runs that go on with 4, 2 and 3 ranks, within epochs
slurm, mpi            ranks that a real Slurm and a real Open MPI start on this machine
ray PYTHON            Ray's TorchTrainer of four workers, one of them killed
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import lucerne.distributed
from tests.processes import (
    cases,
    checkpoints,
    clusters,
    faults,
    mistakes,
    models,
    resize,
    strangers,
)


def collectives(ranks: int = 4) -> list[str]:
    warnings.simplefilter("ignore")
    count, refused, wrong = cases.differences(ranks)
    print(f"{ranks} ranks: {count} rows compared, {refused} that gloo refuses, {len(wrong)} differ")
    return wrong


def report_mistakes(count: int = 100) -> list[str]:
    wrong = mistakes.problems(count)
    print(
        f"{count} mistakes of {len(mistakes.KINDS)} kinds on 3 ranks: {len(wrong)} not told to all"
    )
    return wrong


def report_strangers(count: int = 100_000) -> list[str]:
    found = strangers.fuzz_frames(count)
    let_in, alive = strangers.knocks(max(count // 100, 10))
    print(f"{count} frames: {dict(found)}; {max(count // 100, 10)} knocks: {let_in} let in")
    return [] if not found["accepted"] and not let_in and alive == 2 else ["a stranger got in"]


def kills(count: int = 200) -> list[str]:
    wrong, found = faults.kills(count)
    if found:
        named, ended = max(f.named for f in found), max(f.ended for f in found)
        print(f"slowest: named after {named:.2f} s, all ended after {ended:.2f} s")
    print(f"{count} kills of one of 4 ranks: {count - len(wrong)} named in time and resumed alike")
    return wrong


def stops(count: int = 3) -> list[str]:
    wrong = []
    for number in range(count):
        kind = ("stop", "slow", "stuck")[number % 3]
        extra = ("--stuck-after", "4") if kind == "stuck" else ()
        found = faults.run(f"{kind}:1:7", 4, extra=extra)
        print(f"{kind}: named after {found.named:.2f} s: {found.verdict}")
        fits = found.code == 0 and found.named < 3.0 and "rank 1" in found.verdict
        fits = fits and "all_reduce" in found.verdict and "train.py:" in found.verdict
        if not fits or (kind == "slow") == ("Starting again" in found.text):
            wrong.append(f"{kind}: {found}")
    return wrong


COMMANDS: dict[str, Callable[..., list[str]]] = {
    "collectives": collectives, "ddp": models.report, "mistakes": report_mistakes,
    "strangers": report_strangers,
    "kills": kills, "stops": stops, "flips": checkpoints.report_flips,
    "saves": checkpoints.report_saves, "resize": resize.report,
    "slurm": clusters.slurm, "mpi": clusters.mpi, "ray": clusters.ray,
}  # fmt: skip


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__)
        return 2
    start = time.time()
    wrong = COMMANDS[arguments[0]](*(int(x) if x.isdigit() else x for x in arguments[1:]))
    print("\n".join(wrong[:20]))
    print(f"{'FAILED' if wrong else 'passed'} in {time.time() - start:.0f} s")
    return 1 if wrong else 0


assert lucerne.distributed.is_available()  # (loaded here, so that forked ranks have it)
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
