"""A page about one of the benchmark's programs: what its training step became.

    python -m benchmarks.explain gpt gpt.html          the GPT training step, at full size
    python -m benchmarks.explain resnet page.html --small
    python -m benchmarks.explain broken page.html      a function with breaks

The table is printed, the page written.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from benchmarks import sides

BROKEN = "broken"


def broken(torch: Any) -> tuple[Any, tuple[Any, ...]]:
    """A function that is not one graph: it looks at values on the way."""

    def weigh(x: Any, scale: float) -> Any:
        y = torch.relu(x @ x.T) * scale
        print("norm", y.norm().item())
        z = torch.softmax(y, dim=1)
        if z.max() > 0.5:
            z = z / 2
        return z.sum(dim=0) + y.mean(dim=1)

    return weigh, (torch.randn(256, 256), 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain", description=__doc__)
    parser.add_argument("program", choices=[*sides.TRAINING, BROKEN])
    parser.add_argument("page")
    parser.add_argument("--small", action="store_true", help="at the size of the tests")
    options = parser.parse_args()
    torch = importlib.import_module("lucerne")
    if options.program == BROKEN:
        fn, args = broken(torch)
    else:
        size = sides.SIZES[options.program][options.small]
        job = sides.training(torch, "step", options.program, size)
        fn, args = job.step, job.batch
    found = torch.explain(fn)(*args)
    print(found)
    found.save(options.page)


if __name__ == "__main__":
    main()
