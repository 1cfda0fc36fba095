"""`python -m tests.compiler.rewrites --cases 500`: two ways to write one thing, both compiled.

Each case takes a pair of `rewrite_pairs`, operands of drawn sizes and layouts, ops before and after
it (so that it meets others in a kernel), a mode, and perhaps a pass of the pipeline to leave out.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch

import lucerne
from lucerne._src.pipeline import passes
from tests.compiler.check import OUR_FAULT
from tests.compiler.compare import Problem, problems
from tests.compiler.inputs import LAYOUTS
from tests.compiler.minimise import script
from tests.compiler.noise import spread
from tests.compiler.outcome import run
from tests.compiler.program import Input, Program, Step, function
from tests.compiler.rewrite_pairs import PAIRS, Pair

SIZES = (2, 3, 4, 5, 8, 17)
WIDE = (40, 67, 130, 300)
ANY_SHAPE: list[tuple[int, ...]] = [(5,), (3, 4), (2, 3, 4), (17,), (4, 1, 5), (33,), (), (0, 3)]
BEFORE = ("", "", "{0} = {0} * 1.5", "{0} = torch.tanh({0})", "{0} = -{0}", "{0} = {0} + 1")
AFTER = (
    "",
    "",
    "r0 = r0 * 0.5 + 1",
    "r0 = torch.relu(r0)",
    "r0 = r0.sum()",
    "r0 = torch.exp(-r0 * r0)",
)


@dataclass(frozen=True)
class Case:
    pair: Pair
    left: Program
    right: Program
    mode: str
    disable: str
    exact: bool


def drawn(seed: int) -> Case:
    """The case of a seed: every pair has its turn."""
    r = random.Random(seed)
    pair = PAIRS[seed % len(PAIRS)]
    sizes = {c: r.choice(SIZES) for c in "abcd"} | {"L": r.choice(WIDE)}
    shape = r.choice(ANY_SHAPE)
    dtype = r.choice(pair.floats)
    grads = r.random() < 0.4
    inputs = tuple(_operand(w, sizes, shape, dtype, grads, r) for w in pair.operands.split())
    floats = [i.name for i in inputs if i.dtype == dtype and i.values == "normal"]
    # Ops around would round in between: for exact pairs only in the bitwise mode, where they can't.
    mode = r.choice(["default", "bitwise"]) if pair.exact else "default"
    before = r.choice(BEFORE).format(r.choice(floats)) if floats else ""
    after = r.choice(AFTER) if _is_float(pair) else ""
    grad = r.choice(["sum", "cotangents"]) if grads and not after else "none"
    left, right = (
        Program(inputs, _steps(text, before, after, sizes), ("r0",), grad, seed)
        for text in (pair.left, pair.right)
    )
    disable = r.choice(["", "", *(p.name for p in passes.PASSES), "fuse", "anchors"])
    # The two sides may be laid out differently, and a sum then adds in another order.
    exact = pair.exact and mode == "bitwise" and grad == "none" and "sum" not in after
    return Case(pair, left, right, mode, disable, exact)


def _is_float(pair: Pair) -> bool:
    return not all(w.endswith((":b", ":z")) for w in pair.operands.split()) and (
        "argmax" not in pair.left
    )


def _operand(
    word: str, sizes: dict[str, int], shape: tuple[int, ...], dtype: str, grads: bool, r: Any
) -> Input:
    name, letters, *kind = word.split(":")
    if letters != "*":
        shape = tuple(sizes[c] if c in sizes else int(c) for c in letters)
    fitting = [n for n, x in LAYOUTS.items() if len(shape) >= x.dims]
    layout = r.choice(fitting) if r.random() < 0.4 else "contiguous"
    if not kind:
        return Input(name, shape, dtype, layout, "normal", grads and r.random() < 0.7)
    if kind[0] == "p":
        return Input(name, shape, dtype, layout, "positive", grads)
    if kind[0].startswith("i"):
        return Input(name, shape, "int64", layout, f"index:{sizes[kind[0][1]]}")
    return Input(name, shape, "bool" if kind[0] == "b" else "int64", layout)


def _steps(text: str, before: str, after: str, sizes: dict[str, int]) -> tuple[Step, ...]:
    lines = text.split("\n")
    lines[-1] = "r0 = " + lines[-1].removeprefix("return ")
    lines = [re.sub(r"(?<![\w.'])([abcL])(?![\w'=])", lambda m: str(sizes[m[1]]), x) for x in lines]
    return tuple(Step("line", _escaped(x), ()) for x in [before, *lines, after] if x)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def compiled(program: Program, case: Case) -> Any:
    options = {"disable": {case.disable}} if case.disable else {}
    mode = None if case.mode == "default" else case.mode
    return lucerne.compile(function(program, lucerne), mode=mode, options=options)


def checked(case: Case) -> list[Problem]:
    """Both compiled sides with each other, and the left one with eager."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sides = [compiled(p, case) for p in (case.left, case.right)]
        left, right = (
            run(p, lucerne, fn) for p, fn in zip((case.left, case.right), sides, strict=True)
        )
        eager = run(case.left, lucerne, function(case.left, lucerne))
        kept: dict[str, Any] = {}

        def noise(name: str) -> Any:
            if not kept:
                both = spread(case.left), spread(case.right)
                kept.update({n: both[0][n] + both[1].get(n, 0) for n in both[0]})
            return kept.get(name)

        reasons = [fn.given_up or "" for fn in sides]
        found = [Problem("fault inside the compiler", "call", r) for r in reasons if OUR_FAULT in r]
        bitwise = case.mode == "bitwise"
        for p in problems(left, eager, bitwise=bitwise, noise=noise):
            found.append(replace(p, where=f"left and eager, {p.where}"))
        for x in (left, right):
            x.sharing = []
            if case.exact:
                for f in x.tensors.values():
                    f.bits = f.values + 0.0 if f.values.dtype.kind == "f" else f.bits
        for p in problems(left, right, bitwise=case.exact, noise=noise, strides=False):
            found.append(replace(p, where=f"left and right, {p.where}"))
    return found


def told(case: Case, found: list[Problem]) -> str:
    off = f", without the pass {case.disable}" if case.disable else ""
    head = f"# {case.pair.name}, mode {case.mode}{off}: {found[0]}"
    return f"{head}\n{script(case.left, case.mode)}\n# the other side\n{case.right.source()}\n"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.compiler.rewrites", description=__doc__)
    made.add_argument("--cases", type=int, default=500)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--most", type=int, default=5, help="failures to print")
    return made


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    lucerne.set_num_threads(1)
    began = time.perf_counter()
    bad: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.cases):
        case = drawn(seed)
        found = checked(case)
        if found:
            bad[case.pair.name] += 1
            if sum(bad.values()) <= options.most:
                print(told(case, found))
    seconds = (time.perf_counter() - began) / max(options.cases, 1)
    print(
        f"{options.cases} rewrites of {len(PAIRS)} pairs: {sum(bad.values())} disagree; "
        f"{seconds:.3f} s each"
    )
    for name, n in bad.most_common():
        print(f"  {n:4d}  {name}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
