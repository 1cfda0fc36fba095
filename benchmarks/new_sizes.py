"""What a size costs that a compiled function has never seen: CPU time above a call of that size.

python -m benchmarks new_sizes                 the three rows, a table
python -m benchmarks new_sizes --sizes 24      more sizes
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from benchmarks import programs, weights
from lucerne._src.base.config import config

_MUST = {"small function": 0.1, "GPT 6 x 384, forward": 1.0, "GPT 6 x 384, step with AdamW": 3.0}
_WORDS = 512


Row = tuple[Callable[[int], Any], Callable[[Any], Any]]
"""What makes the arguments of a size, and what is called with them."""


def _small() -> Row:
    return lambda n: torch.ones(n, 16), torch.compile(
        lambda x: (x * 2 + 1).relu().sum(-1) + x.mean()
    )


def _gpt() -> Any:
    torch.manual_seed(0)
    sizes = weights.Language(6, 384, 6, words=_WORDS, batch=2, length=512)
    return programs.gpt_model(torch, sizes)


def _tokens(n: int) -> Any:
    return torch.arange(2 * n).reshape(2, n) % _WORDS


def _forward() -> Row:
    model = torch.compile(_gpt())

    def run(tokens: Any) -> Any:
        with torch.no_grad():
            return model(tokens)

    return _tokens, run


def _step() -> Row:
    model = _gpt()
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile
    def step(tokens: Any) -> Any:
        optimizer.zero_grad()
        scores = model(tokens)
        loss = F.cross_entropy(scores[:, :-1].reshape(-1, _WORDS), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    return _tokens, step


ROWS: dict[str, Callable[[], Row]] = {
    "small function": _small,
    "GPT 6 x 384, forward": _forward,
    "GPT 6 x 384, step with AdamW": _step,
}


def cpu_ms(run: Callable[[Any], Any], given: Any) -> float:
    began = time.process_time()
    run(given)
    return 1e3 * (time.process_time() - began)


def above(run: Callable[[Any], Any], given: Any) -> float:
    """What the first two calls of a size take more than two of the next ones (what is put off from
    the first call counts too)."""
    first = cpu_ms(run, given) + cpu_ms(run, given)
    return first - 2 * statistics.median(cpu_ms(run, given) for _ in range(5))


def measured(row: Row, known: list[int], new: list[int]) -> list[float]:
    """Milliseconds above the call at each new size. `known` are called before: two sizes to be
    traced, and one of each range of sizes that has a program."""
    make, run = row
    for n in known:
        for _ in range(3):  # (at the third a weight is packed)
            run(make(n))
    return [above(run, make(n)) for n in new]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, default=16, help="how many new sizes")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config.payoff_calls = 0  # (the small function is not worth compiling)
    print(f"{'ms of CPU above the call':<32} {'median':>8} {'best':>8} {'worst':>8} {'must':>6}")
    for name, make in ROWS.items():
        known = list(range(40, 40 + 2 * given.sizes, 2))
        found = measured(make(), known, [n + 1 for n in known])
        row = statistics.median(found), min(found), max(found), _MUST[name]
        print(f"{name:<32} " + " ".join(f"{x:8.2f}" for x in row[:3]) + f" {row[3]:6.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
