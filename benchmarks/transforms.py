"""Transforms of a small network: `compile(grad(loss))` and others beside torch.func, same run.

    python -m benchmarks.transforms                  the gradient; must be at most torch's time
    python -m benchmarks.transforms --rows all       also jvp, vmap of grad, jacrev, ..., hessian
    python -m benchmarks.transforms --eager          without compile, on both sides
    python -m benchmarks.transforms --ops            what one op costs inside vmap, uncompiled

Both sides run in this process, in turn, on the same numbers; results must agree. Times are
processor time of one thread, the least of many.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.timing import best_in_turn

LIMIT = 1.0
CALLS = 30
LINKS = 50
WIDTHS = (32, 64, 64, 10)
BATCH = 64

Call = Callable[[], Any]


def programs(torch: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Functions to compile and their arguments; the first is the one that must not be slower."""
    rng = np.random.RandomState(0)
    given = lambda *shape: torch.tensor(rng.standard_normal(shape).astype(np.float32) * 0.2)  # noqa: E731
    layers = []
    for n, m in itertools.pairwise(WIDTHS):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    parameters = {name: given(*p.shape) for name, p in net.named_parameters()}
    directions = {name: given(*p.shape) for name, p in net.named_parameters()}
    x, labels = given(BATCH, WIDTHS[0]), torch.tensor(rng.randint(0, WIDTHS[-1], BATCH))
    f = torch.func

    def outputs(p: Any, x: Any) -> Any:
        return f.functional_call(net, p, (x,))

    def loss(p: Any, x: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(outputs(p, x), labels)

    def direction(p: Any, d: Any, x: Any, labels: Any) -> Any:
        return f.jvp(lambda q: loss(q, x, labels), (p,), (d,))[1]

    def small(x: Any) -> Any:
        return (outputs(parameters, x).tanh() ** 2).sum()

    return {
        "grad": (f.grad(loss), (parameters, x, labels)),
        "jvp": (direction, (parameters, directions, x, labels)),
        "vmap of grad": (
            f.vmap(f.grad(loss), in_dims=(None, 0, 0)), (parameters, x[:, None], labels[:, None]),
        ),
        "jacrev": (f.jacrev(outputs, argnums=1), (parameters, x[0])),
        "jacfwd": (f.jacfwd(outputs, argnums=1), (parameters, x[0])),
        "hessian": (f.hessian(small), (x[0],)),
    }  # fmt: skip


def chains(torch: Any) -> dict[str, Callable[..., Any]]:
    """One op again and again: of what a call costs, next to nothing is computing."""

    def chain(op: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: Any, y: Any) -> Any:
            for _ in range(LINKS):
                x = op(x, y)
            return x

        return run

    return {
        "sin": chain(lambda x, y: torch.sin(x)),
        "mul": chain(lambda x, y: x * y),
        "mul by a number": chain(lambda x, y: x * 0.5),
        "softmax": chain(lambda x, y: torch.softmax(x, 0)),
        "two views": chain(lambda x, y: x.unsqueeze(0).squeeze(0)),
        "sum, add": chain(lambda x, y: x + y.sum()),
    }


def report_ops(seconds: float) -> None:
    """Microseconds of each op inside vmap, and of the same inside vmap of grad (both passes)."""
    for row in chains(importlib.import_module("lucerne")):
        shown = [f"{row:16}"]
        for of_grad in (False, True):
            chains_of = {name: _chain_side(name, row, of_grad) for name in ("lucerne", "torch")}
            best = best_in_turn(chains_of, seconds=seconds, calls=CALLS)
            mine, theirs = (best[name] / LINKS * 1e6 for name in ("lucerne", "torch"))
            what = "vmap of grad" if of_grad else "vmap"
            shown.append(f"{what}: lucerne {mine:6.2f} us  torch {theirs:6.2f} us")
        print("  ".join(shown))


def _chain_side(name: str, row: str, of_grad: bool) -> Call:
    torch = importlib.import_module(name)
    function = chains(torch)[row]
    run = torch.func.vmap(function)
    if of_grad:
        run = torch.func.vmap(torch.func.grad(lambda x, y: function(x, y).sum()))
    x, y = torch.ones(4, 8), torch.ones(4, 8)
    run(x, y)  # what is loaded or made on first use
    return lambda: run(x, y)


def leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        for value in x.values():
            yield from leaves(value)
    elif isinstance(x, (tuple, list)):
        for value in x:
            yield from leaves(value)
    else:
        yield x.detach().numpy()


def disagreement(ours: Any, theirs: Any) -> float:
    """The largest difference of two results, relative to the largest element of each."""
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)) for a, b in pairs)


def side(name: str, row: str, compiled: bool) -> Call:
    torch = importlib.import_module(name)
    function, arguments = programs(torch)[row]
    run = torch.compile(function) if compiled else function
    return lambda: run(*arguments)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transforms")
    parser.add_argument("--rows", default="grad", help='names with commas between them, or "all"')
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args(arguments)
    for name in ("lucerne", "torch"):
        importlib.import_module(name).set_num_threads(1)
    if options.ops:
        report_ops(options.seconds / 5)
        return 0
    every = list(programs(importlib.import_module("lucerne")))
    rows = every if options.rows == "all" else options.rows.split(",")
    good = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own forward mode and compiler
        for row in rows:
            sides = {name: side(name, row, not options.eager) for name in ("lucerne", "torch")}
            difference = disagreement(sides["lucerne"](), sides["torch"]())
            best = best_in_turn(sides, seconds=options.seconds, calls=CALLS)
            ratio = best["lucerne"] / best["torch"]
            mine, theirs = best["lucerne"] * 1e6, best["torch"] * 1e6
            print(
                f"{row:14} lucerne {mine:9.1f} us  torch {theirs:9.1f} us  ratio {ratio:5.2f}  "
                f"differ by {difference:.0e}"
            )
            good = good and difference < 1e-3 and (row != "grad" or ratio <= LIMIT)
    print(f"the ratio of grad must be at most {LIMIT}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
