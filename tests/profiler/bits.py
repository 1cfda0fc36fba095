"""Every answer of the conformance suite, plain and profiled: the bits must be the same.

python -m tests.profiler.bits               # all cases (a minute or two)
python -m tests.profiler.bits --every 20    # a twentieth of them
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import lucerne
from lucerne._src.base.process.profiler_hook import Watch
from lucerne._src.conformance import frozen_cases
from lucerne._src.conformance.cases import Case, leaves
from lucerne._src.tensor.interop import outside
from lucerne.profiler import profile

EVERYTHING = {
    "record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True,
    "with_modules": True,
}  # fmt: skip


def answer(case: Case) -> list[Any]:
    """What a case gives, as bytes; an error counts by its type and text."""
    lucerne.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = case.run("cpu")
        except Exception as error:
            return [type(error).__name__, str(error)]
    return [told(x) for x in leaves(found)]


def told(x: Any) -> Any:
    if not isinstance(x, lucerne.Tensor):
        return repr(x)
    if x.is_sparse:
        return "sparse", told(x.coalesce().indices()), told(x.coalesce().values())
    return str(x.dtype), tuple(x.shape), x.stride(), outside.bits(x).tobytes()


def differing(cases: Sequence[Case]) -> list[str]:
    """Cases whose answers differ, and those that leave a profile behind."""
    problems = []
    for case in cases:
        plain = answer(case)
        with profile(**EVERYTHING):
            seen = answer(case)
        if repr(plain) != repr(seen):
            problems.append(f"{case.op} {case.dtype} {case.part}")
        if Watch.current is not None:
            raise AssertionError(f"{case.op}: a profile goes on")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="take only each n-th case")
    options = parser.parse_args()
    cases = list(frozen_cases(lucerne))[:: options.every]
    problems = differing(cases)
    for line in problems:
        print(line)
    print(f"{len(cases)} answers, {len(problems)} differ when profiled")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
