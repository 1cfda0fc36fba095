"""500 random programs, one turn of the rewrites, and the tools: they fail when they should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")

from tests.compiler import mutants, rewrites  # noqa: E402
from tests.compiler.around import AROUND, called  # noqa: E402
from tests.compiler.check import Options, checked, is_elementary, relaid, resized  # noqa: E402
from tests.compiler.compare import error_problem, problems  # noqa: E402
from tests.compiler.generate import generated  # noqa: E402
from tests.compiler.minimise import minimised, script  # noqa: E402
from tests.compiler.ops import EVERY, TABLE  # noqa: E402
from tests.compiler.outcome import Facts, Outcome, facts, run  # noqa: E402
from tests.compiler.planted import MUTANTS, Mutant  # noqa: E402
from tests.compiler.program import Index, Input, Program, Ref, Step, function  # noqa: E402
from tests.compiler.rewrite_pairs import PAIRS  # noqa: E402
from tests.compiler.wide import interpreted  # noqa: E402

pytestmark = pytest.mark.torch

PROGRAMS, PART, DAILY = 500, 25, 125


@pytest.fixture(autouse=True)
def _one_thread() -> object:
    before = lucerne.get_num_threads(), torch.get_num_threads()
    lucerne.set_num_threads(1)
    torch.set_num_threads(1)
    yield
    lucerne.set_num_threads(before[0])
    torch.set_num_threads(before[1])


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(k, marks=[] if k < DAILY else [pytest.mark.nightly])
        for k in range(0, PROGRAMS, PART)
    ],
)
def test_random_programs(first: int) -> None:
    """Every eighth one with other sizes and layouts too, and again in the bitwise mode.

    The bitwise mode is asked for programs without sums and gradients only.
    """
    for seed in range(first, first + PART):
        program, often = generated(seed), seed % 8 == 0
        how = Options() if often else Options(calls=("first", "other values"))
        report = checked(program, how)
        assert not report.problems, f"seed {seed}: {report.problems[0]}"
        if often and is_elementary(program):
            how = Options(mode="bitwise", rival=False, float64=False, calls=("first",))
            report = checked(program, how)
            assert not report.problems, f"seed {seed}, bitwise: {report.problems[0]}"


WITH_GRADIENTS = (3003, 3004, 3023)


@pytest.mark.parametrize("mode", ["default", "bitwise"])
@pytest.mark.parametrize("around", [name for name in AROUND if name])
def test_ways_of_calling(around: str, mode: str) -> None:
    """Two calls, hooks, autocast, some of the results, ...: all as eager has it."""
    how = Options(mode=mode, rival=False, float64=False, calls=("first", "warm"))
    for seed in WITH_GRADIENTS:
        program = called(replace(generated(seed), grad="cotangents"), around)
        report = checked(program, how)
        assert not report.error, f"seed {seed}: {report.error}"
        assert not report.problems, f"seed {seed}: {report.problems[0]}"


def test_ways_of_calling_are_called() -> None:
    """A compiler that forgets the history of a second call, or calls hooks once more, is found."""
    program = _program("r = x0 * x1", "s = x0 + 1", returns="r s", grad="cotangents")

    def forgetful(fn: Any) -> Any:
        calls: list[int] = []

        def call(*given: Any) -> Any:
            calls.append(1)
            return fn(*(x.detach() if len(calls) > 1 else x for x in given))

        return call

    for around in ("two calls", "calls before passes", "one by one", "no_grad", "cleared"):
        how = Options(rival=False, float64=False, compile=forgetful, calls=("first",))
        assert checked(called(program, around), how).problems, around


@pytest.mark.parametrize("first", range(0, len(PAIRS), 12))
def test_rewrites(first: int) -> None:
    for seed in range(first, min(first + 12, len(PAIRS))):
        case = rewrites.drawn(seed)
        found = rewrites.checked(case)
        assert not found, rewrites.told(case, found)


# ---- the tools themselves


def test_table_size() -> None:
    assert len(EVERY) >= 120
    assert sum(o.wide is not None for o in TABLE.values()) >= 80


def test_seed_gives_the_same_program() -> None:
    assert generated(7) == generated(7)
    assert generated(7).source() == generated(7).source()


def test_printed_program() -> None:
    steps = (
        Step("slice", "{0}[{1}]", (Ref("x0"), Index((slice(1, None, 2), None))), ("v0",)),
        Step("add_", "{0}.add_({1})", (Ref("v0"), 2.0)),
        Step("split", "torch.split({0}, {1})", (Ref("v0"), 4), ("v1",)),
    )
    program = Program((Input("x0", (4,)),), steps, ("v1", "x0"))
    assert program.source() == (
        "def program(x0):\n    v0 = x0[1::2, None]\n    v0.add_(2.0)\n"
        "    v1, = torch.split(v0, 4)\n    return v1, x0"
    )


def _program(*lines: str, inputs: int = 2, returns: str = "r", grad: str = "none") -> Program:
    """A program in two floats x0, x1 of shape (3, 4)."""
    specs = tuple(Input(f"x{k}", (3, 4), requires_grad=grad != "none") for k in range(inputs))
    return Program(specs, tuple(Step("line", x, ()) for x in lines), tuple(returns.split()), grad)


def _outcome(program: Program) -> Outcome:
    return run(program, lucerne, function(program, lucerne))


BASE = _program("r = x0 + x1")

# What differs from `r = x0 + x1`, and the kind of problem it must be.
DIFFERENT = [
    ("r = x0 + x1 * 1.001", "r", "value"),
    ("r = (x0 + x1).to(torch.float64)", "r", "dtype"),
    ("r = (x0 + x1)[:2]", "r", "shape"),
    ("r = (x0 + x1).mT.contiguous().mT", "r", "stride"),
    ("r = x0.add_(x1)", "r", "sharing"),
    ("r = x0 + x1\nx1.mul_(2)", "r", "value"),
    ("r = (x0 + x1).requires_grad_()", "r", "requires_grad"),
    ("r = x0 + x1", "r x0", "presence"),
    ("r = x0 @ x1", "r", "error"),
]


@pytest.mark.parametrize(("text", "returns", "kind"), DIFFERENT)
def test_comparison_finds(text: str, returns: str, kind: str) -> None:
    want = _outcome(BASE)
    got = _outcome(_program(*text.split("\n"), returns=returns))
    assert kind in [p.kind for p in problems(got, want)]
    assert kind in [p.kind for p in problems(want, got)]
    assert not problems(want, _outcome(BASE))
    assert not problems(want, _outcome(BASE), bitwise=True)


def test_comparison_of_shared_memory() -> None:
    views = _outcome(_program("r = x0[1:]", "s = x0[1:]", returns="r s"))
    copies = _outcome(_program("r = x0[1:]", "s = x0[1:].clone()", returns="r s"))
    twice = _outcome(_program("r = x0[1:]", "s = r", returns="r s"))
    assert "sharing" in [p.kind for p in problems(copies, views)]
    assert "sharing" in [p.kind for p in problems(twice, views)]


def test_comparison_of_bits() -> None:
    """A last bit passes by default and fails in the bitwise mode; -0.0 is not 0.0 there."""
    a = facts(lucerne.tensor([1.0, 0.0]), lucerne)
    b = facts(lucerne.tensor([1.0 + 2**-23, 0.0]), lucerne)
    c = facts(lucerne.tensor([1.0, -0.0]), lucerne)
    for other in (b, c):
        assert not problems(Outcome(tensors={"r": a}), Outcome(tensors={"r": other}))
        assert problems(Outcome(tensors={"r": a}), Outcome(tensors={"r": other}), bitwise=True)


def test_comparison_of_errors() -> None:
    raised = [Outcome(error="ValueError"), Outcome(error="TypeError"), Outcome()]
    for i, a in enumerate(raised):
        for j, b in enumerate(raised):
            assert bool(problems(a, b)) == (i != j)


def test_error_to_float64() -> None:
    exact = np.linspace(1, 2, 50)

    def off(by: float) -> Facts:
        return replace(facts(lucerne.ones(50), lucerne), values=exact * (1 + by))

    assert error_problem("r", off(1e-7), off(5e-8), exact) is None
    assert error_problem("r", off(1e-5), off(1e-7), exact) is not None


def test_compiled_differences_are_found() -> None:
    """A compiler that computes something else, keeps an old result, or forgets a write."""
    program = _program("r = x0 + x1", "x1.mul_(2)")
    kept: list[object] = []

    def wrong(fn: object) -> object:
        return lambda x, y: (x - y,)

    def stuck(fn: object) -> object:
        def call(x: object, y: object) -> object:
            kept.append(fn(x, y))  # type: ignore[operator]
            return kept[0]

        return call

    for make in (wrong, stuck):
        report = checked(program, Options(compile=make))
        assert any(p.kind == "value" for p in report.problems), make
    assert not checked(program, Options(compile=lambda fn: fn)).problems


def test_float64_interpreter_follows_writes_through_views() -> None:
    steps = (
        Step("slice", "{0}[{1}]", (Ref("x0"), Index((slice(None, None, 2),))), ("v0",)),
        Step("transpose", "{0}.transpose({1}, {2})", (Ref("v0"), 0, 1), ("v1",)),
        Step("mul_number_", "{0} *= {1}", (Ref("v1"), 3)),
    )
    program = Program((Input("x0", (3, 4), layout="stepped"),), steps, ("v1", "x0"))
    outputs, bases = interpreted(program)
    before = interpreted(replace(program, steps=steps[:2]))
    assert np.array_equal(outputs[0], 3 * before[0][0])
    assert np.array_equal(bases["x0"][::2, ::2], 3 * before[1]["x0"][::2, ::2])
    assert np.array_equal(bases["x0"][1], before[1]["x0"][1])
    assert not checked(program, Options(compiled=False)).problems


def test_minimiser() -> None:
    """Down to the one step that matters, on the smallest input."""
    steps = (
        Step("exp", "torch.exp({0})", (Ref("x0"),), ("v0",)),
        Step("add", "{0} + {1}", (Ref("v0"), Ref("x1")), ("v1",)),
        Step("tanh", "torch.tanh({0})", (Ref("v1"),), ("v2",)),
        Step("neg", "-{0}", (Ref("v0"),), ("v3",)),
    )
    specs = (Input("x0", (5, 33), layout="transposed"), Input("x1", (5, 33)))
    small = minimised(
        Program(specs, steps, ("v2", "v3")),
        lambda p: (
            any(s.op == "tanh" for s in p.steps) and not checked(p, Options(compiled=False)).error
        ),
    )
    assert [s.op for s in small.steps] == ["tanh"]
    assert len(small.inputs) == 1
    assert small.inputs[0].layout == "contiguous"
    assert max(small.inputs[0].shape, default=1) == 1
    text = script(small)
    assert "torch.compile(program)" in text
    compile(text, "pasted", "exec")


def test_other_sizes() -> None:
    changed = resized(_program("r = x0"))
    assert changed is not None
    assert changed.inputs[0].shape != (3, 4)
    assert changed.inputs[0].shape == changed.inputs[1].shape


def test_other_kind() -> None:
    for seed in range(20):
        program = generated(seed)
        changed = relaid(program)
        if changed is not None:
            assert changed.inputs != program.inputs
            assert changed.steps == program.steps


def test_mutants_fit_the_code() -> None:
    assert not mutants.stale()
    assert len(MUTANTS) >= 60
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)


def test_stale_mutant_is_told() -> None:
    for old in ("no such text", "e"):
        with pytest.raises(LookupError, match="must stand there once"):
            mutants.changed(Mutant("m", "pipeline.py", old, "x"), "one line here")
