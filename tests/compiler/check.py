"""One program through all engines: eager, PyTorch, the float64 interpreter, and compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import lucerne
from tests.compiler.compare import Noise, Problem, error_problem, problems
from tests.compiler.inputs import LAYOUTS, tensors
from tests.compiler.noise import spread
from tests.compiler.ops import INSIDE
from tests.compiler.ops_folds import FOLDS
from tests.compiler.outcome import Outcome, differentiate, run, taken
from tests.compiler.program import Program, function
from tests.compiler.wide import covered, interpreted, is_wide

Compile = Callable[..., Any]
OUR_FAULT = "capturing or compiling it raised"
"""Why a function runs uncompiled when its own calls are not to blame."""
STALE = "has been modified by an inplace operation"


@dataclass
class Options:
    """What to compare. `compile` is given a function and returns a function."""

    mode: str = "default"
    rival: bool = True
    """Eager with PyTorch."""
    float64: bool = True
    compiled: bool = True
    compile: Compile | None = None
    calls: tuple[str, ...] = ("first", "warm", "other values", "other sizes", "other kind")


@dataclass
class Report:
    problems: list[Problem] = field(default_factory=list)
    error: str = ""
    """The program raises (on every engine alike)."""
    covered: bool = False
    gradients: bool = False
    given_up: str = ""
    """Why the function runs uncompiled: then nothing was compared."""
    shaken: bool = False
    """Rounding had to be measured to accept a difference."""


class _Noise:
    """Measured once, when first asked for."""

    def __init__(self, program: Program, variant: int, report: Report) -> None:
        self.program, self.variant, self.report = program, variant, report
        self.found: dict[str, Any] | None = None

    def __call__(self, name: str) -> Any:
        if self.found is None:
            self.report.shaken = True
            self.found = spread(self.program, self.variant)
        return self.found.get(name)


def checked(program: Program, options: Options | None = None) -> Report:
    """All differences between the engines on one program."""
    options = options or Options()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _checked(program, options)


def _checked(program: Program, options: Options) -> Report:
    report = Report()
    plain = function(program, lucerne)
    eager = run(program, lucerne, plain)
    report.error = eager.error
    noise = _Noise(program, 0, report)
    exact = reference(program, 0) if options.float64 and not eager.error else {}
    report.covered = bool(exact)
    report.gradients = any(n.startswith("gradient") for n in exact)
    if options.rival:
        rival = run(program, torch, function(program, torch))
        _same_gradients(eager, rival)
        if STALE in rival.message and not eager.error:
            rival = eager  # PyTorch saved more for the backward pass than we need
        _add(report, "eager and PyTorch", problems(eager, rival, noise=noise, strides=False))
        if rival.tensors.keys() == eager.tensors.keys() and not rival.error:
            for name, x in ((n, x) for n, x in exact.items() if n in eager.tensors):
                if eager.tensors[name].dtype == "float64" and name.startswith("gradient"):
                    continue  # there PyTorch would be compared with itself
                found = error_problem(name, eager.tensors[name], rival.tensors[name], x, noise)
                _add(report, "eager and float64", [found] if found else [])
    if options.compiled:
        _compiled(program, options, report, plain, eager, exact, noise)
    return report


def _compiled(
    program: Program, options: Options, report: Report, plain: Any, eager: Outcome,
    exact: dict[str, Any], noise: Noise,
) -> None:  # fmt: skip
    bitwise = options.mode == "bitwise"
    make = options.compile or default_compile(options.mode)
    made = make(function(program, lucerne))
    for call in options.calls:
        variant = 1 if call == "other values" else 0
        given = OTHERS[call](program) if call in OTHERS else program
        if given is None:
            continue
        fresh = variant or given is not program
        # The order of a sum follows the layout of what comes in: every bit is asked for only
        # where gradients arrive laid out as the outputs are, as the backward pass was compiled.
        again = fresh or (bitwise and program.grad != "none")
        want = run(given, lucerne, plain, variant, bitwise) if again else eager
        got = run(given, lucerne, made, variant, bitwise)
        if given.around and STALE in want.message and not got.error:
            continue  # what a compiled call keeps for its backward pass is less
        shaking = noise if not fresh else _Noise(given, variant, report)
        found = problems(got, want, bitwise=bitwise, noise=shaking)
        if not bitwise and not got.error and not found:
            wide = reference(given, variant) if fresh and options.float64 else exact
            for name, x in wide.items():
                if name in got.tensors and name in want.tensors:
                    p = error_problem(name, got.tensors[name], want.tensors[name], x, shaking)
                    found += [p] if p else []
        _add(report, f"compiled, {call}", found)
    report.given_up = getattr(made, "given_up", None) or ""
    if OUR_FAULT in report.given_up:
        found = Problem("fault inside the compiler", "call", report.given_up)
        _add(report, "compiled, hidden", [found])


def _same_gradients(a: Outcome, b: Outcome) -> None:
    """A gradient that one side leaves out and the other gives as zeros says the same."""
    for x, y in ((a, b), (b, a)):
        for name in [n for n in x.tensors if n.startswith("gradient") and n not in y.tensors]:
            if not x.tensors[name].values.any():
                del x.tensors[name]


def default_compile(mode: str) -> Compile:
    return lambda fn: lucerne.compile(fn, mode=None if mode == "default" else mode)


def _add(report: Report, sides: str, found: list[Problem]) -> None:
    report.problems += [Problem(p.kind, f"{sides}, {p.where}", p.text) for p in found]


def reference(program: Program, variant: int) -> dict[str, Any]:
    """float64 results by name: NumPy's, and PyTorch's in float64 for gradients."""
    made: dict[str, Any] = {}
    if covered(program):
        try:
            outputs, bases = interpreted(program, variant)
        except (ValueError, IndexError):  # other sizes that raise
            return made
        made = {f"output {k}": a for k, a in enumerate(outputs)}
        made |= {f"memory of {n}": a for n, a in bases.items() if _is_root(program, n)}
    if any(i.requires_grad for i in program.inputs) and is_wide(program):
        made |= _wide_gradients(program, variant)
    return made


def _is_root(program: Program, name: str) -> bool:
    return not next(i for i in program.inputs if i.name == name).of


class _Wide:
    """PyTorch with float64 in place of narrower floats."""

    float32 = float64 = float = double = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _wide_gradients(program: Program, variant: int) -> dict[str, Any]:
    fn = function(program, _Wide())
    given = tensors(program, torch, variant, wide=True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        outputs = list(fn(*(a.value for a in given)))
        if program.grad != "none":
            differentiate(program, torch, outputs)
    except Exception:
        return {}
    finally:
        torch.set_default_dtype(before)
    found = taken(outputs, given, torch).tensors
    return {n: f.values for n, f in found.items() if n.startswith(("gradient", "output"))}


def relaid(program: Program) -> Program | None:
    """The same program with one input of another kind: layout, gradient, whose view it is."""
    k = program.seed % len(program.inputs)
    spec = program.inputs[k]
    if spec.dtype == "number":
        return None
    if spec.of:
        other = replace(spec, of="", layout="contiguous")
    elif spec.requires_grad:
        other = replace(spec, requires_grad=False)
    elif any(i.of == spec.name for i in program.inputs):
        return None
    else:
        twins = [
            i.name for i in program.inputs[:k] if (i.shape, i.dtype) == (spec.shape, spec.dtype)
        ]
        if (
            twins
            and not any(i.requires_grad for i in program.inputs)
            and "index" not in spec.values
        ):
            other = replace(spec, of=twins[0], layout="same")
        else:
            fitting = [
                n for n, x in LAYOUTS.items() if len(spec.shape) >= x.dims and n != spec.layout
            ]
            if not fitting:
                return None
            other = replace(spec, layout=fitting[program.seed % len(fitting)])
    return replace(program, inputs=(*program.inputs[:k], other, *program.inputs[k + 1 :]))


def resized(program: Program) -> Program | None:
    """The same program with one size changed everywhere it stands in the inputs' shapes."""
    sizes = sorted({s for i in program.inputs for s in i.shape if s > 1})
    if not sizes:
        return None
    old = sizes[program.seed % len(sizes)]
    new = {2: 3, 3: 5, 4: 6, 5: 7, 17: 20, 33: 40}.get(old, old + 1)
    specs = tuple(
        replace(i, shape=tuple(new if s == old else s for s in i.shape)) for i in program.inputs
    )
    return replace(program, inputs=specs)


OTHERS: dict[str, Callable[[Program], Program | None]] = {
    "other sizes": resized,
    "other kind": relaid,
}


def is_elementary(program: Program) -> bool:
    """No sums and no gradients: what adds up in one order only."""
    inexact = {o.name for o in FOLDS if not o.exact} | set(INSIDE) | {"cumsum", "cumprod"}
    return program.grad == "none" and not any(s.op in inexact for s in program.steps)
