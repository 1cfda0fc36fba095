"""Makes a failing program small: drop and simplify as long as it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.compiler.inputs import described
from tests.compiler.program import Input, Program, Ref, Step, renamed

Fails = Callable[[Program], bool]
"""True: the program still fails in the way that is looked into."""


def minimised(program: Program, fails: Fails, tries: int = 600) -> Program:
    """The smallest program found. `fails` is asked at most `tries` times."""
    left = tries
    better = True
    while better and left > 0:
        better = False
        for candidate in _smaller(program):
            left -= 1
            if _holds(candidate, fails):
                program, better = candidate, True
                break
            if left <= 0:
                break
    return program


def _holds(candidate: Program, fails: Fails) -> bool:
    try:
        return fails(candidate)
    except Exception:
        return False  # no longer a program


def _smaller(p: Program) -> Iterator[Program]:
    """Candidates, the boldest first."""
    for n in _halves(len(p.steps)):
        yield _tidy(_cut(p, n))
    if len(p.returns) > 1:
        for name in dict.fromkeys(p.returns):
            yield _tidy(replace(p, returns=(name,)))
        for k in range(len(p.returns)):
            yield _tidy(replace(p, returns=p.returns[:k] + p.returns[k + 1 :]))
    for k in reversed(range(len(p.steps))):
        yield from _without_step(p, k)
    if p.grad in ("cotangents", "first"):
        yield replace(p, grad="sum")
    if p.grad != "none":
        yield replace(p, grad="none")
    yield from _simpler_inputs(p)


def _halves(n: int) -> list[int]:
    return [k for k in (n // 2, n // 4, n - 1) if 0 < k < n]


def _cut(p: Program, n: int) -> Program:
    """The first n steps, returning what they made."""
    steps = p.steps[:n]
    known = {i.name for i in p.inputs} | {o for s in steps for o in s.outs}
    returns = tuple(r for r in p.returns if r in known)
    if not returns:
        made = [o for s in steps for o in s.outs]
        returns = tuple(made[-1:]) or tuple(i.name for i in p.inputs if i.dtype != "number")[:1]
    return replace(p, steps=steps, returns=returns)


def _tidy(p: Program) -> Program:
    """Without pure steps that nobody reads, and without inputs that nobody reads."""
    needed = set(p.returns)
    kept: list[Step] = []
    for s in reversed(p.steps):
        if not s.outs or any(o in needed for o in s.outs):
            kept.append(s)
            needed.update(s.reads())
    inputs = [i for i in p.inputs if i.name in needed]
    roots = {i.of for i in inputs}
    inputs = [i for i in p.inputs if i.name in needed or i.name in roots]
    return replace(p, steps=tuple(reversed(kept)), inputs=tuple(inputs))


def _without_step(p: Program, k: int) -> Iterator[Program]:
    """One step less: its result is one of its operands, or an argument of its own."""
    step = p.steps[k]
    rest = p.steps[:k] + p.steps[k + 1 :]
    if not step.outs or not any(_reads(s, step.outs) for s in p.steps[k + 1 :]):
        returns = tuple(r for r in p.returns if r not in step.outs)
        if returns or not step.outs:
            yield _tidy(replace(p, steps=rest, returns=returns or p.returns))
        if not step.outs:
            return
    for name in dict.fromkeys(step.reads()):
        yield _tidy(_with_names(replace(p, steps=rest), dict.fromkeys(step.outs, name)))
    for i in p.inputs:
        if i.dtype != "number" and i.name not in step.reads():
            yield _tidy(_with_names(replace(p, steps=rest), dict.fromkeys(step.outs, i.name)))


def _reads(step: Step, names: tuple[str, ...]) -> bool:
    return any(n in names for n in step.reads())


def _with_names(p: Program, names: dict[str, str]) -> Program:
    def new(name: str) -> Ref:
        return Ref(names.get(name, name))

    steps = tuple(replace(s, args=renamed(s.args, new)) for s in p.steps)
    return replace(p, steps=steps, returns=tuple(names.get(r, r) for r in p.returns))


def _simpler_inputs(p: Program) -> Iterator[Program]:
    for k, i in enumerate(p.inputs):
        for simpler in _simpler(i):
            yield replace(p, inputs=(*p.inputs[:k], simpler, *p.inputs[k + 1 :]))
    sizes = sorted({s for i in p.inputs for s in i.shape}, reverse=True)
    for old in sizes:
        for new in (1, 2, 3, 4):
            if new < old:
                yield replace(p, inputs=tuple(_resized(i, old, new) for i in p.inputs))
    for k, i in enumerate(p.inputs):
        if len(i.shape) > 1 and not i.of:
            smaller = replace(i, shape=i.shape[1:], layout="contiguous")
            yield replace(p, inputs=(*p.inputs[:k], smaller, *p.inputs[k + 1 :]))


def _resized(i: Input, old: int, new: int) -> Input:
    return replace(i, shape=tuple(new if s == old else s for s in i.shape))


def _simpler(i: Input) -> Iterator[Input]:
    if i.dtype == "number":
        return
    if i.layout != "contiguous":
        yield replace(i, layout="contiguous", of="")
    if i.requires_grad:
        yield replace(i, requires_grad=False)
    if i.dtype in ("float64", "bfloat16", "float16"):
        yield replace(i, dtype="float32")
    if i.values not in ("normal", "grid") and not i.values.startswith("index"):
        yield replace(i, values="normal")
    if i.values == "normal" and i.dtype not in ("bool", "int64", "int32"):
        yield replace(i, values="grid")


def script(program: Program, mode: str = "default") -> str:
    """Text that anyone can paste: arguments, function, both calls."""
    options = "" if mode == "default" else f", mode={mode!r}"

    lines = ["import lucerne as torch", "", program.source(), "", "def arguments():"]
    lines += [f"    {line}" for line in described(program).splitlines()]
    names = ", ".join(i.name for i in program.inputs)
    lines += [f"    return {names},", ""]
    lines += [f"compiled = torch.compile(program{options})"]
    for left, fn in (("eager", "program"), ("fused", "compiled")):
        lines += ["args = arguments()", f"{left} = {fn}(*args)"]
        if program.grad != "none":
            lines += [f"sum(o.sum() for o in {left} if o.requires_grad).backward()"]
        lines += [f"print({left}, args)"]
    return "\n".join(lines)
